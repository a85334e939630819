"""The length of a plain loop by its `for` statements and the names of its variables."""

from __future__ import annotations

import sys
import types
from collections import UserDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import yaml

from tuner_tui.observer.site._tuner_observer.counters.planned_length import PlannedLength
from tuner_tui.observer.site._tuner_observer.counters.script_variables import named_batch

LOOPS = yaml.load(Path(__file__).with_name("loops.yaml").read_text(), yaml.CSafeLoader)


class Iterated:
    """A loader, or folds: its length is not asked."""

    def __iter__(self) -> Iterator[object]:
        return iter([0])

    def split(self, data: object) -> list[int]:
        return [0]


class Splitter:
    """The folds of scikit-learn's `KFold`."""

    def __init__(self, n_splits: int) -> None:
        self.n_splits = n_splits

    def split(self, data: object) -> Iterator[int]:
        yield from range(self.n_splits)


class Batches(Iterated):
    """A loader that the script defines."""

    def __len__(self) -> int:
        return 5


class Failing(Iterated):
    def __len__(self) -> int:
        raise NotImplementedError


class Settings(UserDict[str, int]):
    """Members are items and attributes, as in `wandb.config` and OmegaConf."""

    def __getattr__(self, name: str) -> int:
        return self.data[name]


class tqdm_bar:
    def __init__(self, iterable: Iterable[object]) -> None:
        self.iterable = iterable

    def __iter__(self) -> Iterator[object]:
        return iter(self.iterable)


class Config:
    """The methods of `wandb.sdk.wandb_config.Config`, which is derived from nothing."""

    def __init__(self, **items: int) -> None:
        self._items = items

    def keys(self) -> Iterable[str]:
        return self._items.keys()

    def items(self) -> Iterable[tuple[str, int]]:
        return self._items.items()

    def __getitem__(self, name: str) -> int:
        return self._items[name]

    __getattr__ = __getitem__

    def get(self, name: str) -> int | None:
        return self._items.get(name)


class Sampler(Iterated):
    """What says that it is a DataLoader without being derived from it, as the loaders of accelerate do."""

    class DataLoader: ...

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.DataLoader

    def __iter__(self) -> Iterator[object]:
        return iter(range(5))

    def __len__(self) -> int:
        return 5


class Training:
    """Plans at the first step, and reads the variables that count at each one."""

    def __init__(self) -> None:
        self.totals: list[int | None] = []
        self.planned: PlannedLength | None = None

    def step(self) -> None:
        frame = sys._getframe(1)
        self.planned = self.planned or PlannedLength(frame)
        self.planned.follow(frame, len(self.totals) + 1, ahead=0)
        self.totals.append(self.planned.total(None, None))


@pytest.mark.parametrize(
    ("script", "expected", "total", "since", "within"),
    [
        (loop["script"], loop.get("expected"), loop.get("total"), loop.get("since", 1), loop.get("within", 0))
        for loop in LOOPS
    ],
)
def test_the_loops_around_the_first_step(
    tmp_path: Path, script: str, expected: dict[str, int] | None, total: int | None, since: int, within: int
) -> None:
    training = Training()
    variables = {
        "step": training.step,
        "tqdm": lambda data, **_: data,
        "tqdm_bar": tqdm_bar,
        "args": types.SimpleNamespace(rounds=7),
        "config": Settings(rounds=6),
        "run_config": Config(rounds=6),
        "xs": [1.0, 2.0, 3.0],
        "loader": Iterated(),
        "prepared": Sampler(),
        "batches": Batches(),
        "failing": Failing(),
        "folds": Iterated(),
        "splitter": Splitter(3),
    }
    path = tmp_path / "train.py"
    path.write_text(script)
    exec(compile(script, str(path), "exec"), variables)
    planned = training.planned
    assert planned is not None
    if expected is not None:
        seen = {"epochs": planned.epochs, "iterations": planned.iterations, "start": planned.start}
        assert {name: value for name, value in seen.items() if value} == expected
    if total is not None:
        assert total == len(training.totals)
        assert all(each is not None and abs(each - total) <= within for each in training.totals[since - 1 :])


