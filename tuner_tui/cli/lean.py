"""Keeps what the screen never uses out of its memory."""

from __future__ import annotations

import ctypes
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, cast

OPENSSL = ("ssl", "_hashlib")
THEIR_USERS = ("asyncio", "hashlib", "hmac")
PLUGIN_LOADER = "pydantic.plugin._loader"
M_ARENA_MAX = -8
"""A parameter of glibc's mallopt(3)."""
BUILT_IN_HASHES = (("_md5",), ("_sha1",), ("_sha2", "_sha512"), ("_sha3",), ("_blake2",))


def leave_out_openssl() -> None:
    """Loads asyncio and hashlib without OpenSSL: 5 MB and some milliseconds for connections that nobody opens.

    Both are made to do without it, hashlib where Python was built with hashes of its own; elsewhere all stays as it
    is. `import ssl` works again afterwards.
    """
    if any(name in sys.modules for name in OPENSSL) or not _hashes_of_its_own():
        return
    modules = cast("dict[str, Any]", sys.modules)
    modules.update(dict.fromkeys(OPENSSL))  # None: an import of it fails
    try:
        for user in THEIR_USERS:
            import_module(user)
    finally:
        for name in OPENSSL:
            del modules[name]


def leave_out_pydantic_plugins() -> None:
    """Builds models without looking for plugins of pydantic's among all installed packages.

    The screen's models need none; what looks for them takes 1.6 MB, and reads the metadata of every package.
    """
    if PLUGIN_LOADER not in sys.modules:
        loader: Any = ModuleType(PLUGIN_LOADER)
        loader.get_plugins = tuple
        sys.modules[PLUGIN_LOADER] = loader


def share_one_heap() -> None:
    """One heap for all threads, where the C library is glibc: a heap for each holds 1 MB that is never given back.

    Python's own lock keeps threads from waiting for one another here. To be called before there are threads.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def _hashes_of_its_own() -> bool:
    return all(any(find_spec(name) for name in names) for names in BUILT_IN_HASHES)
