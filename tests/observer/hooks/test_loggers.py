"""Names and values that the script gives to its loggers, and loggers that fail."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
import yaml

from tests.observer.observed_process import SCRIPTS, observe, observe_forked, observed_in
from tuner_tui.observer.site._tuner_observer.hooks.loggers import kind_of, training_losses
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.progress import HistoryBuilder
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import BACKWARD, Evaluated, Metrics, Steps, trust

EXAMPLES = yaml.load(Path(__file__).with_name("names.yaml").read_text(), yaml.CSafeLoader)

STAND_INS: dict[str, dict[str, str]] = yaml.load(Path(__file__).with_name("loggers.yaml").read_text(), yaml.CSafeLoader)


def install(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def test_the_loss_of_logged_values_and_its_parts() -> None:
    assert training_losses({"val_loss": 1.0, "lr": 0.1}) == {}
    both = training_losses({"train_loss": 3.0, "kl_loss": 1.0, "val_loss": 9.0})
    assert both == {"loss": 3.0, "part": None, "parts": {"kl_loss": 1.0}}
    assert training_losses({"g_loss": 1.0, "d_loss": 2.0})["part"] is True


SOURCES = {"wandb": "wandb", "tensorboardx": "tensorboardX", "mlflow": "mlflow", "trackio": "trackio"}
INSTALLED = [name for name in ("accelerate", "tensorboard") if importlib.util.find_spec(name) is not None]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of a loop that logs to each of them."""
    folder = tmp_path_factory.mktemp("loggers")
    for name in SOURCES:
        packages = install(folder / "packages", STAND_INS[name])
    script = str(SCRIPTS / "logged_metrics.py")
    cases = {name: (script, f"{name}_log") for name in (*SOURCES, *INSTALLED)}
    return observe_forked(folder, cases, first=packages)


@pytest.mark.train
@pytest.mark.parametrize("name", [*SOURCES, *INSTALLED])
def test_what_is_logged_is_seen_and_still_logged(runs: dict[str, Path], name: str) -> None:
    """The loss of each step is a quarter of the last, from 1; the evaluations come after steps 4 and 8."""
    events_seen, source = observed_in(runs[name]), SOURCES.get(name, name)
    theirs = [event for event in events_seen.of(Metrics) if event.source != BACKWARD]
    assert {event.source for event in theirs} == {source}
    assert all(event.loss == 0.25 ** (event.step - 1) for event in theirs)
    assert (theirs[-1].step, theirs[-1].learning_rate, theirs[-1].summary) == (8, 0.25, False)
    evaluations = [(event.step, event.source, event.metrics) for event in events_seen.of(Evaluated) if event.source]
    assert evaluations == [
        (4, source, {"eval_loss": 0.25**4, "eval_acc": 0.5}),
        (8, source, {"eval_loss": 0.25**8, "eval_acc": 0.75}),
    ]
    state = fold_all(RunState(), events_seen.events)
    assert (state.loss, state.loss_trust, state.step) == (0.25**7, trust(source), 8)
    assert [(event.step, event.source, event.seconds is not None) for event in state.evaluations] == [
        (4, source, True),
        (8, source, True),
    ]
    assert name in INSTALLED or "val_acc" in events_seen.output


@pytest.mark.train
def test_a_logger_of_another_form_works_as_without_the_observer(tmp_path: Path) -> None:
    """Its arguments are not understood, and its own errors are the script's to catch."""
    wandb = STAND_INS["wandb"] | {
        "wandb/sdk/wandb_run.py": "class Run:\n    def log(self, *, step, data=None):\n        print('called', step)\n"
    }
    script = (
        "import wandb\nrun = wandb.init()\nrun.log(step=3)\n"
        "try:\n    run.log()\nexcept TypeError as error:\n    print('raised', 'step' in str(error))\nimport torch\n"
    )
    observed = observe(tmp_path, "-c", "import torch\n" + script, first=install(tmp_path / "packages", wandb))
    assert (observed.exit_code, observed.output.split(os.linesep)) == (0, ["called 3", "raised True", ""]), (
        observed.errors
    )
    assert observed.of(Metrics) == []


