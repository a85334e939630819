"""Evaluations and saves of a plain loop that does not say where they end."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.late_module import late_module
from tests.observer.observed_process import SCRIPTS, last_steps, observe, observe_forked, observed_in
from tuner_tui.runs.events.types import Options, Phase, Saved

pytestmark = pytest.mark.train
script = late_module("tests.observer.scripts.evaluation_at_the_end")
SCRIPT = str(SCRIPTS / "evaluation_at_the_end.py")
SOURCES: dict[str, str] = yaml.load(Path(__file__).with_name("saves.yaml").read_text(), yaml.CSafeLoader)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of all that save."""
    folder = tmp_path_factory.mktemp("saves")
    cases = {name: [SCRIPT, name] for name in ("plain", "save", "zip")}
    for name in ("saves", "renames", "fabric", "updates_by_hand"):
        (folder / f"{name}.py").write_text(SOURCES[name])
        cases[name] = [str(folder / f"{name}.py")]
    return observe_forked(folder / "runs", cases)


def saved_in(folder: Path) -> list[tuple[int | None, str, bool]]:
    return [
        (event.step, str(Path(event.path).relative_to(folder)), event.resumable)
        for event in observed_in(folder).of(Saved)
    ]


def test_an_evaluation_that_ends_the_run_is_counted(runs: dict[str, Path]) -> None:
    final = last_steps(observed_in(runs["plain"]).events)
    assert final.own_steps == 8
    assert final.eval_s >= 3 * script.EVALUATION_S
    assert final.save_s == 0


def test_a_save_right_after_an_evaluation_is_a_save(runs: dict[str, Path]) -> None:
    result = observed_in(runs["save"])
    final = last_steps(result.events)
    assert final.save_s >= 2 * script.SAVING_S
    assert final.eval_s >= 3 * script.EVALUATION_S
    phases = [event.phase for event in result.of(Phase) if event.phase != "starting"]
    assert phases[:5] == ["training", "evaluating", "saving", "training", "evaluating"]


def test_the_options_of_the_scripts_parser_are_reported_once(tmp_path: Path) -> None:
    [event] = observe(tmp_path, "-c", SOURCES["parser"]).of(Options)
    assert (event.options, event.switches) == (("-b --batch-size",), ("--resume",))


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("saves", [(1, "full.pt", True), (1, "weights.pt", False)]),
        ("renames", [(1, "part.tmp", True), (1, "full.pt", True)]),  # its final name when it is whole
        ("fabric", [(1, "full.ckpt", True), (1, "weights.ckpt", False)]),  # which writes from memory
    ],
)
def test_saved_files_are_reported_after_the_first_step(
    runs: dict[str, Path], name: str, saved: list[tuple[int | None, str, bool]]
) -> None:
    assert saved_in(runs[name]) == saved


def test_what_is_saved_into_an_archive_is_reported_by_its_path(runs: dict[str, Path]) -> None:
    assert saved_in(runs["zip"])[-1] == (8, "model.zip", False)


def test_a_file_saved_by_a_loop_without_an_optimizer_has_the_step_that_changed_the_weights(
    runs: dict[str, Path],
) -> None:
    folder = runs["updates_by_hand"]
    saved = observed_in(folder).of(Saved)
    assert [(event.step, event.path) for event in saved] == [(1, str(folder / "after.pt"))]
