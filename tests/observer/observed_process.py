"""Runs scripts under the observer and reads the events they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tuner_tui.runs.events.types import STORY_PREFIX, Event, InEffect, Started, Steps
from tuner_tui.runs.store.codec import decode_event

E = TypeVar("E", bound=Event)

SCRIPTS = Path(__file__).parent / "scripts"
SITE = Path(__file__).parents[2] / "tuner_tui" / "observer" / "site"


@dataclass(frozen=True)
class ObservedProcess:
    """What a process did: exit code, output, and the events of each file of its run folder."""

    exit_code: int
    output: str
    errors: str
    files: Mapping[str, list[Event]]

    @property
    def events(self) -> list[Event]:
        """The events of a single process."""
        return self.files.get("events.jsonl", [])

    def of(self, kind: type[E]) -> list[E]:
        """The events of one type, in their order."""
        return events_of(self.events, kind)


def events_of(events: Sequence[Event], kind: type[E]) -> list[E]:
    """The events of one type, in their order."""
    return [event for event in events if isinstance(event, kind)]


def last_steps(events: Sequence[Event]) -> Steps:
    """The final counters."""
    return events_of(events, Steps)[-1]


def settings_in_effect(events: Sequence[Event]) -> dict[str, Any]:
    """All that was said to be in effect, the newest last."""
    collected: dict[str, Any] = {}
    for event in events_of(events, InEffect):
        collected.update(event.values)
    return collected


def split_by_process(events: Sequence[Event]) -> list[list[Event]]:
    """Split where a process says that it started."""
    collected: list[list[Event]] = []
    for event in events:
        if isinstance(event, Started):
            collected.append([])
        collected[-1].append(event)
    return collected


def observe(folder: Path, *command: str, settings: Mapping[str, str] | None = None, first: str = "") -> ObservedProcess:
    """Run Python with `command` under the observer, its run folder in `folder`. `first` goes in PYTHONPATH after it."""
    run_dir = folder / "run"
    run_dir.mkdir(parents=True)
    path = os.pathsep.join(filter(None, [str(SITE), first]))
    environment = {"PYTHONPATH": path, "TUNER_RUN_DIR": str(run_dir), **(settings or {})}
    result = run_python(*command, settings=environment)
    return ObservedProcess(result.returncode, result.stdout, result.stderr, _read_files(run_dir))


def observe_forked(
    folder: Path,
    cases: Mapping[str, Sequence[str]],
    *modules: str,
    settings: Mapping[str, str] | None = None,
    first: str = "",
) -> dict[str, Path]:
    """Run the script of each case with its arguments, in children of one process that has imported `modules`.

    Returns the folder of each case, in which it ran: its run folder is `run` and its output `output`.
    """
    folders = {name: folder / name for name in cases}
    for case in folders.values():
        case.mkdir(parents=True)
    commands = json.dumps([[str(folders[name]), *command] for name, command in cases.items()])
    parent = [str(SCRIPTS / "forked.py"), commands, *modules]
    seen = observe(folder / "parent", *parent, settings=settings, first=first)
    assert seen.exit_code == 0, seen.errors
    return folders


def observed_in(folder: Path) -> ObservedProcess:
    """What the process of a case of `observe_forked` did; its errors are among those of its parent."""
    code, output = int((folder / "exit-code").read_text()), (folder / "output").read_text()
    return ObservedProcess(code, output, "", _read_files(folder / "run"))


def run_python(*command: str, settings: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python; two threads of torch would only fight for the two cores of a small machine.

    What hangs ends a little before pytest's own timeout, so that it is reported with its command.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(settings or {})}
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, timeout=540
    )


def _read_files(run_dir: Path) -> dict[str, list[Event]]:
    return {file.name: _read(file) for file in sorted(run_dir.glob("events*.jsonl"))}


def _read(file: Path) -> list[Event]:
    """Every line must decode, and say by its first bytes which sort it is."""
    events: list[Event] = []
    for line in file.read_bytes().splitlines():
        event = decode_event(line)
        assert event is not None, line
        assert line.startswith(STORY_PREFIX) == event.story, line
        events.append(event)
    return events


def printed_losses(output: str) -> list[str]:
    """The lines with losses and gradient norms that a script printed, bit for bit."""
    return [line for line in output.splitlines() if line.startswith("loss")]
