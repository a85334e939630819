"""Notice torch.compile at work; the next step ends that phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .importing import call_safely


def watch(module: Any, tell: Sequence[Callable[[], None]]) -> None:
    """`module` is `torch._dynamo.callback`; torch calls its callbacks around every compilation."""

    def compilation_began(*_: object) -> None:
        for each in tell:
            call_safely(each)

    module.on_compile_start(compilation_began)
