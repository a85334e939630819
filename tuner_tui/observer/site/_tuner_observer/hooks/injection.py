"""Injects settings where a script builds its TrainingArguments, DataLoader or Lightning Trainer. Opt-in.

And checkpoints that the user asked for: a Trainer resumes from TUNER_RESUME, and saves on SIGTERM.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from .. import process_role
from ..data_streams import is_stream, repeats_in_workers
from ..import_hooks import call_around, call_before, call_safely, replacing
from ..names import LIBRARIES
from ..session import Session

LOADER_ARGUMENTS: dict[str, str] = LIBRARIES["loader_arguments"]
"""Settings that a plain DataLoader accepts, and the names of its arguments."""
WORKERS = "dataloader_num_workers"
REPEATING_STREAM = "each worker would deliver all samples of this stream"
POSITIONAL_LOADER_ARGUMENTS: list[str] = LIBRARIES["loader_positional"]
"""Arguments of DataLoader after the dataset, in order."""


class InjectionLog:
    """Reports which settings were applied, once per place, and finally which were not.

    TrainingArguments pass settings on to their loaders. In other scripts several places may each take some of the
    settings, and what is left is known once training has begun. `found`: those that some place has taken.
    """

    def __init__(self, session: Session, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.arguments_built = False
        self.building: set[int] = set()
        self._session = session
        self._reported: set[tuple[str, str]] = set()
        self.found: set[str] = set()
        self._reported_missing: list[str] = []

    def report(self, target: str, values: dict[str, Any], last: bool = False) -> None:
        """Write an event unless this place has reported the same. `last`: no other place can take the rest."""
        key = (target, repr(sorted(values.items())))
        if key in self._reported:
            return
        self._reported.add(key)
        self.found.update(values)
        missing = sorted(set(self.settings) - self.found) if last else []
        self._reported_missing = missing or self._reported_missing
        self._session.open()
        self._session.report("injected", values=values, not_found=missing)

    def limit_workers(self, workers: int, dataset: Any, worker_init_fn: Any) -> int:
        """Return at most one of the requested workers for a stream whose samples several of them would repeat."""
        if workers <= 1 or workers != self.settings.get(WORKERS) or not repeats_in_workers(dataset, worker_init_fn):
            return workers
        self._session.open()
        self._session.report("injected", limits={WORKERS: REPEATING_STREAM})
        return 1

    def set_values(self, arguments: Any, values: dict[str, Any]) -> None:
        """Set the values of TrainingArguments."""
        for name, value in values.items():
            setattr(arguments, name, value)

    def report_missing(self) -> None:
        """Report settings that found no place; called once training has begun, and when the process ends."""
        missing = sorted(set(self.settings) - self.found)
        if missing and missing != self._reported_missing:
            self.report("", {}, last=True)


BACKWARD_CALLS = 3
"""Backward passes after which a loop has built all that it needs, whether or not it has an optimizer."""


def report_after_backward(autograd: Any, log: InjectionLog) -> None:
    """Report what found no place in a loop that updates its parameters by hand. `autograd` is `torch.autograd`."""
    calls = [0]

    def called(*_: Any, **__: Any) -> None:
        calls[0] += 1
        if calls[0] == BACKWARD_CALLS:
            log.report_missing()

    call_before(autograd, "backward", called)


def inject_training_arguments(module: Any, log: InjectionLog) -> None:
    """Set fields before `__post_init__`, which derives from and checks them, of the class and of subclasses."""
    arguments_class = module.TrainingArguments
    _set_before_post_init(arguments_class, log)

    def __init_subclass__(cls: Any, /, **kwargs: Any) -> None:
        super(arguments_class, cls).__init_subclass__(**kwargs)
        if "__post_init__" in cls.__dict__:
            call_safely(_set_before_post_init, cls, log)

    arguments_class.__init_subclass__ = classmethod(__init_subclass__)


def _set_before_post_init(arguments_class: Any, log: InjectionLog) -> None:
    def enter(arguments: Any, *_: Any, **__: Any) -> int | None:
        if id(arguments) in log.building:  # by the method of a subclass
            return None
        log.building.add(id(arguments))
        call_safely(_set_fields, arguments, log)
        return id(arguments)

    call_around(arguments_class, "__post_init__", enter, lambda entered, *_: log.building.discard(entered))


def _set_fields(arguments: Any, log: InjectionLog) -> None:
    fields = arguments.__dataclass_fields__
    values = {name: value for name, value in log.settings.items() if name in fields}
    log.set_values(arguments, values)
    log.arguments_built = True
    log.report(type(arguments).__name__, values, last=True)


def inject_dataloaders(module: Any, log: InjectionLog, is_training: Callable[[], bool]) -> None:
    """Set options of training DataLoaders that the script builds itself.

    A shuffled loader gets them when it is built. One that reads in order may be an evaluation's: it gets them when it
    is first read, if `is_training` says that gradients are enabled then and no other loader has taken them.
    """
    if not any(name in LOADER_ARGUMENTS for name in log.settings):
        return
    loader_class = module.DataLoader
    construct = loader_class.__init__

    @replacing(loader_class, "__init__")
    def __init__(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        options = dict(zip(POSITIONAL_LOADER_ARGUMENTS, args), **kwargs)  # noqa: B905 - Python 3.9
        values: dict[str, Any] = {}
        if not log.arguments_built and len(args) <= len(POSITIONAL_LOADER_ARGUMENTS):
            values = call_safely(_loader_values, is_stream(dataset), options, log.settings) or {}
        workers = values.get(WORKERS, options.get("num_workers") or 0)
        limited = call_safely(log.limit_workers, workers, dataset, options.get("worker_init_fn"))
        if limited not in (None, workers):
            values[WORKERS] = limited
        if not values:
            construct(self, dataset, *args, **kwargs)
            return
        options.update((LOADER_ARGUMENTS[name], value) for name, value in values.items())
        if not options.get("num_workers"):  # without workers, prefetching and persistence raise
            options.pop("prefetch_factor", None)
            options.pop("persistent_workers", None)
        construct(self, dataset, **options)
        call_safely(log.report, "DataLoader", values)

    def read(loader: Any) -> None:
        # Whether a loader in order is training's shows only when it is first read: gradients are enabled then. Later
        # the workers run and nothing can be changed.
        if not loader.__dict__.get("_tuner_read"):
            loader.__dict__["_tuner_read"] = True
            _set_ordered_loader(loader, module, log, is_training)

    call_before(loader_class, "__iter__", read)
    call_before(loader_class, "__len__", lambda loader: loader.__dict__.update(_tuner_measured=True))


def _set_ordered_loader(loader: Any, module: Any, log: InjectionLog, is_training: Callable[[], bool]) -> None:
    """Give the settings to a loader that reads its dataset in order, in place: the script keeps its reference.

    Its batch size stays if the script has asked for its length: a schedule may have been planned with it.
    """
    ordered = type(loader.sampler).__name__ == "SequentialSampler"
    if log.arguments_built or not ordered or not is_training():
        return
    values = {name: value for name, value in log.settings.items() if name in LOADER_ARGUMENTS and name not in log.found}
    batches = loader.batch_sampler
    if loader.__dict__.get("_tuner_measured") or type(batches) is not module.BatchSampler or loader.batch_size is None:
        values.pop("per_device_train_batch_size", None)
    options = {name: getattr(loader, name, None) for name in LOADER_ARGUMENTS.values()}
    options.update((LOADER_ARGUMENTS[name], value) for name, value in values.items())
    if not options["num_workers"]:
        options.update(prefetch_factor=None, persistent_workers=False)
    elif options["prefetch_factor"] is None:
        options["prefetch_factor"] = 2  # the default of DataLoader with workers
    if values:
        loader.__dict__.update(options)  # some of these attributes refuse to be set
        if "per_device_train_batch_size" in values:
            batches.batch_size = options["batch_size"]
        log.report("DataLoader", values)


def _loader_values(iterable: bool, options: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Settings for this loader; none if it reads in order, as an evaluation does.

    The order of an iterable dataset is unknown, so its loader always gets the settings.
    """
    if not (iterable or _is_shuffled(options)):
        return {}
    values = {name: value for name, value in settings.items() if name in LOADER_ARGUMENTS}
    if options.get("batch_sampler") is not None:
        values.pop("per_device_train_batch_size", None)
    return values


