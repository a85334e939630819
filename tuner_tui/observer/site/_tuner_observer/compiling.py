"""Name the phase in which torch.compile is at work; the next step ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .importing import call_safely

if TYPE_CHECKING:
    from .counters import Counters


def watch(module: Any, counters: Counters) -> None:
    """`module` is `torch._dynamo.callback`; torch calls its callbacks around every compilation."""

    def compilation_began(*_: object) -> None:
        call_safely(counters.compiling)

    module.on_compile_start(compilation_began)
