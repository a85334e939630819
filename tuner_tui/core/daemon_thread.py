"""Daemon threads: calls that may block for ever without delaying the end of the program."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

ResultT = TypeVar("ResultT")


def start_daemon_thread(name: str, work: Callable[[], None]) -> None:
    """Runs `work` in a daemon thread."""
    threading.Thread(target=work, name=name, daemon=True).start()


class DaemonCall(Generic[ResultT]):
    """A call under way in a thread of its own (concurrent.futures would wait for it at the program's end)."""

    def __init__(self, call: Callable[[], ResultT]) -> None:
        self._call = call
        self._answer: list[ResultT] = []
        self._error: Exception | None = None
        self._done = threading.Event()
        start_daemon_thread("driver-question", self._run)

    def answer(self, timeout_s: float) -> ResultT:
        """What the call returned or raised; TimeoutError when it has done neither within `timeout_s`."""
        if not self._done.wait(timeout_s):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._answer[0]

    def _run(self) -> None:
        try:
            self._answer.append(self._call())
        except Exception as error:  # noqa: BLE001  raised again where the answer is asked for
            self._error = error
        finally:
            self._done.set()


def start_call(call: Callable[[], ResultT]) -> DaemonCall[ResultT]:
    """Starts the call."""
    return DaemonCall(call)


async def to_daemon_thread(call: Callable[[], ResultT]) -> ResultT:
    """Awaits `call` in a daemon thread and returns its result, like `asyncio.to_thread`.

    The thread is not joined: if the awaiting task is cancelled or the program ends, the call is abandoned.
    """
    import asyncio
    from contextlib import suppress

    loop = asyncio.get_running_loop()
    done: asyncio.Future[ResultT] = loop.create_future()

    def finish(result: ResultT | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as caught:  # noqa: BLE001  raised where it is awaited
            error = caught
        with suppress(RuntimeError):  # the loop is closed: nothing awaits the result any more
            loop.call_soon_threadsafe(finish, result, error)

    start_daemon_thread("awaited-call", work)
    return await done