def _is_shuffled(options: dict[str, Any]) -> bool:
    """Whether the loader of a map-style dataset reads in random order."""
    batch_sampler = options.get("batch_sampler")
    sampler = options.get("sampler") or getattr(batch_sampler, "sampler", batch_sampler)
    if sampler is not None:
        return type(sampler).__name__ != "SequentialSampler" and bool(getattr(sampler, "shuffle", True))
    return bool(options.get("shuffle"))


FIT_ARGUMENTS = {"gradient_accumulation_steps": "accumulate_grad_batches", "max_grad_norm": "gradient_clip_val"}
"""Set in `fit`, where the model is known: with manual optimization the model does both itself."""


def inject_lightning_trainer(module: Any, log: InjectionLog) -> None:
    """Replace arguments of the Trainer. `module` is `trainer.trainer`."""
    trainer_class = module.Trainer
    construct = trainer_class.__init__

    @replacing(trainer_class, "__init__")
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        changes = call_safely(_lightning_arguments, log.settings, kwargs) or {}
        for each in changes.values():
            kwargs.update(each)
        construct(self, *args, **kwargs)
        if changes:
            call_safely(log.report, "Trainer", {name: log.settings[name] for name in changes})

    call_before(trainer_class, "fit", lambda trainer, model, *_, **__: _set_at_fit(trainer, model, log))


