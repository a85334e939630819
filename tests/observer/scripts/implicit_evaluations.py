"""Evaluations that the loop does not announce, and training that resembles one, each in a forked child.

Each prints its name and the seconds that its evaluations took.
"""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, EVERY = 12, 4
BATCH_S = 0.01
model = nn.Linear(4, 1)
data = TensorDataset(torch.randn(4 * STEPS, 4))
batches = [torch.randn(2, 4) for _ in range(6)]
validation = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=2)


def forward(inputs: torch.Tensor) -> None:
    model(inputs)
    time.sleep(BATCH_S)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def no_loader() -> None:
    for inputs in batches:
        forward(inputs)


def in_eval_mode() -> None:
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
    for (one,), (other,) in zip(DataLoader(data, batch_size=4), DataLoader(data, batch_size=4), strict=True):
        yield one + other


def timed(act: Act) -> float:
    began_s = time.perf_counter()
    act()
    return time.perf_counter() - began_s


def train(name: str, stream: Iterator[torch.Tensor], before: Act, every_step: Act, after: Act) -> None:
    """`before` and `after` come every few steps: at the loop's top, and at its end but for the very last.

    Prints the seconds of both, and of the calls of `every_step` that the machine held up: they look like evaluations.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
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
    ("in-eval-mode", singles, nothing, nothing, in_eval_mode),
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

if __name__ == "__main__":
    for name, stream, before, every_step, after in CASES:
        arguments = (name, stream, before, every_step, after)
        child = multiprocessing.get_context("fork").Process(
            target=lambda name, stream, *acts: train(name, stream(), *acts), args=arguments
        )
        child.start()
        child.join()
