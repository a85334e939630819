"""Awaitable calls on daemon threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


async def to_daemon_thread(call: Callable[[], T], name: str = "errand") -> T:
    """The result of `call`, made on a daemon thread of its own; raises what it raised.

    Unlike an executor's, this thread is waited for by nobody: where the awaiting task is cancelled or the program
    ends, the call is left to itself.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
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
        except BaseException as caught:  # noqa: BLE001  handed to whoever awaits
            error = caught
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(finish, result, error)

    Thread(target=work, name=f"tuner-{name}", daemon=True).start()
    return await done