def _lightning_arguments(settings: dict[str, Any], given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Trainer arguments for each setting that Lightning supports."""
    arguments: dict[str, dict[str, Any]] = {}
    if not given.get("plugins"):  # may contain a precision plugin
        precision = "bf16-mixed" if settings.get("bf16") else "16-mixed" if settings.get("fp16") else "32-true"
        arguments.update({name: {"precision": precision} for name in ("bf16", "fp16") if name in settings})
    epochs, steps = settings.get("num_train_epochs"), settings.get("max_steps")
    if epochs is not None and epochs == int(epochs):
        arguments["num_train_epochs"] = {"max_epochs": int(epochs)}
    if steps is not None:
        # As in TrainingArguments, max_steps > 0 overrides the epochs.
        arguments["max_steps"] = {"max_steps": steps, "max_epochs": -1} if steps > 0 else {"max_steps": -1}
    return arguments


def _set_at_fit(trainer: Any, model: Any, log: InjectionLog) -> None:
    if not model.automatic_optimization:
        return
    values = {name: value for name, value in log.settings.items() if name in FIT_ARGUMENTS}
    for name, value in values.items():
        setattr(trainer, FIT_ARGUMENTS[name], value)
    if values:
        log.report("Trainer.fit", values)


RESUME_FIELD = "resume_from_checkpoint"
CKPT_PATH_POSITION = 4
"""Position in `fit(model, train_dataloaders, val_dataloaders, datamodule, ckpt_path)`."""

SIGTERM_VARIABLE = "TUNER_SAVE_ON_TERM"
SIGTERM_FIELD = "enable_jit_checkpoint"
"""Transformers' own way to save a checkpoint on SIGTERM, where the version has it."""


def hook_trainer_resume(module: Any, session: Session) -> None:
    """Have the first `Trainer.train` of this process resume from `TUNER_RESUME`, if that is set."""
    checkpoint = os.environ.get("TUNER_RESUME")
    if checkpoint:
        _hook_first_call(module.Trainer, "train", RESUME_FIELD, 0, checkpoint, session)
        call_before(module.Trainer, "get_train_dataloader", _restore_batch_size)


def hook_lightning_resume(module: Any, session: Session) -> None:
    """The same for the first `fit` of a Lightning Trainer, whose checkpoint is a file."""
    checkpoint = os.environ.get("TUNER_RESUME")
    if checkpoint and os.path.isfile(checkpoint):
        _hook_first_call(module.Trainer, "fit", "ckpt_path", CKPT_PATH_POSITION, checkpoint, session)


def _hook_first_call(
    trainer_class: Any, method: str, argument: str, position: int, checkpoint: str, session: Session
) -> None:
    """Pass `checkpoint` to the first call of `method` unless the script passes its own."""
    original = getattr(trainer_class, method)
    pending = [checkpoint]

    @replacing(trainer_class, method)
    def resume(self: Any, *args: Any, **kwargs: Any) -> Any:
        passed = args[position] if len(args) > position else kwargs.get(argument)
        if pending and pending.pop() and not passed:
            if len(args) > position:
                args = (*args[:position], checkpoint, *args[position + 1 :])
            else:
                kwargs[argument] = checkpoint
            call_safely(session.open)
            call_safely(session.report, "injected", values={RESUME_FIELD: checkpoint}, not_found=[])
        return original(self, *args, **kwargs)


def _restore_batch_size(trainer: Any) -> None:
    """Before Transformers 5, a resumed Trainer uses the micro batch of the checkpoint: use the requested one."""
    if not getattr(trainer.args, "auto_find_batch_size", False):
        trainer._train_batch_size = trainer.args.train_batch_size


def hook_sigterm_checkpoint(module: Any, session: Session) -> None:
    """Enable it in `transformers.training_args` if `TUNER_SAVE_ON_TERM` is set."""
    if os.environ.get(SIGTERM_VARIABLE):
        inject_training_arguments(module, _SigtermInjection(session, {SIGTERM_FIELD: True}))


class _SigtermInjection(InjectionLog):
    """Applies only where it is safe: several ranks would stop at different steps, a handler of the script must not be
    replaced, and only the main thread may set one.
    """

    def set_values(self, arguments: Any, values: dict[str, Any]) -> None:
        fits = (
            process_role.rank_and_world()[1] == 1
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        )
        if values and fits:
            super().set_values(arguments, values)
            super().report(type(arguments).__name__, values)

    def report(self, target: str, values: dict[str, Any], last: bool = False) -> None:
        """Where it was not set nothing is reported: the user did not ask for it."""
