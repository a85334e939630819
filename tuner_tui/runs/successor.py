"""The run that goes on after one that ran out of memory, where somebody watches over it."""

from __future__ import annotations

from tuner_tui.runs.folder import RunFolder
from tuner_tui.runs.lock import is_held, wait_released
from tuner_tui.runs.state import RunState


def undecided(folder: RunFolder) -> bool:
    """Whether somebody may still continue the run. Raises `OSError`."""
    return is_held(folder.fallback_lock)


def wait_decided(folder: RunFolder) -> None:
    """Block until it is decided whether the ended run goes on; the run's story then says how."""
    if undecided(folder):
        wait_released(folder.fallback_lock)


def successor(folder: RunFolder, state: RunState) -> RunFolder | None:
    """The run that `state` of the run in `folder` says goes on, or None."""
    return None if state.fell_back is None else RunFolder(folder.path.with_name(state.fell_back.into))
