"""Hooks torch.compile: reports the start of every compilation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..import_hooks import call_before, call_safely

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def hook_compilation(module: Any, callbacks: Sequence[Callable[[], None]]) -> None:
    """Call `callbacks` before every compilation. `module` is `torch._dynamo.callback`."""

    def compilation_began(*_: object) -> None:
        for each in callbacks:
            call_safely(each)

    module.on_compile_start(compilation_began)


def hook_compiled_modules(module: Any, before: Callable[[], None]) -> None:
    """Call `before` before a module is made that compiles another. `module` is `torch._dynamo.eval_frame`."""
    if hasattr(module, "OptimizedModule"):
        call_before(module.OptimizedModule, "__init__", lambda *_, **__: before())


def is_compiling_function() -> Callable[[], bool]:
    """torch's test for a trace in progress: a traced optimizer step must not contain the hooks."""
    compiler = getattr(sys.modules["torch"], "compiler", None)
    for name in ("is_dynamo_compiling", "is_compiling"):
        test: Callable[[], bool] | None = getattr(compiler, name, None)
        if test is not None:
            return test
    return lambda: False
