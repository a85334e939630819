"""Writes events, samples and state of a run; a full disk is noted as a problem and never raises."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tuner_tui.core.files import LineAppender
from tuner_tui.core.redaction import redact_text
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.types import Event, Finished
from tuner_tui.runs.store.codec import encode_event, encode_sample
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.supervisor_state import SupervisorState, write_supervisor_state

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RunWriter:
    """Writes events, samples and state of one run. Methods do not raise if a file cannot be written.

    Secrets in sentences are hidden: they may quote an exception or the command of a leftover process.

    If the folder of a live run is deleted, another run may get its name: nothing is written there. `lacks_space`: some
    of it could not be written, so that the events of the training have gaps, too.
    """

    def __init__(self, folder: RunFolder, supervision: SupervisorState) -> None:
        """Write the first state. Raises `OSError`."""
        self._folder = folder
        self._place = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._files: dict[Path, LineAppender] = {}
        self.lacks_space = False
        self.supervision = supervision
        write_supervisor_state(folder.state, supervision)

    @property
    def in_place(self) -> bool:
        """Whether the folder is still the one in which the run started."""
        try:
            return os.path.samestat(os.fstat(self._place), self._folder.path.stat())
        except OSError:
            return False

    def event(self, event: Event) -> None:
        """Append an event of the supervisor, its sentence without secrets."""
        if isinstance(event, Finished):
            event = replace(event, sentence=redact_text(event.sentence))
        self._append(self._folder.events, encode_event(event), "events")

    def sample(self, sample: Sample) -> None:
        self._append(self._folder.samples, encode_sample(sample), "samples")

    def update(self, change: Callable[[SupervisorState], SupervisorState]) -> None:
        """Change the state and write it."""
        changed = change(self.supervision)
        problems = tuple(map(redact_text, changed.problems))
        self.supervision = replace(changed, sentence=redact_text(changed.sentence), problems=problems)
        if not self.in_place:
            log_line(f"{self._folder.path} was deleted; the end of the run is not recorded.")
            return
        try:
            write_supervisor_state(self._folder.state, self.supervision)
        except OSError as error:
            log_line(f"state.json: {error}")

    def restore_state(self) -> None:
        """Write `state.json` again if somebody deleted it."""
        if not self._folder.state.exists():
            self.update(lambda known: known)

    def problem(self, sentence: str) -> None:
        """Record a problem, once."""
        sentence = redact_text(sentence)
        if sentence not in self.supervision.problems:
            self.update(lambda known: replace(known, problems=(*known.problems, sentence)))

    def _append(self, path: Path, line: bytes, what: str) -> None:
        try:
            if path not in self._files:
                if not self.in_place:
                    return
                self._files[path] = LineAppender(path)
            self._files[path].append(line)
        except OSError as error:
            self.lacks_space = self.lacks_space or error.errno in NO_SPACE
            self.problem(f"{path.name}: {os.strerror(error.errno or 0)}; {what} are missing from now on.")


def log_line(text: str) -> None:
    """Write a line to the supervisor's log, if possible."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        return
