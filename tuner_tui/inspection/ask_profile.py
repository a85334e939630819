"""Asks ranks to profile their next steps, and looks at their stacks before: see `step_profile.py` of the observer."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from tuner_tui.core.procfs import PROC, ProcessStat, is_alive
from tuner_tui.core.text import single_line
from tuner_tui.inspection.ask import Answer, ask_processes, offers_of, open_answer
from tuner_tui.inspection.process_dump import ProcessDump, StackFrame
from tuner_tui.inspection.slow_step import HotLine, LineOf
from tuner_tui.inspection.step_trace import PlainSteps

LOOK_EVERY_S = 0.1
PATIENCE_S = 20.0
"""Seconds without any progress, in addition to those that the steps take, until a process is given up."""
MAX_TRACE_BYTES = 2**31
OPERATORS = re.compile(r"/torch/.*(?<!serialization\.py)$")
"""Files of torch that call operators."""


class ProfileAnswer(Struct, frozen=True):
    """What one rank answered: its trace and the steps before it, or `refusal`. `lost_s`: what it cost the training."""

    rank: int
    refusal: str | None = None
    trace: bytes = b""
    plain: PlainSteps | None = None
    lost_s: float = 0.0
    compiled: bool = False


def ask_for_profiles(
    processes: Mapping[int, ProcessStat],
    steps: int,
    step_s: float,
    tell: Callable[[str], None],
    patience_s: float = PATIENCE_S,
    memory: bool = False,
) -> tuple[ProfileAnswer, ...]:
    """Have each of `processes`, by its rank, profile `steps` optimizer steps of about `step_s` seconds.

    `memory`: record what holds their memory instead, which the observer writes to the run folder. `tell` receives
    what happens meanwhile. A process that makes no progress for `patience_s` is given up.
    """
    questions = [_Question(rank, process, steps, step_s, patience_s) for rank, process in sorted(processes.items())]
    try:
        for question in questions:
            question.ask(memory)
        state = ""
        while any(question.is_open() for question in questions):
            if questions[0].state != state:
                state = questions[0].state
                tell(state)
            time.sleep(LOOK_EVERY_S)
        return tuple(question.answer for question in questions if question.answer is not None)
    finally:
        for question in questions:
            question.close()


def report_profile(process: ProcessStat, report: Mapping[str, Any]) -> None:
    """Have the observer of `process` note the verdict among the events of the run, if it still trains."""
    answer = open_answer(offers_of(process.pid).get("profile"))
    if answer is not None:
        os.pwrite(answer.fd, json.dumps({"report": report}).encode(), 0)
        os.close(answer.fd)


class _Question(Struct):
    rank: int
    process: ProcessStat
    steps: int
    step_s: float
    patience_s: float
    state: str = "waiting"
    answer: ProfileAnswer | None = None
    _file: Answer | None = None
    _moved_s: float = field(default_factory=time.monotonic)

    def ask(self, memory: bool) -> None:
        offer = offers_of(self.process.pid).get("profile")
        if offer is None:
            self._refuse("it has finished no step yet, or its observer does not run")
            return
        self._file = open_answer(offer)
        if self._file is None:
            self._refuse("another profile of it is running")
            return
        os.pwrite(self._file.fd, json.dumps({"steps": self.steps, "memory": memory}).encode(), 0)

    def is_open(self) -> bool:
        if self.answer is None and self._file is not None:
            try:
                self._read(self._file)
            except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
                self._refuse(f"its answer cannot be read ({error})")
        return self.answer is None

    def _read(self, file: Answer) -> None:
        lines = [json.loads(line) for line in file.text().splitlines(keepends=True) if line.endswith("\n")]
        last = lines[-1] if lines else {}
        if last.get("state", self.state) != self.state:
            self.state, self._moved_s = last["state"], time.monotonic()
        if "refused" in last:
            self._refuse(single_line(str(last["refused"])))
        elif "recorded" in last:
            self.answer = ProfileAnswer(self.rank)
        elif "trace" in last:
            self.answer = self._received(last)
        elif not is_alive(self.process):
            self._refuse("it ended meanwhile")
        elif time.monotonic() - self._moved_s > self.patience_s + 4 * self.step_s * self.steps:
            self._refuse("it finishes no steps" if self.state == "waiting" else "its steps do not end")

    def _received(self, message: Mapping[str, Any]) -> ProfileAnswer:
        with open(f"{PROC}/{self.process.pid}/fd/{message['trace']}", "rb") as trace:  # noqa: PTH123 - no path of a file
            content = trace.read(MAX_TRACE_BYTES)
        plain = PlainSteps(message["step_s"], message["data_s"], message["device"])
        lost_s = message["lost_s"] + message["save_s"]
        return ProfileAnswer(self.rank, None, content, plain, lost_s, message["compiled"])

    def _refuse(self, reason: str) -> None:
        self.answer = ProfileAnswer(self.rank, reason)

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # the request is taken back, and its answer was read
                os.ftruncate(self._file.fd, 0)
            os.close(self._file.fd)


def watch_lines(
    processes: Collection[ProcessStat], ranks: Mapping[int, int], seconds: float
) -> Mapping[int, tuple[HotLine, ...]]:
    """Look at the stacks of `processes` for some seconds: the lines in which each rank and its loaders were seen."""
    seen: dict[int, Counter[tuple[LineOf, StackFrame]]] = defaultdict(Counter)
    looks: Counter[tuple[int, LineOf]] = Counter()
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        for dump in ask_processes(processes, ranks, timeout_s=0.5, cpu_window_s=0.0):
            rank = dump.rank if dump.rank is not None else ranks.get(dump.parent)
            if rank is None or not dump.threads:
                continue
            looks[rank, "data" if dump.rank is None else "training"] += 1
            seen[rank].update(_lines(dump))
    return {rank: tuple(_hot_lines(rank, counted, looks)) for rank, counted in seen.items()}


def _lines(dump: ProcessDump) -> Iterator[tuple[LineOf, StackFrame]]:
    inside = dump.in_data_set().main
    in_loader, innermost = len(inside.frames) < len(dump.main.frames), next(iter(dump.main.frames), None)
    frame = (inside if in_loader else dump.main).named_frame
    if in_loader:
        waits_for_workers = any(frame.function == "_try_get_data" for frame in dump.main.frames)
        frame = frame or (None if waits_for_workers else next(iter(inside.frames), None))
    elif innermost is not None and innermost.is_library and OPERATORS.search(innermost.file):
        return  # the profiler says more of it
    if frame is not None:
        yield ("data" if in_loader else "training"), frame


def _hot_lines(
    rank: int, seen: Mapping[tuple[LineOf, StackFrame], int], looks: Mapping[tuple[int, LineOf], int]
) -> Iterator[HotLine]:
    functions: dict[tuple[LineOf, str, str], Counter[StackFrame]] = defaultdict(Counter)
    for (of, frame), count in seen.items():
        functions[of, frame.file, frame.function][frame] += count
    for (of, _, _), lines in sorted(functions.items(), key=lambda item: -item[1].total()):
        # Of its workers' looks where it has any: in the process itself they would count twice.
        total = looks[rank, of] or looks[rank, "training"]
        yield HotLine(str(lines.most_common(1)[0][0]), min(1.0, lines.total() / total), of)
