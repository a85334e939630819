"""Watching a training from outside, where the observer says nothing of its steps.

The observer cannot go into an isolated interpreter (`python -I`), a container or a compiled program, and knows only
PyTorch's steps. Then the output of the training and the files of its tool are read instead; every event that comes of
them names its source. Nothing is asked of the training and nothing set in its environment.
"""

from __future__ import annotations

import os
from pathlib import Path

from tuner_tui.runs.events import Event
from tuner_tui.runs.outside.files import find_files, news_of_file
from tuner_tui.runs.outside.lines import bars_and_lines
from tuner_tui.runs.outside.story import Story
from tuner_tui.runs.outside.told import Told

FIRST_LOOK_BYTES = 4 << 20
"""Of a long log only this much of its end is read at first."""
PIECE_BYTES = 64 << 10
GRACE_S = 3.0
"""The observer tells of a step within a second; for so long after the first step seen it is given the word."""
FILES_EVERY_S = 5.0


class OutsideLook:
    """Reads what is new in `log`, and in the tool files under `folders` that are younger than `since_t`."""

    def __init__(self, log: Path, folders: tuple[Path, ...], since_t: float) -> None:
        self._log = log
        self._folders = folders
        self._since_t = since_t
        self._offset: int | None = None
        self._rest = b""
        self._story = Story()
        self._held: list[Event] = []
        self._advanced_t: float | None = None
        self._speaks = False
        self._log_has_steps = False
        self._files_t = 0.0
        self._file_news = 0

    def events(self, now: float, *, over: bool) -> list[Event]:
        """The new events at `now` (seconds since the epoch); held back at first, unless the run is `over`."""
        news = list(bars_and_lines(self._new_text(over)))
        self._log_has_steps = self._log_has_steps or any(told.step for told in news)
        if not self._log_has_steps:
            news += self._news_of_files(now, over)
        self._held += self._story.events(news, now)
        if self._story.advanced and self._advanced_t is None:
            self._advanced_t = now
        self._speaks = self._speaks or (self._advanced_t is not None and (over or now - self._advanced_t >= GRACE_S))
        if not self._speaks:
            return []
        found, self._held = self._held, []
        return found

    def _new_text(self, over: bool) -> str:
        chunk = self._read()
        data = self._rest + chunk
        end = max(data.rfind(b"\r"), data.rfind(b"\n")) + 1
        if over or data.rstrip().endswith(b"]"):  # a bar is whole before the next one begins
            end = len(data)
        self._rest = data[end:][-PIECE_BYTES:]
        return data[:end].decode("utf-8", "replace")

    def _read(self) -> bytes:
        try:
            descriptor = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            size = os.fstat(descriptor).st_size
            if self._offset is None or self._offset > size or size - self._offset > FIRST_LOOK_BYTES:
                self._offset = max(0, size - FIRST_LOOK_BYTES)
            data = os.pread(descriptor, size - self._offset, self._offset)
        finally:
            os.close(descriptor)
        self._offset += len(data)
        return data

    def _news_of_files(self, now: float, over: bool) -> list[Told]:
        """What the newest file of a tool says beyond what it said before."""
        if now - self._files_t < FILES_EVERY_S and not over:
            return []
        self._files_t = now
        found = find_files(self._folders, self._since_t)
        news = news_of_file(found[-1]) if found else []
        fresh = news[self._file_news :] if len(news) >= self._file_news else news
        self._file_news = len(news)
        return fresh
