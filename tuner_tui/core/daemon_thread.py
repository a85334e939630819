"""Daemon threads: calls that may block for ever without delaying the end of the program."""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

ResultT = TypeVar("ResultT")


def start_daemon_thread(name: str, work: Callable[[], None]) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()


def daemon_call(call: Callable[[], ResultT]) -> Future[ResultT]:
    """Starts `call` in a daemon thread. An executor's thread would be waited for at the end of the program."""
    from concurrent.futures import Future  # imports logging, which the supervisor does not need

    future: Future[ResultT] = Future()
    future.set_running_or_notify_cancel()  # a call that runs cannot be cancelled

    # Any exception, KeyboardInterrupt too, belongs to whoever asks for the result; in a thread it would be printed.
    def work() -> None:
        sys.settrace(threading.gettrace())  # as `Thread` does, for debuggers, coverage and profilers
        sys.setprofile(threading.getprofile())
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  raised where the result is asked for
            future.set_exception(error)

    # `Thread.start` waits until the new thread has run, which takes long where others hold the interpreter's lock: an
    # event loop that starts a call would stand still meanwhile.
    _thread.start_new_thread(work, ())
    return future


async def to_daemon_thread(call: Callable[[], ResultT]) -> ResultT:
    """Awaits `call` in a daemon thread and returns its result, like `asyncio.to_thread`.

    The thread is not joined: if the awaiting task is cancelled or the program ends, the call is abandoned.
    """
    import asyncio

    return await asyncio.wrap_future(daemon_call(call))
