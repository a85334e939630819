"""Passes on keys, clicks and pastes one at a time, however fast they come.

Textual passes a key up the tree of widgets, and then what its action posts, while the next key goes to whatever has the
focus by then. Of two quick keys the second is so taken by the screen over which the first is about to open a dialog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.events import Event, Key, MouseEvent, MouseUp, Paste

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from textual.app import App
    from textual.dom import DOMNode
    from textual.message_pump import MessagePump

MAX_WAIT_S = 2.0
"""How long input waits for a request of the user that hangs, such as one that reads a disk which is gone."""
PASSES = 2
"""A key goes up the tree to the app, which runs the action; what the action posts goes up in the second pass."""
Request = Callable[..., Any]
_served: ContextVar[Request | None] = ContextVar("_served", default=None)


class UserRequests:
    """Requests of the user under way. Input waits for one until it shows a screen, and after that until it ends."""

    def __init__(self) -> None:
        self._unanswered: set[Request | None] = set()
        self._awaited: set[Request | None] = set()
        self._answered = asyncio.Event()

    def accept(self, request: Request) -> bool:
        """Return whether to serve a request: not if the same one has no answer yet."""
        if request in self._unanswered:
            return False
        self._unanswered.add(request)
        self._awaited.add(request)
        return True

    async def serve(self, request: Request, work: Awaitable[None]) -> None:
        """Do the work of an accepted request."""
        _served.set(request)
        try:
            await work
        finally:
            self.answer()

    def answer(self) -> None:
        """Let input through: the request that calls this has shown a screen, or a note that it takes a while."""
        self._unanswered.discard(_served.get())
        self._awaited.discard(_served.get())
        self._answered.set()

    def resume(self) -> None:
        """The screen of the request that calls this is gone, and another one may follow."""
        if (request := _served.get()) is not None:
            self._unanswered.add(request)
            self._awaited.add(request)

    async def all_answered(self) -> bool:
        """Wait until no request is awaited. Returns whether one was."""
        waited = bool(self._awaited)
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                while self._awaited:
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            self._awaited.clear()
        return waited


class OrderedInput:
    """Hands on each event with `hand_on` once everything is done that the one before led to."""

    def __init__(self, app: App[Any], requests: UserRequests, hand_on: Callable[[Event], Awaitable[None]]) -> None:
        self._app = app
        self._requests = requests
        self._hand_on = hand_on
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._started = False
        self.unhandled = 0
        """Events that wait, or whose consequences are not done."""

    def put(self, event: Event) -> None:
        """Add an event that arrived."""
        self.unhandled += 1
        self._events.put_nowait(event)
        if not self._started:
            self._started = True
            self._app.run_worker(self._hand_on_all(), exit_on_error=True)

    async def _hand_on_all(self) -> None:
        while True:
            event = await self._events.get()
            if not self._app._exit and self._app.screen_stack:  # else nothing is left to take it
                target = self._target(event)
                await self._hand_on(event)
                if isinstance(event, Key | Paste | MouseUp):
                    await self._all_done(target)
            self.unhandled -= 1

    def _target(self, event: Event) -> DOMNode:
        from textual.errors import NoWidget

        if isinstance(event, MouseEvent):
            with suppress(NoWidget):
                return self._app.get_widget_at(event.x, event.y)[0]
        return self._focused()

    def _focused(self) -> DOMNode:
        """The node that gets a key; the app itself while it closes and has no screen any more."""
        screens = self._app.screen_stack
        return (screens[-1].focused or screens[-1]) if screens else self._app

    async def _all_done(self, target: DOMNode) -> None:
        waited = True
        while waited:
            for _ in range(PASSES):
                await _pass_up(target.ancestors_with_self)
                target = self._focused()
            waited = await self._requests.all_answered()


async def _pass_up(pumps: Sequence[MessagePump]) -> None:
    """Wait until each of `pumps` has handled what was in its queue when the one before had, or has ended."""
    for pump in pumps:
        done = asyncio.get_running_loop().create_future()
        if pump.call_later(partial(_finish, done)):
            await asyncio.wait([done, *filter(None, [pump._task])], return_when=asyncio.FIRST_COMPLETED)


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
