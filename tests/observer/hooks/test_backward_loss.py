"""The loss that `backward` is called on, and the step and learning rate that it is of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tuner_tui.observer.site._tuner_observer.counters.step_counters import RecordBuffer
from tuner_tui.observer.site._tuner_observer.hooks.backward_loss import BackwardLoss


class Loss:
    """A tensor of one number on a CPU."""

    is_cpu, grad_fn = True, None

    def __init__(self, value: float) -> None:
        self.item = lambda: value

    def numel(self) -> int:
        return 1

    def backward(self) -> None:
        """Compute nothing."""


def test_a_loss_stands_at_its_own_step_whenever_it_is_written() -> None:
    written: list[dict[str, Any]] = []
    session = SimpleNamespace(report_counters=lambda _, fields: written.append(fields), phase="training")
    counters = SimpleNamespace(buffer=RecordBuffer(), trainer_reports=False, step=0, own_steps=0)
    settings = SimpleNamespace(has_optimizer=True, present_rate=lambda: None)  # a function's own, which has returned
    loss = BackwardLoss(SimpleNamespace(), session, counters, lambda *_: None, settings)  # type: ignore[arg-type]
    loss.hook_backward(Loss)
    for step in range(1, 100):  # the first loss is read, the next one only after a second
        Loss(float(step)).backward()
        counters.buffer.rate = 1.0 / step
        counters.step = counters.own_steps = step
    loss.write()
    loss.at_exit()
    assert [(fields["step"], fields["loss"]) for fields in written] == [(1, 1.0), (99, 99.0)]
    assert written[-1]["learning_rate"] == 1.0 / 99
