"""One situation of a run, whoever asks for it: screen, command line, tuner, fallback."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.fakes.inventories import box, make_gpu
from tests.fakes.situations import NOW, training
from tests.runs.builders import record, view
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.situation import LogWindowReader, build_situation, situation_of_run
from tuner_tui.core.procfs import this_machine
from tuner_tui.hardware.sample import ProcessSample, Sample
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Exited, Finished
from tuner_tui.runs.read.reader import RunView
from tuner_tui.runs.read.status import RunStatus
from tuner_tui.runs.store.codec import encode_sample
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.ui.followed_run import RunDiagnoser, read_context

OUT_OF_MEMORY = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    trainer.train()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.
"""
SHUTDOWN = "waiting for the data service to close\n" * 2_000
"""More lines after the failure than a screen shows."""


def ended_view() -> RunView:
    state = RunState(
        launched_t=1.0,
        last_event_t=9.0,
        exited=Exited(t=8.0, exit_code=1),
        finished=Finished(t=9.0, outcome="out-of-memory"),
    )
    status = RunStatus("ended", "It ended.", outcome="out-of-memory")
    return replace(view(host=this_machine().host), state=state, status=status)


def test_the_screen_and_the_command_line_find_the_same(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.output_log.write_text(OUT_OF_MEMORY + SHUTDOWN)
    situation = situation_of_run(folder, ended_view())
    on_screen = RunDiagnoser(folder)(ended_view(), situation.inventory)
    assert [finding.cause for finding in on_screen] == ["gpu-oom"]
    assert on_screen == diagnose(situation)


def test_findings_and_card_have_the_same_share_of_a_run_that_has_ended(tmp_path: Path) -> None:
    """Of all 600 s: after a start of 100 s it waited for a core half of 400 s, and all of the last 100 s."""
    folder, ended = RunFolder(tmp_path), ended_view()
    ended = replace(ended, state=replace(ended.state, training_since_t=100.0))
    waits = ((time_s, 50.0 if time_s < 500 else 100.0) for time_s in range(600))
    mains = (Sample(float(t), processes=(ProcessSample(7, "main", cpu_queue_pct=wait),)) for t, wait in waits)
    folder.samples.write_bytes(b"".join(map(encode_sample, mains)))
    context = read_context(folder, ended)
    assert context is not None
    assert situation_of_run(folder, ended).core_wait_share == context.core_wait_share == pytest.approx(0.5)


def test_what_a_run_wrote_before_it_was_opened_is_found_at_once_and_what_is_new_once_it_lasts(tmp_path: Path) -> None:
    def live(save_s: float) -> RunView:
        status = RunStatus("running", "It runs.")
        return replace(view(host=this_machine().host), state=training(steps={"save_s": save_s}), status=status)

    opened, followed = (RunDiagnoser(RunFolder(tmp_path), iter([NOW, NOW + 3]).__next__) for _ in range(2))
    assert [finding.cause for finding in opened(live(100.0), box())] == ["save-share"]
    assert followed(live(0.0), box()) == followed(live(100.0), box()) == ()


def test_the_findings_of_a_live_run_rest_on_the_tail_of_its_log(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_text("first\n" + "x\n" * 100_000 + "last")
    live = replace(ended_view(), state=RunState(launched_t=1.0), status=RunStatus("running", "It runs."))
    reader = LogWindowReader(path)
    lines = reader.read(live)
    assert lines[-1] == "last"
    assert "first" not in lines
    assert reader.read(live) is lines
    assert reader.read(ended_view())[0] == "first"


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert LogWindowReader(tmp_path / "output.log").read(ended_view()) == ()


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (RunStatus("lost", "Nobody knows."), "lost"),
        (RunStatus("ended", "It ended.", outcome="completed"), "completed"),
        (RunStatus("running", "It runs."), None),
        (RunStatus("lost", "It goes on.", training_alive=True), None),
        (RunStatus("foreign", "It is another container's."), None),
    ],
)
def test_a_run_without_a_recorded_end_has_the_outcome_that_its_status_says(
    status: RunStatus, outcome: str | None
) -> None:
    unfinished = replace(ended_view(), state=RunState(launched_t=1.0, last_event_t=9.0), status=status)
    situation = build_situation(unfinished, now_s=50.0, inventory=None, log=())
    assert situation.state.outcome == outcome
    assert situation.now_s == (50.0 if outcome is None else 9.0)


def test_the_inventory_of_this_machine_says_nothing_of_another_ones_run() -> None:
    here = box(make_gpu("T4"))
    elsewhere = replace(ended_view(), record=record(host="elsewhere"))
    assert build_situation(ended_view(), now_s=50.0, inventory=here, log=()).inventory == here
    assert build_situation(elsewhere, now_s=50.0, inventory=here, log=()).inventory is None
