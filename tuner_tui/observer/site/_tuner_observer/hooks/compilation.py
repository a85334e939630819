"""Hooks torch.compile: reports the start of every compilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..import_hooks import call_safely


def hook_compilation(module: Any, tell: Sequence[Callable[[], None]]) -> None:
    """`module` is `torch._dynamo.callback`; torch calls its callbacks around every compilation."""

    def compilation_began(*_: object) -> None:
        for each in tell:
            call_safely(each)

    module.on_compile_start(compilation_began)
