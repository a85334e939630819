"""Keeps modules that the screen never uses out of its memory."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, cast

OPENSSL = ("ssl", "_hashlib")
OPENSSL_USERS = ("asyncio", "hashlib", "hmac")
COMPRESSION = ("bz2", "lzma")
COMPRESSION_USERS = ("shutil",)
DEFERRED = {"textual.types": "IgnoreReturnCallbackType", "difflib": "get_close_matches"}
"""Modules by name, and what of each is asked for while others are imported: for annotations, for words of errors."""
PLUGIN_LOADER = "pydantic.plugin._loader"
M_ARENA_MAX = -8
"""A parameter of glibc's mallopt(3)."""
BUILT_IN_HASHES = (("_md5",), ("_sha1",), ("_sha2", "_sha512"), ("_sha3",), ("_blake2",))


def reduce_startup_memory() -> None:
    """All that follows. To be called before Textual, asyncio and pydantic are imported."""
    skip_openssl()
    skip_compression()
    skip_pydantic_plugins()
    defer_modules()
    use_single_malloc_arena()


def skip_openssl() -> None:
    """Loads asyncio and hashlib without OpenSSL: 5 MB and some milliseconds for connections that nobody opens.

    Both are made to do without it, hashlib where Python was built with hashes of its own; elsewhere all stays as it
    is. `import ssl` works again afterwards.
    """
    if _has_builtin_hashes():
        _import_without(OPENSSL, OPENSSL_USERS)


def skip_compression() -> None:
    """Loads shutil without bzip2 and xz, 0.4 MB for archives that nobody packs: it is made to do without them."""
    _import_without(COMPRESSION, COMPRESSION_USERS)


def _import_without(names: Sequence[str], users: Sequence[str]) -> None:
    """Imports `users` as if there were no modules `names`; these can be imported again afterwards."""
    if any(name in sys.modules for name in names):
        return
    modules = cast("dict[str, Any]", sys.modules)
    modules.update(dict.fromkeys(names))  # None: an import of it fails
    try:
        for user in users:
            import_module(user)
    finally:
        for name in names:
            del modules[name]


def defer_modules() -> None:
    """Puts a likeness in the place of modules that are imported for one name only, which is hardly ever used: 0.6 MB.

    Who calls it, or asks for anything else of them, gets that from the module itself.
    """
    for name, asked in DEFERRED.items():
        if name not in sys.modules:
            sys.modules[name] = likeness = _DeferredModule(name)
            setattr(likeness, asked, partial(likeness.call, asked))


class _DeferredModule(ModuleType):
    """A module that is loaded when something is asked of it that it does not have."""

    def call(self, name: str, *given: Any, **named: Any) -> Any:
        """What the module's own `name` answers."""
        return self.__getattr__(name)(*given, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def skip_pydantic_plugins() -> None:
    """Builds models without looking for plugins of pydantic's among all installed packages.

    The screen's models need none; what looks for them takes 1.6 MB, and reads the metadata of every package.
    """
    if PLUGIN_LOADER not in sys.modules:
        loader: Any = ModuleType(PLUGIN_LOADER)
        loader.get_plugins = tuple
        sys.modules[PLUGIN_LOADER] = loader


def use_single_malloc_arena() -> None:
    """One heap for all threads, where the C library is glibc: a heap for each holds 1 MB that is never given back.

    Python's own lock keeps threads from waiting for one another here. To be called before there are threads.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def _has_builtin_hashes() -> bool:
    return all(any(find_spec(name) for name in names) for names in BUILT_IN_HASHES)
