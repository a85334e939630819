"""Where a value first was not finite, from scripts whose broken operator is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observer.observed_process import SCRIPTS, observe, printed_losses, run_python
from tuner_tui.inspection.first_non_finite import ReplayReport
from tuner_tui.runs.read.recorded_batches import read_rank_reports
from tuner_tui.runs.store.folder import RunFolder

pytestmark = pytest.mark.train
SCRIPT = str(SCRIPTS / "not_finite.py")


def check(folder: Path, kind: str, step: int = 7) -> ReplayReport:
    """What the script of this kind reports when it is asked to check the operators around a step."""
    observe(folder, SCRIPT, kind, str(folder), settings={"TUNER_REPLAY": f'{{"step": {step}}}'})
    [report] = read_rank_reports(RunFolder(folder / "run"))
    return report


@pytest.mark.parametrize(
    ("kind", "step", "phase", "module", "operator", "role"),
    [
        ("masked-row", 7, "forward", "layers.2.attention", "aten._softmax", "undefined"),
        pytest.param("fp16", 7, "forward", "layers.2", "aten.mul", "overflow", marks=pytest.mark.full),
        ("log", 7, "forward", None, "aten.log", "undefined"),
        pytest.param("backward", 7, "backward", "layers.2", "aten.mul", None, marks=pytest.mark.full),
        ("accumulated", 4, "backward", "layers.2", "aten.mul", None),
        ("scaler", 7, "backward", None, "aten.div", "undefined"),
        ("row", 13, "forward", "embedding", "aten.view", "rows"),
        pytest.param("unused", 7, "forward", None, "aten.sum", "exploding", marks=pytest.mark.full),
        ("eps", 1, "update", "layers.1.attention.key.bias", "Adam.step", "exploding"),
    ],
)
def test_the_first_operator_whose_result_is_not_finite(
    tmp_path: Path, kind: str, step: int, phase: str, module: str | None, operator: str, role: str | None
) -> None:
    report = check(tmp_path, kind, step)
    assert report.cause is not None
    assert (report.step, report.cause.phase, report.cause.module) == (step, phase, module)
    assert (report.cause.operator, report.cause.role) == (operator, role)


@pytest.mark.parametrize("kind", [pytest.param("plain", marks=pytest.mark.full), "scaler-that-searches"])
def test_a_training_that_is_well_changes_by_nothing(tmp_path: Path, kind: str) -> None:
    kept = [tmp_path / name for name in ("checkpoint.pt", "weights.pt", "last.pt", "old/1.pt")]
    kept[-1].parent.mkdir()
    for path in kept:
        path.write_text("of the run")
    settings = {"TUNER_REPLAY": '{"step": 18}'}
    checked = observe(tmp_path, SCRIPT, kind, str(tmp_path), settings=settings)
    [report] = read_rank_reports(RunFolder(tmp_path / "run"))
    assert (report.step, report.cause) == (20, None)
    losses = printed_losses(checked.output)
    assert [path.read_text() for path in kept] == ["of the run"] * len(kept)
    assert len(losses) >= 18
    assert losses == printed_losses(run_python(SCRIPT, kind, str(tmp_path)).stdout)[: len(losses)]
