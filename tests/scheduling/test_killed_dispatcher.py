"""A dispatcher that is killed at any moment: the run of its entry starts exactly once."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from tests.scheduling.conftest import QueueBox
from tuner_tui.runs.store.supervisor_state import read_supervisor_state
from tuner_tui.scheduling.admission import Place
from tuner_tui.scheduling.dispatcher import Dispatcher
from tuner_tui.scheduling.entry import QueueEntry

MOST_CHANGES = 200
CHANGES = frozenset({"os.rename", "os.mkdir", "os.rmdir", "subprocess.Popen"})


class EmptyCard:
    """A machine with one card that nobody uses."""

    ended_runs = 0

    def read(self, entries: Sequence[QueueEntry]) -> tuple[Place, ...]:
        return (Place("GPU-fake-0", "GPU 0", total_bytes=2**40, used_bytes=0),)


def test_killed_before_each_change_the_run_starts_exactly_once(tmp_path: Path) -> None:
    """The dispatcher is killed before its first change of a file or start of a process, its second, and so on, until
    it gets through."""
    for number in range(MOST_CHANGES):
        box = QueueBox(tmp_path / str(number))
        box.state.mkdir(mode=0o700)
        box.add(box.request(10, 0.0))
        status = dispatch_until(box, number)
        box.play(box.is_empty, lambda box=box: age_unstarted(box))  # type: ignore[misc]
        assert len(box.cards.starts()) == 1, f"killed before change {number}"
        assert sum(folder.record.exists() for folder in box.runs()) == 1
        box.close()
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert 10 < number < MOST_CHANGES - 1


def dispatch_until(box: QueueBox, last: int) -> int:
    """Dispatch in another process, which kills itself before its change number `last`; return how it ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn where pytest has threads
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    seen = 0

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event == "open":
            flags = arguments[2]
            if (
                not isinstance(flags, int)
                or not flags & (os.O_WRONLY | os.O_RDWR)
                or "/state/" not in str(arguments[0])
            ):
                return
        elif event not in CHANGES:
            return
        if seen == last:
            os.kill(os.getpid(), signal.SIGKILL)
        seen += 1

    dispatcher = Dispatcher(box.queue, EmptyCard())
    sys.addaudithook(watch)
    while not dispatcher.step():
        pass
    os._exit(0)


def age_unstarted(box: QueueBox) -> None:
    """Let the seconds pass that a supervisor has to come up."""
    for folder in box.runs():
        if read_supervisor_state(folder.state) is None:
            try:
                os.utime(folder.path, (0, 0))
            except FileNotFoundError:
                continue
