"""The settings shown are those that run: a command's own values stand in place of our defaults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.fakes import live_run
from tests.fakes.ui_backend import opened, running
from tuner_tui.runs.store.record import RunRecord
from tuner_tui.settings.job import CommandJob, Job
from tuner_tui.settings.model import OriginKind
from tuner_tui.ui.state import UiState

BATCH = "per_device_train_batch_size"
COMMAND = CommandJob(command=("python", "train.py"))


def following(in_effect: dict[str, Any], job: Job = COMMAND, **values: Any) -> UiState:
    config = replace(opened(None, **values), job=COMMAND)
    record = RunRecord(
        id="r007", created_t=live_run.START_S, job=job, resolved=config.resolved, argv=("python",), cwd="/",
        interpreter="python", host="box", program_version="1", output_dir="/out",
    )  # fmt: skip
    view = replace(running(live_run.running(in_effect=in_effect)), record=record)
    return replace(UiState().with_config(config), view=view)


def shown(state: UiState, name: str = BATCH) -> tuple[Any, str]:
    seen = state.with_seen(UiState())
    assert seen.editing is not None
    current = seen.editing.current
    return getattr(current.settings, name), current.origin(name).kind.value


def test_a_script_that_brings_its_own_batch_shows_it_as_seen() -> None:
    assert shown(following({BATCH: 16})) == (16, "seen")


def test_a_value_that_the_user_gave_is_kept() -> None:
    assert shown(following({BATCH: 16}, per_device_train_batch_size=4)) == (4, "preset")


def test_the_values_of_another_job_are_not_taken_over() -> None:
    other = CommandJob(command=("python", "other.py"))
    assert shown(following({BATCH: 16}, job=other)) == (8, "default")


def test_seen_values_are_neither_a_change_nor_passed_to_the_next_run() -> None:
    state = following({BATCH: 16}).with_seen(UiState())
    assert state.editing is not None
    assert not state.dirty
    assert BATCH not in state.editing.current.given
    assert BATCH not in state.editing.current.chosen


def test_an_edit_starts_at_the_seen_value_and_undo_returns_to_it() -> None:
    state = following({BATCH: 16}).with_seen(UiState()).with_edit(BATCH, "24")
    again = state.with_seen(UiState())
    assert again.editing is not None
    assert again.editing.current.origin(BATCH).kind is OriginKind.EDITED
    undone = again.with_undo()
    assert shown(undone) == (16, "seen")


def test_nothing_is_computed_again_while_nothing_has_changed() -> None:
    state = following({BATCH: 16}).with_seen(UiState())
    assert state.with_seen(state) is state