def test_rollouts_with_several_steps_promise_no_length_at_their_first_changes(tmp_path: Path) -> None:
    training = Training()
    script = "played = 20\nwhile played < 100:\n for _ in range(4):\n  step()\n played += 20"
    path = tmp_path / "train.py"
    path.write_text(script)
    exec(compile(script, str(path), "exec"), {"step": training.step})
    assert training.totals == [None] * 16


def test_the_last_rollout_is_made_whole(tmp_path: Path) -> None:
    """16 rollouts of 64 frames reach 1,000 frames, with 6 steps after each."""
    training = Training()
    script = (
        "agent.frames = 0\n"
        "def play(agent):\n agent.frames += 64\n"
        "while agent.frames < 1000:\n play(agent)\n for _ in range(6):\n  step()\n"
    )
    path = tmp_path / "train.py"
    path.write_text(script)
    exec(compile(script, str(path), "exec"), {"step": training.step, "agent": types.SimpleNamespace()})
    assert set(training.totals[24:]) == {16 * 6}


ENGINE = """
class Engine:
    def __init__(self, update):
        self.update, self.state = update, State()
    def run(self):
        while self.state.epoch < self.state.max_epochs:
            self.state.epoch += 1
            for batch in range(1000):
                self.fire(batch)
                if batch == 2:
                    break
    def fire(self, batch):
        for handler in [self.update]:
            handler(batch)
"""


def test_the_epochs_of_an_engine_that_calls_the_script(tmp_path: Path) -> None:
    training = Training()
    state = types.SimpleNamespace(epoch=0, max_epochs=12)
    engine: dict[str, Any] = {"__name__": "ignite.engine.engine", "State": lambda: state}
    exec(compile(ENGINE, str(tmp_path / "engine.py"), "exec"), engine)
    script = "def update(batch):\n if batch == 2:\n  step()\nengine(update).run()"
    path = tmp_path / "train.py"
    path.write_text(script)
    exec(compile(script, str(path), "exec"), {"step": training.step, "engine": engine["Engine"]})
    assert training.totals == [12] * 12
    assert training.planned is not None
    assert training.planned.total(5, 5.0) == 60


def test_variables_that_are_ahead_of_the_steps(tmp_path: Path) -> None:
    """Where only the next iteration shows that a step was made."""
    script = "for epoch in range(2):\n for i in range(0, 20, 4):\n  begins()"
    totals: list[int | None] = []
    planned: list[PlannedLength] = []

    def begins() -> None:
        frame = sys._getframe(1)
        if totals:
            planned.append(planned[0] if planned else PlannedLength(frame))
            planned[0].follow(frame, len(totals), ahead=1)
        totals.append(planned[0].total(None, None) if planned else None)

    path = tmp_path / "train.py"
    path.write_text(script)
    exec(compile(script, str(path), "exec"), {"begins": begins})
    assert totals == [None, *[10] * 9]


def test_a_variable_of_a_function_is_not_kept_alive() -> None:
    class Output: ...

    def train() -> tuple[int | None, ref[Output]]:  # a rewritten `assert` would call `locals` here
        num_epochs, output = 3, Output()  # noqa: F841 - read from outside
        epochs, reference = PlannedLength(sys._getframe()).epochs, ref(output)
        del output
        return epochs, reference

    epochs, reference = train()
    assert (epochs, reference()) == (3, None)


@pytest.mark.parametrize(
    ("names", "by_epochs", "expected"),
    [
        ("max_steps = 60", None, 60),
        ("epochs = 3", 20.0, 60),
        ("max_steps = 61; epochs = 3", 20.0, 61),
        ("max_steps = 60; epochs = 9", 20.0, None),
    ],
)
def test_names_that_disagree_are_not_believed(
    tmp_path: Path, names: str, by_epochs: float | None, expected: int | None
) -> None:
    variables: dict[str, object] = {"PlannedLength": PlannedLength, "sys": sys}
    exec(compile(f"{names}\nplan = PlannedLength(sys._getframe())", str(tmp_path / "train.py"), "exec"), variables)
    plan = variables["plan"]
    assert isinstance(plan, PlannedLength)
    assert plan.total(20 if by_epochs else None, by_epochs) == expected


