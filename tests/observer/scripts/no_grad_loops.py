"""Loops without a loader that disable gradients or call `eval()` to evaluate, or as a part of training.

Each runs in a forked child and prints its name, and the seconds that its evaluations took.
"""

import multiprocessing
import time
from collections.abc import Callable

import torch
import torch._dynamo  # once for all children
from torch import nn

STEPS, EVERY = 12, 4
BATCH_S = 0.01
Story = Callable[[], float]


def slow(inputs: torch.Tensor) -> torch.Tensor:
    time.sleep(BATCH_S)
    return inputs


model = nn.Linear(4, 1)
teacher = nn.Linear(4, 1)
batch = torch.ones(2, 4)


def optimizer_of(trained: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(trained.parameters(), lr=0.1)


def train(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    time.sleep(BATCH_S)
    optimizer.step()


def timed(act: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    act()
    return time.perf_counter() - began_s


@torch.no_grad()  # type: ignore[untyped-decorator]
def evaluate() -> None:
    for _ in range(6):
        model(slow(batch))


def evaluate_by_batch() -> None:
    for _ in range(6):
        inputs = slow(batch)
        with torch.inference_mode():
            model(slow(inputs))


def now_and_then(evaluation: Callable[[], None]) -> float:
    optimizer, spent_s = optimizer_of(model), 0.0
    for step in range(1, STEPS + 1):
        train(optimizer, model(batch).mean())
        if step % EVERY == 0:
            spent_s += timed(evaluation)
    return spent_s


def whole() -> float:
    return now_and_then(evaluate)


def by_batch() -> float:
    return now_and_then(evaluate_by_batch) / 2


def after_every_step() -> float:
    optimizer, spent_s = optimizer_of(model), 0.0
    for _ in range(STEPS):
        train(optimizer, model(batch).mean())
        spent_s += timed(evaluate)
    return spent_s


def also_before_the_first_step() -> float:
    """Only the name of the function tells it from a rollout."""
    evaluate()
    return whole()


def only_at_the_end() -> float:
    optimizer = optimizer_of(model)
    for _ in range(STEPS):
        train(optimizer, model(batch).mean())
    return timed(evaluate)


def evaluate_in_eval_mode() -> None:
    model.eval()
    for _ in range(6):
        model(slow(batch))
    model.train()


def in_eval_mode() -> float:
    """With gradients, which nobody uses."""
    return now_and_then(evaluate_in_eval_mode)


def in_eval_mode_after_every_step() -> float:
    optimizer, spent_s = optimizer_of(model), 0.0
    for _ in range(STEPS):
        train(optimizer, model(batch).mean())
        spent_s += timed(evaluate_in_eval_mode)
    return spent_s


def with_gradients_switched_off() -> float:
    def evaluation() -> None:
        torch.set_grad_enabled(False)
        evaluate_in_eval_mode()
        torch.set_grad_enabled(True)

    return now_and_then(evaluation)


def adversarial() -> float:
    """The examples of every step are computed in eval mode."""
    optimizer = optimizer_of(model)
    for _ in range(STEPS):
        model.eval()
        model(slow(batch))
        model.train()
        train(optimizer, model(batch).mean())
    return 0.0


def rollouts() -> float:
    """As PPO does: some steps without gradients, then several updates."""
    optimizer = optimizer_of(model)
    for _ in range(STEPS // EVERY):
        for _ in range(6):
            with torch.no_grad():
                model(slow(batch))
        for _ in range(EVERY):
            train(optimizer, model(batch).mean())
    return 0.0


def generator_first() -> float:
    """A GAN whose generator steps first, and then makes samples for the discriminator."""
    optimizers = [optimizer_of(model), optimizer_of(teacher)]
    for _ in range(STEPS):
        train(optimizers[0], model(batch).mean())
        with torch.no_grad():
            samples = model(slow(batch))
        train(optimizers[1], teacher(samples.repeat(1, 4)).mean())
    return 0.0


def averages() -> float:
    """The weights are averaged every few steps."""
    optimizer = optimizer_of(model)
    for step in range(1, STEPS + 1):
        train(optimizer, model(batch).mean())
        if step % EVERY == 0:
            with torch.no_grad():
                for one, other in zip(teacher.parameters(), model.parameters(), strict=True):
                    slow(one).lerp_(other, 0.1)
    return 0.0


class SelfConditioned(nn.Module):
    """A model that sometimes calls itself first, without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls % EVERY == 0:
            with torch.no_grad():
                inputs = self.layer(slow(inputs))
        found: torch.Tensor = self.layer(inputs)
        return found


def self_conditioned() -> float:
    conditioned = SelfConditioned()
    optimizer = optimizer_of(conditioned)
    for _ in range(STEPS):
        train(optimizer, conditioned(batch).mean())
    return 0.0


def compiled() -> float:
    """A compiled model warns of hooks for all modules."""
    fast = torch.compile(model, backend="eager")
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        if step % EVERY == 0:
            with torch.no_grad():
                fast(slow(batch))
        train(optimizer, fast(batch).mean())
    return 0.0


STORIES: dict[Story, list[int]] = {
    whole: [4, 8, 12],
    by_batch: [4, 8, 12],
    after_every_step: list(range(1, STEPS + 1)),
    also_before_the_first_step: [4, 8, 12],
    only_at_the_end: [12],
    in_eval_mode: [4, 8, 12],
    in_eval_mode_after_every_step: list(range(1, STEPS + 1)),
    with_gradients_switched_off: [4, 8, 12],
    adversarial: [],
    rollouts: [],
    generator_first: [1],  # nothing tells it from an evaluation before the discriminator's first step
    averages: [],
    self_conditioned: [],
    compiled: [],
}
"""Each with the steps after which it evaluates."""


def tell(story: Story) -> None:
    print(story.__name__, story(), flush=True)


if __name__ == "__main__":
    for story in STORIES:
        child = multiprocessing.get_context("fork").Process(target=tell, args=(story,))
        child.start()
        child.join()
