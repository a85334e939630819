"""Keeps modules that the screen never uses out of its memory.

Measured with the screen's modules loaded, resident memory saved: OpenSSL 4.7 MB, pydantic's plugin lookup 1.7 MB, one
malloc arena 0.8 MB. Deferring `difflib`, `textual.types`, `bz2` and `lzma` saved less than 0.6 MB each and was dropped.
"""

from __future__ import annotations

import ctypes
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, cast

OPENSSL = ("ssl", "_hashlib")
OPENSSL_USERS = ("asyncio", "hashlib", "hmac")
BUILTIN_HASHES = (("_md5",), ("_sha1",), ("_sha2", "_sha512"), ("_sha3",), ("_blake2",))
PLUGIN_LOADER = "pydantic.plugin._loader"
M_ARENA_MAX = -8
"""A parameter of glibc's mallopt(3)."""


def reduce_startup_memory() -> None:
    """Apply all measures below. Call it before Textual, asyncio and pydantic are imported."""
    skip_openssl()
    skip_pydantic_plugins()
    use_single_malloc_arena()


def skip_openssl() -> None:
    """Import asyncio and hashlib without OpenSSL, for which both have fallbacks. The screen opens no connections.

    Does nothing where OpenSSL is loaded already or Python lacks its own hashes. `import ssl` works again afterwards.
    """
    if any(name in sys.modules for name in OPENSSL) or not _has_builtin_hashes():
        return
    modules = cast("dict[str, Any]", sys.modules)
    modules.update(dict.fromkeys(OPENSSL))  # None makes an import fail
    try:
        for user in OPENSSL_USERS:
            import_module(user)
    finally:
        for name in OPENSSL:
            del modules[name]


def skip_pydantic_plugins() -> None:
    """Replace pydantic's plugin lookup, which reads the metadata of every installed package; the models need none."""
    if PLUGIN_LOADER not in sys.modules:
        loader: Any = ModuleType(PLUGIN_LOADER)
        loader.get_plugins = tuple
        sys.modules[PLUGIN_LOADER] = loader


def use_single_malloc_arena() -> None:
    """Make all threads share one heap where the C library is glibc. Call it before threads are started.

    By default each thread gets an arena whose memory is never returned. Python's lock makes contention unlikely.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def _has_builtin_hashes() -> bool:
    return all(any(find_spec(name) for name in names) for names in BUILTIN_HASHES)
