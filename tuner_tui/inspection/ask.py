"""Asks processes where they are: sends the signal of their stack dump, and wakes the thread for the collectives.

What a process offers stands in the names of its files in memory, in `/proc/PID/fd`: see `inspection.py` of the
observer. A process that offers nothing is not signalled, since an unexpected signal would end it.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Collection, Mapping
from contextlib import suppress

from msgspec import Struct

from tuner_tui.core.file_locks import LockedError, lock_descriptor
from tuner_tui.core.files import closing_descriptor
from tuner_tui.core.procfs import PROC, ProcessStat, list_pids, read_proc_text, read_stat, send_signal
from tuner_tui.inspection.process_dump import ProcessDump, parse_collectives, parse_stacks

OFFER = re.compile(r"^/memfd:tuner-(?P<kind>stacks|collectives|profile):(?P<number>\d+):(?P<pid>\d+) \(deleted\)$")
TIMEOUT_S = 2.0
LOOK_EVERY_S = 0.02
SAFE_S = 0.3
"""In which a main thread that runs Python answers. One that does not is in C, where its stack stays as it is."""
SAFE_CPU_S = 0.1
"""What it has to have run of that on a machine without a free core."""
CPU_WINDOW_S = 0.25
"""Processor time is counted in ticks of 10 ms."""
MAX_ANSWER_BYTES = 32 * 2**20


def ask_processes(
    processes: Collection[ProcessStat],
    ranks: Mapping[int, int],
    timeout_s: float = TIMEOUT_S,
    cpu_window_s: float = CPU_WINDOW_S,
) -> tuple[ProcessDump, ...]:
    """Ask `processes` at the same time and wait at most `timeout_s` seconds for the answers.

    `ranks`: the rank of each pid that is one. `cpu_window_s`: seconds after the answers in which processor time is
    counted.
    """
    began_s = time.monotonic()
    questions = [_Question(process) for process in processes]
    try:
        for question in questions:
            question.ask()
        while any(question.is_open() for question in questions) and time.monotonic() - began_s < timeout_s:
            time.sleep(LOOK_EVERY_S)
            if time.monotonic() - began_s > SAFE_S:
                for question in questions:
                    question.insist()
        answered_s = time.monotonic()  # to answer, a process that waits had to run
        while time.monotonic() - answered_s < cpu_window_s:
            time.sleep(LOOK_EVERY_S)
            for question in questions:
                question.look()
        return tuple(question.dump(ranks, time.monotonic() - began_s) for question in questions)
    finally:
        for question in questions:
            question.close()


class Answer(Struct):
    """A file in memory, open and locked against another reader."""

    fd: int
    bytes_seen: int = 0

    def text(self) -> str:
        # The process writes on at its own position: what was truncated before is a hole.
        size = os.fstat(self.fd).st_size
        if not size:
            return ""
        start = os.lseek(self.fd, 0, os.SEEK_DATA)
        data = os.pread(self.fd, min(size - start, MAX_ANSWER_BYTES), start)
        return data.lstrip(b"\0").decode("utf-8", "replace")


class _Question(Struct):
    process: ProcessStat
    stacks: Answer | None = None
    collectives: Answer | None = None
    silence: str | None = None
    unsafe_signal: int | None = None
    main_cpu_s: float = 0.0
    looks: int = 0
    runnable: int = 0

    def ask(self) -> None:
        offers = offers_of(self.process.pid)
        self.stacks, self.collectives = (open_answer(offers.get(kind)) for kind in ("stacks", "collectives"))
        if self.stacks is None:
            self.silence = "it has no observer, belongs to another user, or uses the signal itself"
            return
        if self.process.state in "Tt":
            self.silence = "it is stopped (SIGSTOP, or a debugger)"
            return
        if self.collectives is not None:
            _wake(self.process.pid, offers["collectives"][1])
        self.unsafe_signal = offers["stacks"][1]
        main = read_stat(self.process.pid, self._threads)
        self.main_cpu_s = 0.0 if main is None else main.cpu_s
        send_signal(self.process, self.unsafe_signal + 1)

    def insist(self) -> None:
        """Have the stacks written while the main thread is in C, once, if they are still missing."""
        if self.unsafe_signal is None or self.stacks is None or os.fstat(self.stacks.fd).st_size:
            return
        main = read_stat(self.process.pid, self._threads)
        if main is None or (main.state == "R" and main.cpu_s - self.main_cpu_s < SAFE_CPU_S):
            return
        send_signal(self.process, self.unsafe_signal + 2 * self._other_threads_run())
        self.unsafe_signal = None

    @property
    def _threads(self) -> str:
        return f"{PROC}/{self.process.pid}/task"

    def _other_threads_run(self) -> bool:
        try:
            others = [read_stat(tid, self._threads) for tid in list_pids(self._threads) if tid != self.process.pid]
        except OSError:  # it has ended
            return False
        return any(thread is not None and thread.state == "R" for thread in others)

    def is_open(self) -> bool:
        """Whether an answer is still missing or growing."""
        if self.silence is not None or self.stacks is None:
            return False
        size = os.fstat(self.stacks.fd).st_size
        grows, self.stacks.bytes_seen = size != self.stacks.bytes_seen or not size, size
        # A thread that holds the interpreter lock keeps the record of collectives back, but not the stacks.
        return grows or (self.collectives is not None and not self.collectives.text().endswith("\n"))

    def look(self) -> None:
        """Count whether the main thread runs, or could where the machine has no core for it."""
        stat = read_stat(self.process.pid)
        self.looks += 1
        self.runnable += stat is not None and stat.state == "R"

    def dump(self, ranks: Mapping[int, int], seconds: float) -> ProcessDump:
        pid = self.process.pid
        now = read_stat(pid)
        if now is None or now.start_ticks != self.process.start_ticks or not now.is_running:
            return ProcessDump(pid, self.process.parent, self.process.comm, "X", 0.0, silence="it has ended")
        threads = () if self.stacks is None else parse_stacks(self.stacks.text())
        collectives = None if self.collectives is None else parse_collectives(self.collectives.text())
        silence = self.silence
        if not threads and silence is None:
            silence = "it did not answer" + (": it waits for a disk or a driver (state D)" if now.state == "D" else "")
        return ProcessDump(
            pid,
            now.parent,
            now.comm,
            now.state,
            max((now.cpu_s - self.process.cpu_s) / seconds, self.runnable / max(1, self.looks)),
            threads,
            ranks.get(pid, None if collectives is None else collectives.rank),
            collectives,
            silence,
            read_proc_text(PROC / str(pid) / "wchan"),
        )

    def close(self) -> None:
        for answer in (self.stacks, self.collectives):
            if answer is not None:
                os.close(answer.fd)


def offers_of(pid: int) -> dict[str, tuple[str, int]]:
    """Path and number (signal or descriptor) of each file that the process offers, by its kind."""
    offers = {}
    try:
        descriptors = os.listdir(f"{PROC}/{pid}/fd")  # noqa: PTH208
    except OSError:
        return {}
    for descriptor in descriptors:
        path = f"{PROC}/{pid}/fd/{descriptor}"
        try:
            match = OFFER.match(os.readlink(path))  # noqa: PTH115
        except OSError:
            continue
        if match and int(match["pid"]) == pid:  # a forked child has the files of its parent, too
            offers[match["kind"]] = path, int(match["number"])
    return offers


def open_answer(offer: tuple[str, int] | None) -> Answer | None:
    """Open and empty the file; None if there is none, or while somebody else asks."""
    if offer is None:
        return None
    try:
        fd = os.open(offer[0], os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        lock_descriptor(fd, offer[0], 2 * TIMEOUT_S)  # another reader holds it for two seconds at most
        os.ftruncate(fd, 0)
    except (LockedError, OSError):
        os.close(fd)
        return None
    return Answer(fd)


def _wake(pid: int, descriptor: int) -> None:
    try:
        fd = os.open(f"{PROC}/{pid}/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENXIO, errno.EACCES):
            raise
        return
    with suppress(OSError), closing_descriptor(fd):  # the thread may be gone
        os.write(fd, b"?")
