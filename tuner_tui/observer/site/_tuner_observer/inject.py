"""`inject`: settings put into the process where a script builds its TrainingArguments or its DataLoader. Opt-in."""

from __future__ import annotations

import functools
import json
import os
from typing import TYPE_CHECKING, Any

from .importing import call_safely

if TYPE_CHECKING:
    from .session import Session

LOADER_NAMES = {
    "dataloader_num_workers": "num_workers",
    "dataloader_prefetch_factor": "prefetch_factor",
    "dataloader_pin_memory": "pin_memory",
    "dataloader_persistent_workers": "persistent_workers",
    "per_device_train_batch_size": "batch_size",
}
"""Settings that a plain DataLoader can take, by its own argument names."""


def wanted() -> dict[str, Any]:
    """The settings of `TUNER_INJECT`, by the names of the installed transformers; empty without it."""
    try:
        values = json.loads(os.environ.get("TUNER_INJECT") or "{}")
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


POSITIONAL = ("batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory",
              "drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator")  # fmt: skip
"""Arguments of DataLoader after the dataset, in their order."""


class Ledger:
    """What found a place, told once a place, and in the end what found none.

    After TrainingArguments were built, loaders get theirs from them. In any other script several places may each take
    some of the settings: what is left is known once the training has begun.
    """

    def __init__(self, session: Session, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.arguments_built = False
        self.building: set[int] = set()
        self._session = session
        self._told: set[tuple[str, str]] = set()
        self._found: set[str] = set()
        self._told_missing: list[str] = []

    def tell(self, place: str, values: dict[str, Any], last: bool = False) -> None:
        """Write the event unless this place told the same before. `last`: nobody takes what it left."""
        key = (place, repr(sorted(values.items())))
        if key in self._told:
            return
        self._told.add(key)
        self._found.update(values)
        missing = sorted(set(self.settings) - self._found) if last else []
        self._told_missing = missing or self._told_missing
        self._session.open()
        self._session.tell("injected", values=values, not_found=missing)

    def training_began(self) -> None:
        """What would have taken the settings is built by now: say what found no place."""
        missing = sorted(set(self.settings) - self._found)
        if missing and missing != self._told_missing:
            self.tell("", {}, last=True)


def into_training_arguments(module: Any, ledger: Ledger) -> None:
    """Set fields before `__post_init__`, which derives and checks; a subclass's own comes first, so before that too."""
    arguments_class = module.TrainingArguments
    _set_before_post_init(arguments_class, ledger)

    def __init_subclass__(cls: Any, /, **kwargs: Any) -> None:
        super(arguments_class, cls).__init_subclass__(**kwargs)
        if "__post_init__" in cls.__dict__:
            call_safely(_set_before_post_init, cls, ledger)

    arguments_class.__init_subclass__ = classmethod(__init_subclass__)


def _set_before_post_init(arguments_class: Any, ledger: Ledger) -> None:
    original = arguments_class.__post_init__

    @functools.wraps(original)
    def __post_init__(self: Any, *args: Any, **kwargs: Any) -> None:
        outermost = id(self) not in ledger.building
        if outermost:
            ledger.building.add(id(self))
            call_safely(_set_fields, self, ledger)
        try:
            original(self, *args, **kwargs)
        finally:
            if outermost:
                ledger.building.discard(id(self))

    arguments_class.__post_init__ = __post_init__


def _set_fields(arguments: Any, ledger: Ledger) -> None:
    fields = arguments.__dataclass_fields__
    values = {name: value for name, value in ledger.settings.items() if name in fields}
    for name, value in values.items():
        setattr(arguments, name, value)
    ledger.arguments_built = True
    ledger.tell(type(arguments).__name__, values, last=True)


def into_loaders(module: Any, ledger: Ledger) -> None:
    """Set options of a training DataLoader that the script builds itself."""
    if not any(name in LOADER_NAMES for name in ledger.settings):
        return
    loader_class = module.DataLoader
    original = loader_class.__init__

    @functools.wraps(original)
    def __init__(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        options = dict(zip(POSITIONAL, args), **kwargs)  # noqa: B905 - Python 3.9
        values: dict[str, Any] = {}
        if not ledger.arguments_built and len(args) <= len(POSITIONAL):
            iterable = isinstance(dataset, module.IterableDataset)
            values = call_safely(_loader_values, iterable, options, ledger.settings) or {}
        if not values:
            original(self, dataset, *args, **kwargs)
            return
        original(self, dataset, **_consistent(dict(options, **_renamed(values))))
        call_safely(ledger.tell, "DataLoader", values)

    loader_class.__init__ = __init__


def _loader_values(iterable: bool, options: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that this loader takes: none for one that reads in order, which is an evaluation's.

    An iterable dataset has its order inside: its loader takes them.
    """
    if not (iterable or _shuffles(options)):
        return {}
    values = {name: value for name, value in settings.items() if name in LOADER_NAMES}
    if options.get("batch_sampler") is not None:
        values.pop("per_device_train_batch_size", None)
    return values


def _shuffles(options: dict[str, Any]) -> bool:
    """Whether a loader of a dataset with indices reads in random order."""
    batch_sampler = options.get("batch_sampler")
    sampler = options.get("sampler") or getattr(batch_sampler, "sampler", batch_sampler)
    if sampler is not None:
        return type(sampler).__name__ != "SequentialSampler" and bool(getattr(sampler, "shuffle", True))
    return bool(options.get("shuffle"))


def _renamed(values: dict[str, Any]) -> dict[str, Any]:
    return {LOADER_NAMES[name]: value for name, value in values.items()}


def _consistent(options: dict[str, Any]) -> dict[str, Any]:
    """Without workers, prefetching and persistence have no meaning and raise."""
    if not options.get("num_workers"):
        return {name: value for name, value in options.items() if name not in ("prefetch_factor", "persistent_workers")}
    return options
