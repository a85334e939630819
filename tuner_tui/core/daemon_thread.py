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
    """A call running in a daemon thread. An executor's thread would be waited for at the end of the program."""

    def __init__(self, call: Callable[[], ResultT]) -> None:
        self._call = call
        self._results: list[ResultT] = []
        self._error: Exception | None = None
        self._done = threading.Event()
        start_daemon_thread("daemon-call", self._run)

    def result(self, timeout_s: float) -> ResultT:
        """Returns or raises what the call did. Raises `TimeoutError` after `timeout_s`."""
        if not self._done.wait(timeout_s):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except Exception as error:  # noqa: BLE001  raised again by `result`
            self._error = error
        finally:
            self._done.set()


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
