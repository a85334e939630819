"""Reads a long event file quickly: all story events, counters at even distances, and the end in full.

Story events are found by the first bytes of their lines; counters are cumulative, so any subset of them will do.
"""

from __future__ import annotations

import errno
import heapq
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.core.files import opened_regular
from tuner_tui.core.line_files import LineTail
from tuner_tui.runs.events.types import STORY_PREFIX, Event, Launched, Started
from tuner_tui.runs.store.codec import decode_events
from tuner_tui.runs.store.folder import RunFolder

PROBE_BYTES = 2048
"""Read at each place: at least one whole line of counters, which has 300 to 500 bytes."""
CHUNK_BYTES = 1 << 20
MAX_STORY_LINES = 20_000
"""A limit for broken files; story events beyond it are skipped, except in the part at the end that is read in full."""


class Sampling(Struct, frozen=True):
    """How much of the events of a run is read; each of its files gets an equal share, so that 64 ranks open as fast as
    one.

    Files are read in full if all of them together have at most `whole_bytes`; of larger ones the last `end_bytes`,
    and before them the story events, where wanted, and the counters at `probes` places. A file gets at least the last
    `min_end_bytes` and `min_probes` places.
    """

    whole_bytes: int
    end_bytes: int
    min_end_bytes: int
    probes: int = 0
    min_probes: int = 0
    probe_bytes: int = PROBE_BYTES
    story: bool = True

    def shared_by(self, files: int) -> Sampling:
        """The share of one of that many files."""
        files = max(1, files)
        return replace(
            self,
            whole_bytes=self.whole_bytes // files,
            end_bytes=max(self.min_end_bytes, self.end_bytes // files),
            probes=max(self.min_probes, self.probes // files),
        )


HISTORY = Sampling(whole_bytes=2 << 20, end_bytes=256 << 10, min_end_bytes=8 << 10, probes=500, min_probes=6)
"""For the plots of a run."""
NEWEST = Sampling(whole_bytes=32 << 10, end_bytes=16 << 10, min_end_bytes=2 << 10)
"""For the newest state of a run."""
END = Sampling(whole_bytes=4 << 10, end_bytes=4 << 10, min_end_bytes=2 << 10, story=False)
"""For how a run ended."""
SPREAD = Sampling(
    whole_bytes=4 << 20, end_bytes=32 << 10, min_end_bytes=0, probes=120, probe_bytes=32 << 10, story=False
)
"""For the samples of a run, whose lines are longer."""


def sampled_new_lines(tail: LineTail, files: int = 1, sampling: Sampling = HISTORY) -> Iterator[bytes]:
    """The lines since the last call; of a long file that is read for the first time, a sample.

    `files` is the number of event files of the run.
    """
    share = sampling.shared_by(files)
    if tail.offset == 0 and tail.size() > share.whole_bytes:
        end = _last_line_end(tail.path)
        yield from _sampled_lines(tail.path, end, share)
        tail.skip_to(end)
    yield from tail.lines()


def _sampled_lines(path: Path, size: int, share: Sampling) -> Iterator[bytes]:
    """A sample of the first `size` bytes of the file, in order, which ends with the last whole line."""
    with suppress(OSError), opened_regular(path) as descriptor:
        block = os.pread(descriptor, CHUNK_BYTES, max(0, size - share.end_bytes))
        end = max(0, size - share.end_bytes) + block.find(b"\n") + 1
        story = _story(descriptor, end) if share.story else ()
        yield from (line for _, line in heapq.merge(story, _probes(descriptor, end, share)))
        yield from os.pread(descriptor, size - end, end).split(b"\n")


def _last_line_end(path: Path) -> int:
    """The offset after the last newline of the file; a place in the last line if that is longer than a chunk."""
    try:
        with opened_regular(path) as descriptor:
            size = os.fstat(descriptor).st_size
            start = max(0, size - CHUNK_BYTES)
            return start + os.pread(descriptor, size - start, start).rfind(b"\n") + 1
    except OSError:
        return 0


# How a long file is sampled. The end is read in full. Before it, a search for the first bytes of story lines goes
# through the file in chunks, at the speed of memory, without parsing anything; and small blocks at even distances give
# a few whole lines of counters each. Both are merged by their offsets, so that events come in the order in which they
# were written. A run of a million events opens in 0.4 s so (tests/benchmarks/RESULTS.md).


def _story(descriptor: int, end: int) -> Iterator[tuple[int, bytes]]:
    needle = b"\n" + STORY_PREFIX
    count = 0
    offset = 0
    carried = b"\n"  # so that a story in the very first line is found like every other
    while offset < end and count < MAX_STORY_LINES:
        data = _next_data(descriptor, offset, end)
        if data > offset:  # a hole holds no line, and may be of any size
            offset, carried = data, b""
        chunk = carried + os.pread(descriptor, min(CHUNK_BYTES, end - offset), offset)
        start = offset - len(carried)
        offset = start + len(chunk)
        newline = chunk.find(needle)
        while newline >= 0:
            count += 1
            yield start + newline + 1, _line_at(descriptor, start + newline + 1)
            newline = chunk.find(needle, newline + 1)
        carried = chunk[-(len(needle) - 1) :]  # a needle may lie across two chunks


def _next_data(descriptor: int, offset: int, end: int) -> int:
    """The first offset from `offset` on that is not in a hole of the file."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        return end if error.errno == errno.ENXIO else offset  # without SEEK_DATA all of it is data


def _probes(descriptor: int, end: int, share: Sampling) -> Iterator[tuple[int, bytes]]:
    for number in range(share.probes):
        offset = end * number // share.probes
        line_start = offset
        block = os.pread(descriptor, share.probe_bytes, offset)
        for line in block.split(b"\n")[1:-1]:
            line_start = offset + block.find(line, line_start - offset)
            if line_start < end and not line.startswith(STORY_PREFIX):
                yield line_start, line


def _line_at(descriptor: int, offset: int) -> bytes:
    block = os.pread(descriptor, 4096, offset)
    if b"\n" not in block:
        block = os.pread(descriptor, CHUNK_BYTES, offset)
    return block.partition(b"\n")[0]


LARGEST_SKEW_S = 60.0
"""Clocks that differ by less are taken for right."""


class RankClocks:
    """What the clocks of the ranks of one run say when it is launched.

    A rank that started before its launch, or in the future, has a wrong clock; it is set as if the rank had started at
    the launch.
    """

    def __init__(self) -> None:
        self._launched_t: float | None = None
        self._skews: dict[int, float] = {}

    def corrected(self, events: Sequence[Event], now: float) -> list[Event]:
        """The events, read at `now`, in the supervisor's time (seconds since the epoch)."""
        for event in events:
            if isinstance(event, Launched) and self._launched_t is None:
                self._launched_t = event.t
        if self._launched_t is None:
            return list(events)
        for event in events:
            if isinstance(event, Started) and event.rank is not None and event.rank not in self._skews:
                wrong = event.t < self._launched_t - LARGEST_SKEW_S or event.t > now + LARGEST_SKEW_S
                self._skews[event.rank] = self._launched_t - event.t if wrong else 0.0
        if not any(self._skews.values()):
            return list(events)
        skews = (0.0 if event.rank is None else self._skews.get(event.rank, 0.0) for event in events)
        return [replace(event, t=event.t + skew) for event, skew in zip(events, skews, strict=True)]


def read_events(folder: RunFolder) -> list[Event]:
    """The events of all ranks, ordered by time; a sample of long files."""
    paths = folder.event_files()
    events = [event for path in paths for event in decode_events(sampled_new_lines(LineTail(path), len(paths)))]
    return sorted(RankClocks().corrected(events, time.time()), key=lambda event: event.t)
