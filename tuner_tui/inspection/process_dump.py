"""Where a process is: the stacks of its threads, and what `torch.distributed` has recorded of its collectives.

Decoders of the two texts that a process of a training writes when it is asked: that of `faulthandler`, and the JSON of
PyTorch's flight recorder (versions 2.x of the format).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.text import single_line

THREAD = re.compile(r"^(?:(?:Current thread|Thread) (?P<id>0x[0-9a-f]+).*|Stack )\(most recent call first\):")
FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
NAMELESS = re.compile(r"<(?!module>)")
LIBRARY = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|/lib(?:64)?/python\d|^<(?!ipython-input)|/_tuner_observer/|(?:[/\\]L|(?:onda\d?|envs\\[^\\]+|venv)\\l)ib[/\\]\w+\.py"
    r"|/sitecustomize\.py$|unsloth_compiled_cache|[/\\](?:bin|Scripts)[/\\][\w.-]+(?:\.exe[/\\]__main__\.py)?$|\.p(?:yx|xd|xi)$"
    r"|^(?:copy|pickle|runpy|threading|subprocess|contextlib|functools|(?:multiprocessing|concurrent|importlib|asyncio)/[\w/]+)\.py$"
)
"""In the path of a file that is not the user's own: of a package, of Python, or generated."""


class StackFrame(Struct, frozen=True):
    """One call; `line` is None where the interpreter could not say."""

    file: str
    line: int | None
    function: str

    @property
    def is_library(self) -> bool:
        """Whether it belongs to an installed package or to Python."""
        return LIBRARY.search(self.file) is not None

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line or '?'})"


class ThreadStack(Struct, frozen=True):
    """The calls of a thread, the innermost first."""

    frames: tuple[StackFrame, ...]

    @property
    def own_frame(self) -> StackFrame | None:
        """The innermost call in the user's own code."""
        return next((frame for frame in self.frames if not frame.is_library), None)

    @property
    def named_frame(self) -> StackFrame | None:
        """The innermost call of a function of the user's own that has a name, which a comprehension has not."""
        user_frames = [frame for frame in self.frames if not frame.is_library]
        return next((frame for frame in user_frames if not NAMELESS.match(frame.function)), self.own_frame)


class RecordedCollective(Struct, frozen=True):
    """One entry of the recorder: the `number` of the collective in its process group, and what was asked for.

    `created_s`: seconds since the epoch. `done`: the process is past it.
    """

    group: str
    number: int
    operation: str
    sizes: str
    types: str
    created_s: float
    done: bool

    def __str__(self) -> str:
        return f"{self.operation} no. {self.number}"


class RecordedCollectives(Struct, frozen=True):
    """What one rank has recorded. `groups`: the ranks of each process group, empty where the recorder does not say."""

    rank: int
    world_size: int
    entries: tuple[RecordedCollective, ...]
    groups: Mapping[str, tuple[int, ...]]

    def pending(self) -> RecordedCollective | None:
        """The oldest collective that has not ended."""
        return min((entry for entry in self.entries if not entry.done), key=lambda entry: entry.created_s, default=None)

    def entry(self, group: str, number: int) -> RecordedCollective | None:
        """The collective with this number, None if it is not on record."""
        entries = (entry for entry in self.entries if entry.group == group and entry.number == number)
        return next(entries, None)


class ProcessDump(Struct, frozen=True):
    """One process. `threads`: the main thread first; empty if the process did not answer, which `silence` explains.

    `rank` is None for a process that is no rank. `state` is that of `/proc/PID/stat`, `cpu_share` the processor time
    it used meanwhile, or waited for on a busy machine, as a share of one core. `kernel_wait` is the function of the
    kernel that the main thread waits in, such as `hrtimer_nanosleep`; empty if it runs or the kernel does not say.
    """

    pid: int
    parent: int
    name: str
    state: str
    cpu_share: float
    threads: tuple[ThreadStack, ...] = ()
    rank: int | None = None
    collectives: RecordedCollectives | None = None
    silence: str | None = None
    kernel_wait: str = ""

    @property
    def is_loader_worker(self) -> bool:
        """Whether it prepares batches for a DataLoader."""
        return any(frame.function == "_worker_loop" for thread in self.threads[:1] for frame in thread.frames)

    def in_data_set(self) -> ProcessDump:
        """The same with the calls of the main thread that a DataLoader or its worker has made."""
        # A forked worker has the calls of its parent on its stack, too.
        frames = self.main.frames
        inner = next((n for n, frame in enumerate(frames) if "/torch/utils/data/" in frame.file), len(frames))
        return replace(self, threads=(ThreadStack(frames[:inner]), *self.threads[1:]))

    @property
    def main(self) -> ThreadStack:
        """The main thread; without frames if the process did not answer."""
        return self.threads[0] if self.threads else ThreadStack(())


def parse_stacks(text: str) -> tuple[ThreadStack, ...]:
    """The threads of `faulthandler`'s text, the main thread first. Threads of the observer itself are left out.

    A process may answer twice: a thread counts as it is at last, and the main thread alone only until all are there.
    """
    threads: dict[str | None, list[StackFrame]] = {}
    frames: list[StackFrame] = []
    for line in text.splitlines():
        if header := THREAD.match(line):
            threads.pop(header["id"], None)
            threads.pop(None, None)
            threads[header["id"]] = frames = []
            continue
        match = FRAME.match(line)
        if match and not match["file"].endswith("_tuner_observer/inspection.py"):
            number = None if match["line"] == "???" else int(match["line"])
            frames.append(StackFrame(match["file"], number, match["function"]))
    # The interpreter lists its threads from the newest to the oldest, which is the main thread.
    return tuple(ThreadStack(tuple(frames)) for frames in reversed(threads.values()) if frames)


def parse_collectives(text: str) -> RecordedCollectives | None:
    """Decode the answer of a rank; None for one that is torn or of an unknown form, or without a recorder."""
    try:
        answer = json.loads(text)
        record = answer["record"]
        if record is None:
            return None
        members = {str(name): config.get("ranks", "") for name, config in record.get("pg_config", {}).items()}
        groups = {name: tuple(map(int, re.findall(r"\d+", ranks))) for name, ranks in members.items()}
        entries = tuple(_entries(record["entries"]))
        return RecordedCollectives(int(answer["rank"]), int(answer["world_size"]), entries, groups)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _entries(entries: Sequence[Mapping[str, Any]]) -> Iterator[RecordedCollective]:
    for entry in entries:
        if entry.get("is_p2p"):  # both sides of a pair count for themselves
            continue
        yield RecordedCollective(
            group=str(entry["process_group"][0]),
            number=int(entry["collective_seq_id"]),
            operation=single_line(str(entry["profiling_name"])).rpartition(":")[2],
            sizes=json.dumps(entry.get("input_sizes")),
            types=single_line(", ".join(map(str, entry.get("input_dtypes") or ()))),
            created_s=int(entry["time_created_ns"]) / 1e9,
            done=bool(entry.get("retired")) or entry.get("state") == "completed",
        )
