"""Saves memory of the screen: 5 MB of OpenSSL, which it never uses, and up to 5 MB of heaps of threads."""

from __future__ import annotations

import ctypes
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

OPENSSL = ("ssl", "_hashlib")
OPENSSL_USERS = ("asyncio", "hashlib", "hmac")
BUILTIN_HASHES = (("_md5",), ("_sha1",), ("_sha2", "_sha512"), ("_sha3",), ("_blake2",))
M_ARENA_MAX = -8
"""A parameter of glibc's mallopt(3)."""


def reduce_startup_memory() -> None:
    """Do without OpenSSL, and make all threads share one heap. Call it before Textual and asyncio are imported."""
    skip_openssl()
    # By default each thread gets an arena whose memory is never returned. Python's lock makes contention unlikely.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc
        mallopt(M_ARENA_MAX, 1)


def skip_openssl() -> None:
    """Import asyncio and hashlib without OpenSSL, for which both have fallbacks. The screen opens no connections.

    Does nothing where OpenSSL is loaded already or Python lacks its
    own hashes. `import ssl` works again afterwards.
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


def _has_builtin_hashes() -> bool:
    return all(any(find_spec(name) for name in names) for names in BUILTIN_HASHES)