def test_what_is_logged_under_a_name_of_its_own_gets_a_chart_without_any_loss(tmp_path: Path) -> None:
    script = (
        "import wandb, torch\nrun = wandb.init(project='t')\nx = torch.nn.Parameter(torch.ones(2))\n"
        "optimizer = torch.optim.SGD([x], lr=0.1)\nfor step in range(4):\n    optimizer.zero_grad()\n"
        "    (x * x).sum().backward()\n    optimizer.step()\n"
        "    run.log({'rollout/reward': step / 2, 'gpu/memory_mb': 7}, step=step)\n"
    )
    observed = observe(tmp_path, "-c", script, first=install(tmp_path / "packages", STAND_INS["wandb"]))
    assert observed.exit_code == 0, observed.errors
    builder = HistoryBuilder()
    for event in observed.events:
        builder.add(event)
    assert [series.name for series in builder.history().logged] == ["rollout/reward"]
    assert builder.history().logged[0].ys[-1] == 1.5


@pytest.mark.parametrize(("name", "meaning", "key"), EXAMPLES["a name says what its value is"])
def test_a_name_says_what_its_value_is(name: str, meaning: str, key: str) -> None:
    assert kind_of(name)[:2] == (meaning, key)


def test_of_several_losses_the_total_is_the_trainings() -> None:
    orders = [kind_of(name).order for name in ("train_loss", "loss/total", "box_loss", "train_loss_epoch")]
    assert orders == sorted(set(orders))


def metrics(t: float, loss: float, source: str | None, summary: bool = False) -> Metrics:
    return Metrics(t=t, rank=0, step=int(t), loss=loss, source=source, summary=summary)


def test_a_loss_of_an_epoch_does_not_stand_for_the_steps_after_it() -> None:
    printed = [metrics(1, 5.0, "log lines"), metrics(2, 4.0, "wandb", summary=True), metrics(3, 3.0, "log lines")]
    assert [fold_all(RunState(), printed[: n + 1]).loss for n in range(3)] == [5.0, 5.0, 3.0]
    read = [metrics(1, 5.0, BACKWARD), metrics(2, 4.0, "wandb", summary=True), metrics(3, 3.0, BACKWARD)]
    assert [fold_all(RunState(), read[: n + 1]).loss for n in range(3)] == [5.0, 4.0, 3.0]
    logged_each_step = [metrics(1, 5.0, "log lines"), metrics(2, 4.0, "wandb"), metrics(3, 3.0, "log lines")]
    assert [fold_all(RunState(), logged_each_step[: n + 1]).loss for n in range(3)] == [5.0, 4.0, 4.0]


def test_an_evaluation_that_is_seen_logged_and_printed_counts_once() -> None:
    counters = Steps(t=0.0, rank=0, step=9, own_steps=9)
    seen = Evaluated(t=1.0, rank=0, step=9, seconds=0.5)
    logged = Evaluated(t=1.0, rank=0, source="wandb", step=9, metrics={"eval_loss": 2.0})
    printed = Evaluated(t=2.0, source="log lines", step=10, metrics={"eval_loss": 2.01, "eval_acc": 0.5})
    for order in ([seen, logged, printed], [logged, printed, seen]):
        [event] = fold_all(RunState(), [counters, *order]).evaluations
        assert (event.source, event.step, event.seconds) == ("wandb", 9, 0.5)
        assert event.metrics == {"eval_loss": 2.0, "eval_acc": 0.5}
    later = [Evaluated(t=9.0, rank=0, step=20, seconds=0.5), Evaluated(t=9.5, rank=0, step=30, seconds=0.5)]
    both = [Evaluated(t=11.0, source="log lines", step=step, metrics={"eval_acc": step / 100}) for step in (20, 30)]
    events_read = fold_all(RunState(), [counters, seen, logged, *later, *both]).evaluations
    assert [(event.step, len(event.metrics)) for event in events_read] == [(9, 1), (20, 1), (30, 1)]
