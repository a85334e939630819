"""Evaluations that the loop does not announce, and training that resembles one, each in a forked child.

`CASES` have a loader. `STORIES` have none: they disable gradients or call `eval()` to evaluate, or as a part of
training. Each prints its name and the seconds that its evaluations took.
"""

import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator

import torch
import torch._dynamo  # once for all children
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, EVERY = 12, 4
BATCH_S = 0.01
model = nn.Linear(4, 1)
data = TensorDataset(torch.randn(4 * STEPS, 4))
batches = [torch.randn(2, 4) for _ in range(6)]
validation = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=2)
teacher = nn.Linear(4, 1)
batch = torch.ones(2, 4)
Story = Callable[[], float]


def slow(inputs: torch.Tensor) -> torch.Tensor:
    time.sleep(BATCH_S)
    return inputs


def forward(inputs: torch.Tensor) -> None:
    model(slow(inputs))


@torch.inference_mode()  # type: ignore[untyped-decorator]
def no_loader() -> None:
    for inputs in batches:
        forward(inputs)


def eval_mode_without_gradients() -> None:
    model.eval()
    no_loader()
    model.train()


def broken_off() -> None:
    for number, (inputs,) in enumerate(validation):
        forward(inputs)
        if number == 5:
            break


def broken_off_inside() -> None:
    for number, (inputs,) in enumerate(validation):
        with torch.no_grad():
            forward(inputs)
        if number == 1:
            break


def whole_inside() -> None:
    for (inputs,) in DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=2):
        with torch.inference_mode():
            forward(inputs)


@torch.no_grad()  # type: ignore[untyped-decorator]
def average() -> None:
    """Weights averaged after every step, as some models need."""
    time.sleep(BATCH_S)


def save_image() -> None:
    time.sleep(5 * BATCH_S)


save_image.__module__ = "torchvision.utils"
save_image = torch.no_grad()(save_image)


def slow_parameters() -> Iterator[torch.Tensor]:
    time.sleep(5 * BATCH_S)
    yield from model.parameters()


def clip() -> None:
    torch.nn.utils.clip_grad_norm_(slow_parameters(), 1.0)


Act = Callable[[], None]


def nothing() -> None:
    return None


def singles() -> Iterator[torch.Tensor]:
    for (inputs,) in DataLoader(data, batch_size=4):
        yield inputs


def pairs() -> Iterator[torch.Tensor]:
    """Two loaders for one training."""
    for (first_batch,), (second_batch,) in zip(
        DataLoader(data, batch_size=4), DataLoader(data, batch_size=4), strict=True
    ):
        yield first_batch + second_batch


def timed(act: Act) -> float:
    began_s = time.perf_counter()
    act()
    return time.perf_counter() - began_s


def train_with_loader(name: str, stream: Iterator[torch.Tensor], before: Act, every_step: Act, after: Act) -> None:
    """`before` and `after` come every few steps: at the loop's top, and at its end but for the very last.

    Prints the seconds of both, and of the calls of `every_step` that the machine held up: they look like evaluations.
    """
    optimizer = optimizer_of(model)
    spent_s, every_s = 0.0, list[float]()
    for step, inputs in enumerate(stream, 1):
        due = step % EVERY == 0
        spent_s += timed(before) if due else 0.0
        model(inputs).mean().backward()
        time.sleep(BATCH_S)
        every_s.append(timed(every_step))
        optimizer.step()
        spent_s += timed(after) if due and step < STEPS else 0.0
    held_up_s = sum(seconds for seconds in every_s if seconds > 2 * statistics.median(every_s))
    print(name, spent_s, held_up_s, flush=True)


CASES: tuple[tuple[str, Callable[[], Iterator[torch.Tensor]], Act, Act, Act], ...] = (
    ("no-loader", singles, nothing, nothing, no_loader),
    ("in-eval-mode", singles, nothing, nothing, eval_mode_without_gradients),
    ("at-the-top", singles, no_loader, nothing, nothing),
    ("broken-off", singles, nothing, nothing, broken_off),
    ("broken-off-inside", singles, nothing, nothing, broken_off_inside),
    ("whole-inside", singles, nothing, nothing, whole_inside),
    ("beside-a-teacher", singles, nothing, average, no_loader),
    ("teacher", singles, nothing, average, nothing),
    ("samples-saved", singles, nothing, nothing, save_image),
    ("clipped", singles, nothing, nothing, clip),
    ("pairs", pairs, nothing, nothing, nothing),
)


def optimizer_of(trained: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(trained.parameters(), lr=0.1)


def train(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    time.sleep(BATCH_S)
    optimizer.step()


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


def rollouts_in_one_mode() -> float:
    """The model never leaves eval mode."""
    optimizer = optimizer_of(model)
    for _ in range(STEPS):
        model.eval()
        with torch.no_grad():
            model(slow(batch))
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
                for parameter, second_batch in zip(teacher.parameters(), model.parameters(), strict=True):
                    slow(parameter).lerp_(second_batch, 0.1)
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
        result: torch.Tensor = self.layer(inputs)
        return result


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


STORIES: tuple[Story, ...] = (
    whole, by_batch, after_every_step, also_before_the_first_step, only_at_the_end, in_eval_mode,
    in_eval_mode_after_every_step, with_gradients_switched_off, adversarial, rollouts, rollouts_in_one_mode,
    generator_first, averages, self_conditioned, compiled,
)  # fmt: skip


def tell(story: Story) -> None:
    print(story.__name__, story(), flush=True)


def in_child(target: Callable[..., None], *arguments: object) -> None:
    child = multiprocessing.get_context("fork").Process(target=target, args=arguments)
    child.start()
    child.join()


if __name__ == "__main__":
    gc.freeze()  # else each child looks through all of torch for garbage, and copies it
    for name, stream, *acts in CASES:
        in_child(lambda name, stream, *acts: train_with_loader(name, stream(), *acts), name, stream, *acts)
    for story in STORIES:
        in_child(tell, story)
