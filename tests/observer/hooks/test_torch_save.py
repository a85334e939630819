"""Evaluations and saves of a plain loop that does not say where they end."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.late_module import late_module
from tests.observer.observed_process import SCRIPTS, last_steps, observe
from tuner_tui.runs.events.types import Options, Phase, Saved

pytestmark = pytest.mark.train
script = late_module("tests.observer.scripts.evaluation_at_the_end")
SCRIPT = str(SCRIPTS / "evaluation_at_the_end.py")
SOURCES: dict[str, str] = yaml.safe_load(Path(__file__).with_name("saves.yaml").read_text())


def test_an_evaluation_that_ends_the_run_is_counted(tmp_path: Path) -> None:
    final = last_steps(observe(tmp_path, SCRIPT).events)
    assert final.own_steps == 8
    assert final.eval_s >= 3 * script.EVALUATION_S
    assert final.save_s == 0


@pytest.mark.full
def test_a_save_right_after_an_evaluation_is_a_save(tmp_path: Path) -> None:
    found = observe(tmp_path, SCRIPT, "save")
    final = last_steps(found.events)
    assert final.save_s >= 2 * script.SAVING_S
    assert final.eval_s >= 3 * script.EVALUATION_S
    phases = [event.phase for event in found.of(Phase)]
    assert phases[:6] == ["starting", "training", "evaluating", "saving", "training", "evaluating"]


def test_what_is_saved_into_an_archive_is_reported_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [(event.step, event.path) for event in observe(tmp_path, SCRIPT, "zip").of(Saved)][-1] == (
        8,
        str(tmp_path / "model.zip"),
    )


def test_the_options_of_the_scripts_parser_are_reported_once(tmp_path: Path) -> None:
    [event] = observe(tmp_path, "-c", SOURCES["parser"]).of(Options)
    assert (event.options, event.switches) == (("-b --batch-size",), ("--resume",))


def test_saved_files_are_reported_after_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved = observe(tmp_path, "-c", SOURCES["saves"]).of(Saved)
    assert [(event.step, event.path, event.resumable) for event in saved] == [
        (1, str(tmp_path / "full.pt"), True),
        (1, str(tmp_path / "weights.pt"), False),
    ]


def test_a_file_that_is_renamed_when_it_is_whole_has_its_final_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = observe(tmp_path, "-c", SOURCES["renames"]).of(Saved)
    assert [Path(event.path).name for event in saved] == ["part.tmp", "full.pt"]
    assert (saved[-1].step, saved[-1].resumable) == (1, True)


def test_a_file_saved_by_a_loop_without_an_optimizer_has_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = observe(tmp_path, "-c", SOURCES["updates_by_hand"]).of(Saved)
    assert [(event.step, event.path) for event in saved] == [(None, str(tmp_path / "after.pt"))]


@pytest.mark.full
def test_the_files_that_fabric_writes_from_memory_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved = observe(tmp_path, "-c", SOURCES["fabric"]).of(Saved)
    assert [(event.step, Path(event.path).name, event.resumable) for event in saved] == [
        (1, "full.ckpt", True),
        (1, "weights.ckpt", False),
    ]
