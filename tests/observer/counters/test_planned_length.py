"""The length of a plain loop by its `for` statements and the names of its variables."""

from __future__ import annotations

import sys
import types
from collections import UserDict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tuner_tui.observer.site._tuner_observer.counters.planned_length import planned_length

LOOPS = {
    "for t in range(500):\n    step()": {"steps": 500},
    "N = 3\nfor t in range(1, 2 * N + 1):\n    if t > 9:\n        continue\n    step()": {"steps": 6},
    "for t in tqdm(range(args.rounds), desc='x'):\n    step()": {"steps": 7},
    "bar = tqdm_bar(range(8))\nfor t in bar:\n    step()": {"steps": 8},
    "bar = tqdm_bar(loader)\nfor t in bar:\n    step()": {},
    "for e in range(100):\n    for x, y in zip(xs, xs):\n        step()": {"steps": 300},
    "def train(epoch):\n    step()\nfor epoch in range(4):\n    train(epoch)": {"steps": 4},
    "for e in range(4):\n    for batch in loader:\n        step()": {"epochs": 4},
    "for e in range(2, 4):\n    for i, batch in enumerate(loader):\n        if i % 2 == 0:\n            step()": {
        "epochs": 2
    },
    "for e in range(4):\n    for phase in ['train', 'val']:\n        for batch in loader:\n            step()": {
        "epochs": 4
    },
    "for e in range(4):\n    for i, batch in enumerate(batches):\n        step()": {"steps": 20},
    "for e in range(4):\n    for batch in failing:\n        step()": {"epochs": 4},
    "for i in range(0, len(xs), 2):\n    step()": {"steps": 2},
    "for i in range(9):\n    if i % 3 == 2:\n        step()": {},
    "while True:\n    for i in range(9):\n        step()\n    break": {},
    "num_epochs = 5\nwhile True:\n    step()\n    break": {"epochs": 5},
    "num_epochs = 5\nfor fold in folds.split(xs):\n    for batch in loader:\n        step()": {},
    "EPOCH = 5\nfor e in loader:\n    step()": {"epochs": 5},
    "for e in range(config['rounds']):\n    for batch in loader:\n        step()": {"epochs": 6},
    "for e in range(config.rounds):\n    for batch in loader:\n        step()": {"epochs": 6},
    "for e in range(run_config.rounds):\n    for batch in loader:\n        step()": {"epochs": 6},
    "import contextlib\ndef train():\n    for i in range(5):\n        step()\n"
    "for rank in range(2):\n    with contextlib.ExitStack() as stack:\n        stack.callback(train)": {"steps": 5},
    "k = 1\nwhile k < args.rounds:\n    for batch in loader:\n        step()\n    k += 1": {"epochs": 6},
    "k = 1\nwhile k <= 3:\n    step()\n    k += 1": {"steps": 3},
    "k = 0\nwhile k < 9:\n    for batch in loader:\n        step()\n        k += 1": {},
}


class Iterated:
    """A loader, or folds: its length is not asked."""

    def __iter__(self) -> Iterator[object]:
        return iter([0])

    def split(self, data: object) -> list[int]:
        return [0]


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


@pytest.mark.parametrize(("script", "expected"), LOOPS.items())
def test_the_loops_around_the_first_step(tmp_path: Path, script: str, expected: dict[str, int]) -> None:
    found: list[dict[str, int]] = []
    variables = {
        "step": lambda: found.append(planned_length(sys._getframe(1))),
        "tqdm": lambda data, **_: data,
        "tqdm_bar": tqdm_bar,
        "args": types.SimpleNamespace(rounds=7),
        "config": Settings(rounds=6),
        "run_config": Config(rounds=6),
        "xs": [1.0, 2.0, 3.0],
        "loader": Iterated(),
        "batches": Batches(),
        "failing": Failing(),
        "folds": Iterated(),
    }
    path = tmp_path / "train.py"
    path.write_text(script)
    exec(compile(script, str(path), "exec"), variables)
    assert found[0] == expected
