"""`inject`: settings put into the process where a script builds its TrainingArguments or its DataLoader. Opt-in."""

import functools
import json
import os

from .importing import call_safely

LOADER_NAMES = {
    "dataloader_num_workers": "num_workers",
    "dataloader_prefetch_factor": "prefetch_factor",
    "dataloader_pin_memory": "pin_memory",
    "dataloader_persistent_workers": "persistent_workers",
    "per_device_train_batch_size": "batch_size",
}
"""Settings that a plain DataLoader can take, by its own argument names."""


def wanted():
    """The settings to inject, by the names of the installed transformers; empty without `TUNER_INJECT`."""
    try:
        values = json.loads(os.environ.get("TUNER_INJECT") or "{}")
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


class Ledger:
    """What found a place, told once a place."""

    def __init__(self, session):
        self._session = session
        self._told = set()
        self.arguments_built = False

    def tell(self, place, values, not_found):
        """Write the event unless this place told the same before."""
        key = (place, repr(sorted(values.items(), key=str)))
        if key in self._told:
            return
        self._told.add(key)
        self._session.open()
        self._session.tell("injected", values=values, not_found=sorted(not_found))


_ledgers = {}


def _ledger(session):
    return _ledgers.setdefault(id(session), Ledger(session))


def into_training_arguments(module, session):
    """Set fields right before `TrainingArguments.__post_init__`, which derives and checks from them."""
    if not wanted():
        return
    arguments_class = module.TrainingArguments
    original = arguments_class.__post_init__

    @functools.wraps(original)
    def __post_init__(self):
        call_safely(_set_fields, self, _ledger(session))
        original(self)

    arguments_class.__post_init__ = __post_init__


def _set_fields(arguments, ledger):
    fields = arguments.__dataclass_fields__
    values = {name: value for name, value in wanted().items() if name in fields}
    for name, value in values.items():
        setattr(arguments, name, value)
    ledger.arguments_built = True
    ledger.tell(type(arguments).__name__, values, set(wanted()) - set(values))


def into_loaders(module, session):
    """Set options of a DataLoader that the script builds itself; a Trainer's loaders get theirs by its arguments."""
    if not any(name in LOADER_NAMES for name in wanted()):
        return
    loader_class = module.DataLoader
    original = loader_class.__init__

    @functools.wraps(original)
    def __init__(self, dataset, *args, **kwargs):
        ledger = _ledger(session)
        changed = None if ledger.arguments_built or args[1:] else call_safely(_loader_options, args, kwargs)
        if changed is None:
            original(self, dataset, *args, **kwargs)
            return
        positional, options, values = changed
        original(self, dataset, *positional, **options)
        call_safely(ledger.tell, "DataLoader", values, set(wanted()) - set(values))

    loader_class.__init__ = __init__


def _loader_options(args, kwargs):
    """`(positional, keyword, injected)` for a training loader: one that shuffles or has a sampler of its own."""
    options = dict(kwargs)
    if args:
        options["batch_size"] = args[0]
    training = bool(options.get("shuffle") or options.get("sampler") is not None or options.get("batch_sampler"))
    if not training:
        return None
    values = {}
    for name, value in wanted().items():
        option = LOADER_NAMES.get(name)
        if option is None or (option == "batch_size" and options.get("batch_sampler") is not None):
            continue
        options[option] = values[name] = value
    if not options.get("num_workers"):
        for option in ("prefetch_factor", "persistent_workers"):
            options.pop(option, None)
    return (), options, values
