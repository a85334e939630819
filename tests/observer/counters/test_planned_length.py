"""The length of a plain loop by its `for` statements and the names of its variables."""

from __future__ import annotations

import sys
import types
from collections import UserDict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from tuner_tui.observer.site._tuner_observer.counters.planned_length import planned_length

LOOPS = yaml.safe_load(Path(__file__).with_name("loops.yaml").read_text())


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


@pytest.mark.parametrize(("script", "expected"), [(loop["script"], loop["expected"]) for loop in LOOPS])
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
