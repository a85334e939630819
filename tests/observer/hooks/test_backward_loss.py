"""The loss that `backward` is called on, and the step and learning rate that it is of."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner_tui.observer.site._tuner_observer.counters.record_buffer import RecordBuffer
from tuner_tui.observer.site._tuner_observer.hooks.backward_loss import BackwardLoss


class Loss:
    """A tensor of one number on a CPU."""

    is_cpu, grad_fn, device = True, None, None

    def __init__(self, value: float) -> None:
        self.item = lambda: value

    def numel(self) -> int:
        return 1

    def backward(self) -> None:
        """Compute nothing."""


class Followed:
    """The losses of a class of tensors, followed in a training whose optimizers are torch's."""

    def __init__(self, optimizers: int = 1) -> None:
        self.written: list[dict[str, Any]] = []
        session = SimpleNamespace(report_counters=lambda _, fields: self.written.append(fields), phase="training")
        self.counters = SimpleNamespace(
            buffer=RecordBuffer(), trainer_reports=False, trainer_logs=False, step=0, own_steps=0, first_step=0
        )
        self.counters.buffer.optimizers.update(dict.fromkeys(range(optimizers)))
        # The optimizer of a function that has returned has no rate any more.
        settings = SimpleNamespace(has_optimizer=True, present_rate=lambda: None)

        class Tensor(Loss):
            backward = Loss.backward  # hooked in this class alone

        self.tensor = Tensor
        self.losses = BackwardLoss(SimpleNamespace(), session, self.counters, lambda *_: None, settings)  # type: ignore[arg-type]
        self.losses.hook_backward(self.tensor)


def test_a_loss_stands_at_its_own_step_whenever_it_is_written() -> None:
    followed = Followed()
    counters = followed.counters
    for step in range(1, 100):  # the first loss is read, the next one only after a second
        followed.tensor(float(step)).backward()
        counters.buffer.rate = 1.0 / step
        counters.step = counters.own_steps = step
    followed.losses.write()
    followed.losses.at_exit()
    assert [(fields["step"], fields["loss"]) for fields in followed.written] == [(1, 1.0), (99, 99.0)]
    assert followed.written[-1]["learning_rate"] == 1.0 / 99


@pytest.mark.parametrize(
    ("micro_batches", "logs", "written"),
    [(1, False, [4.0]), (1, True, []), (2, False, [])],
    ids=["before-it-logs", "logs", "accumulates"],
)
def test_the_loss_of_a_trainer_is_that_of_backward_until_it_logs_one(
    micro_batches: int, logs: bool, written: list[float]
) -> None:
    followed = Followed()
    followed.counters.trainer_reports, followed.counters.trainer_logs = True, logs
    for step in range(1, 5):
        for _ in range(micro_batches):
            followed.tensor(float(step)).backward()
        followed.counters.step = followed.counters.own_steps = step
    followed.losses.at_exit()
    assert [fields["loss"] for fields in followed.written] == written


LIBRARY = """
def learn(tensor, steps):
    for step in range(steps):
        critic_loss, actor_loss = tensor(2.0), tensor(-0.5)
        critic_loss.backward()
        actor_loss.backward()

def backward(loss):
    loss.backward()
"""
SCRIPT = """
def train(tensor, backward):
    for step in range(4):
        critic_loss, actor_loss = tensor(2.0), tensor(-0.5)
        backward(critic_loss)
        backward(actor_loss)
"""


@pytest.mark.parametrize("looping", ["library", "script"])
def test_losses_are_told_apart_where_a_library_calls_backward(looping: str, tmp_path: Path) -> None:
    """A library with a loop of its own has several losses below one line of the script; one that only calls `backward`
    for the script has one line for all of them."""
    library, script = (
        runpy.run_path(str(_written(tmp_path / name, source)))
        for name, source in {"site-packages/rl/agent.py": LIBRARY, "train.py": SCRIPT}.items()
    )
    followed = Followed(optimizers=2)
    if looping == "library":
        library["learn"](followed.tensor, 4)
    else:
        script["train"](followed.tensor, library["backward"])
    followed.losses.at_exit()
    assert followed.counters.buffer.backwards == 4
    assert followed.written[-1]["loss"] is None
    assert followed.written[-1]["parts"] == {"critic_loss": 2.0, "actor_loss": -0.5}


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
