"""Name the phase in which torch.compile is at work; the next batch or step ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import Session


def watch(module: Any, session: Session) -> None:
    """`module` is `torch._dynamo.callback`; torch calls its callbacks around every compilation."""

    def compilation_began(*_: object) -> None:
        if session.phase in ("starting", "training"):
            session.enter("compiling")

    module.on_compile_start(compilation_began)