def test_a_named_number_of_steps_below_the_epochs_counts_until_the_break_is_known(tmp_path: Path) -> None:
    variables: dict[str, object] = {"PlannedLength": PlannedLength, "sys": sys, "prepared": Sampler(), "step": 0}
    script = """max_train_steps = 40
for epoch in range(1):
    for batch in prepared:
        plan = PlannedLength(sys._getframe())
        if step >= max_train_steps:
            break
        step += 1
"""
    path = tmp_path / "train.py"
    path.write_text(script)
    exec(compile(script, str(path), "exec"), variables)
    plan = variables["plan"]
    assert isinstance(plan, PlannedLength)
    assert (plan.total(60, 60.0), plan.total(30, 30.0)) == (40, 30)


@pytest.mark.parametrize("inner", ["for batch in loader:", "while not done:"])
def test_the_epochs_alone_are_no_length(tmp_path: Path, inner: str) -> None:
    """The length of a stream is not known, nor that of an episode."""
    script = f"for epoch in range(5):\n done = False\n {inner}\n  step()\n  done = True"
    path = tmp_path / "train.py"
    path.write_text(script)
    training = Training()
    exec(compile(script, str(path), "exec"), {"step": training.step, "loader": Iterated()})
    assert training.totals[0] is None
    if "while" in inner:
        assert set(training.totals) == {None}


def test_the_steps_of_an_epoch_are_those_that_were_counted(tmp_path: Path) -> None:
    variables: dict[str, object] = {"PlannedLength": PlannedLength, "sys": sys, "prepared": Sampler()}
    script = "for epoch in range(3):\n for i, batch in enumerate(prepared):\n  plan = PlannedLength(sys._getframe())"
    path = tmp_path / "train.py"
    path.write_text(script)
    exec(compile(script, str(path), "exec"), variables)
    plan = variables["plan"]
    assert isinstance(plan, PlannedLength)
    assert (plan.total(30, 15.0), plan.total(30, 7.5)) == (45, 22)


@pytest.mark.parametrize(
    ("script", "total"),
    [
        ("for i, batch in enumerate(tqdm_bar(prepared)): look()", 15),
        ("def train():\n for batch in prepared: look()\ntrain()", 15),
        ("for batch in loader: look()", None),
        ("for batch in repeat(prepared): look()", None),
        ("while True:\n for batch in prepared: look()\n break", None),
        ("num_epochs = 4\nfor batch in prepared: look()", 60),
    ],
)
def test_one_loop_over_the_loader_itself_is_one_epoch(tmp_path: Path, script: str, total: int | None) -> None:
    plans: list[PlannedLength] = []
    variables: dict[str, object] = {
        "look": lambda: plans.append(PlannedLength(sys._getframe(1))),
        "prepared": Sampler(),
        "loader": Iterated(),
        "repeat": iter,
        "tqdm_bar": tqdm_bar,
    }
    path = tmp_path / "train.py"
    path.write_text(script)
    exec(compile(script, str(path), "exec"), variables)
    assert plans[0].total(30, 15.0) == total


@dataclass
class Tensor:
    shape: tuple[int, ...]
    grad_fn: str | None = "MulBackward0"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({"ratio": Tensor((64,)), "loss": Tensor(()), "observations": Tensor((512, 4), grad_fn=None)}, 64),
        ({"output": Tensor((30, 5))}, None),
        ({"ratio": Tensor((64,)), "values": Tensor((512,))}, None),
        ({"ix": Tensor((32,), None), "x": Tensor((32, 8), None), "data": Tensor((900, 8), None)}, 32),
        ({"idx": Tensor((32,), None), "data": Tensor((900, 8), None)}, None),
        ({"loss": Tensor(()), "states": Tensor((64, 4), None), "data": Tensor((900, 4), None)}, 64),
        ({"inputs": Tensor((64, 30), None), "outputs": Tensor((1920, 33))}, 64),  # a row for each token
        ({"inputs": Tensor((64, 30), None), "outputs": Tensor((100, 33))}, None),
    ],
)
def test_the_batch_of_a_replay_buffer(tmp_path: Path, rows: dict[str, Tensor], expected: int | None) -> None:
    sizes: list[int | None] = []
    script = "def update(minibatch_size=64):\n step()\nupdate()"
    path = tmp_path / "train.py"
    path.write_text(script)
    args = types.SimpleNamespace(batch_size=512)
    step = {"step": lambda: sizes.append(named_batch(sys._getframe(1)))}
    exec(compile(script, str(path), "exec"), {"args": args, **step, **rows})
    assert sizes == [expected]
