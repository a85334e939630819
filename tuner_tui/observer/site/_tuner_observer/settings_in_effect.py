"""Reads the settings that are really in effect from optimizer, loader, model and torch, and reports changes.

And the options of the script's argument parsers: through them, settings and a checkpoint can be passed.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

from .counters.script_variables import variables_of
from .import_hooks import call_safely
from .names import LIBRARIES, NAMES
from .session import Session, version_of

KEPT = "_tuner_kept"
"""Attribute of TrainingArguments that keeps the training's values of the fields that a trial replaces."""


def count_parameters(*models: Any, optimized: list[Any] | None = None) -> dict[str, int]:
    """The parameters of models, which may share some, as fields of a `plan` event. Without `optimized` all train.

    A copy of what trains, such as a target network, does not count; layers of a list may be alike.
    """
    parameters = {
        id(each): each
        for model in models
        for each in model.parameters()
        if each.is_leaf and _dtype_name(each.dtype) not in COUNTERS
    }
    trained = {id(each) for each in (parameters.values() if optimized is None else optimized) if each.requires_grad}
    for model in models:
        held = trained.intersection(map(id, model.parameters()))
        *_, network = (each for each in model.modules() if held.issubset(map(id, each.parameters())))
        parts = (network, *(each for each in network.children() if any(True for _ in each.children())))
        shapes = [_shapes(each) for each in parts if not held.isdisjoint(map(id, each.parameters()))]
        for name, module in model.named_modules():
            module_keys = set(map(id, module.parameters()))
            if held.isdisjoint(module_keys) and not name[-1:].isdigit() and _shapes(module) in shapes:
                parameters = {key: each for key, each in parameters.items() if key not in module_keys}
    trainable = sum(each.numel() for key, each in parameters.items() if each.requires_grad and key in trained)
    return {"parameters": sum(each.numel() for each in parameters.values()), "trainable_parameters": trainable}


COUNTERS = {"int32", "int64"}
"""No weight has such a type; Keras keeps the state of its random numbers as a parameter."""


def _shapes(module: Any) -> dict[str, Any]:
    return {name: each.shape for name, each in module.named_parameters()}


CHECK_EVERY = 10
"""After the first two, only every n-th `steps` event is accompanied by a check, which is not free."""

MICRO_BATCH, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"


class SettingsInEffect:
    """Collects settings by name and reports changes. Uses the names of `settings.model` where they exist."""

    def __init__(self, torch: Any, session: Session) -> None:
        self._torch = torch
        self._session = session
        self.requested: tuple[str, ...] = ()
        self.reset()

    def reset(self) -> None:
        self._reported: dict[str, Any] = {}
        self._current: dict[str, Any] = {}
        self._framework: dict[str, Any] = {}
        self._checks = 0
        self._autocast: Any = None
        self._optimizer: Any = None
        self._first_rate: float | None = None
        self._left_in_eval: tuple[Any, int] | None = None
        self._constructed: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
        self.model_searched = self._compiled = self._has_arguments = False
        self._recent: frozenset[int] | None = None
        self._recent_before: frozenset[int] | None = None
        self._counted: frozenset[int] = frozenset()
        self._model: Callable[[], Any] = lambda: None
        self._parameter: Callable[[], Any] = lambda: None

    def set_compiled(self) -> None:
        """Note a compilation: only an outermost wrapper shows on the model that it is compiled."""
        self._compiled = True
        if "torch_compile" in self._current:
            self._current["torch_compile"] = True

    def autocast_entered(self, _: object, context: Any) -> None:
        """Note the dtype when autocast is entered; it is not active during the optimizer step."""
        if getattr(context, "_enabled", False):
            self._autocast = context.fast_dtype

    def loader_started(self, settings: dict[str, Any]) -> None:
        """Add the settings of a training loader. With a Trainer, its arguments define the micro batch instead."""
        batch = settings.pop(MICRO_BATCH, None)
        self._current.update(settings)
        if batch is not None and not self._has_arguments:
            self._current[MICRO_BATCH] = batch

    def set_batch(self, rows: int | None) -> None:
        """Set the micro batch of a training without a loader, None if it is not known."""
        if not self._has_arguments and (rows is not None or MICRO_BATCH in self._current):
            self._current[MICRO_BATCH] = rows

    def group_added(self, _: None, optimizer: Any, *__: Any, **___: Any) -> None:
        """Remember the rate that an optimizer is constructed with: a schedule may change it before the first step."""
        rate = optimizer.param_groups[0].get("lr")
        if isinstance(rate, (int, float)):
            self._constructed.setdefault(optimizer, rate)

    @property
    def has_optimizer(self) -> bool:
        """Whether an optimizer of torch exists."""
        return bool(self._constructed)

    def present_rate(self) -> float | None:
        """The learning rate at this moment of the optimizer that was added last; None if a device holds it."""
        optimizer = None if self._optimizer is None else self._optimizer()
        return None if optimizer is None else call_safely(_rate_of, optimizer)

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Read the class, options and devices of an optimizer after its first step. The next two checks are made."""
        self._checks = 0
        group = optimizer.param_groups[0]
        self._current["optimizer"] = type(optimizer).__name__
        self._current.update({name: group[name] for name in ("fused", "foreach") if name in group})
        rate = self._constructed.get(optimizer, group.get("initial_lr", group.get("lr")))
        if not self._has_arguments and isinstance(rate, (int, float)):
            self._current["learning_rate"] = rate
        dtypes = {_dtype_name(each.dtype) for each in _parameters_of(optimizer)} - COUNTERS
        self._current["parameter_dtype"] = "+".join(sorted(dtypes))
        if group["params"]:
            self._optimizer = weakref.ref(optimizer)
            # Joined by "+" for a model that is spread over several.
            self._current["device"] = "+".join(sorted({str(each.device) for each in group["params"]}))

    def own_optimizer_stepped(self, frame: Any, parameter: Any) -> None:
        """Read what an optimizer that is not torch's says of itself, where a function from `frame` outwards has one."""
        self._parameter = weakref.ref(parameter)
        self._current["parameter_dtype"] = _dtype_name(parameter.dtype)
        self._current["device"] = str(parameter.device)
        while frame is not None:
            variables = variables_of(frame)
            variables = {**getattr(variables.get("self"), "__dict__", {}), **variables}
            for name, value in variables.items():
                rate = call_safely(_rate_of, value) if "opt" in name.lower() else None
                if rate is not None:
                    self._current["optimizer"] = type(value).__name__
                    self._optimizer, self._first_rate = call_safely(weakref.ref, value), rate
                    return
            frame = frame.f_back

    def set_training_arguments(self, arguments: Any, conditional: dict[str, Any]) -> None:
        """Report a Trainer's arguments at once, since the first step may be the last; `conditional` come before them.

        Injected fields are included: the script may have changed them after the injection. Those that a trial replaced
        are reported as they were: what only the trial needs is no setting of the training.
        """
        fields = {name: getattr(arguments, name, None) for name in (*NAMES["training_arguments"], *self.requested)}
        fields.update((name, value) for name, value in getattr(arguments, KEPT, {}).items() if name in fields)
        values = {name: value for name, value in fields.items() if isinstance(value, (bool, int, float, str))}
        values.update(conditional)
        self._has_arguments = True
        self._current.update(values)
        self._reported.update(values)
        self._session.report("in-effect", values=values)

    def update(self, values: dict[str, Any]) -> None:
        self._current.update(values)
        self._framework.update(values)

    def read_versions(self) -> None:
        """Add versions of libraries, most of which are imported after the `started` event."""
        versions = {name: version_of(name) for name in ("transformers", "accelerate", "peft", "trl", "lightning")}
        self._current.update({name: version for name, version in versions.items() if version is not None})

    def read_model(self, model: Any) -> None:
        self.model_searched = True
        call_safely(self._inspect_model, model)

    def find_model(self) -> Any:
        """The model of the training; None if it is not known yet, or any more."""
        return self._model()

    def _inspect_model(self, model: Any) -> None:
        self._model = weakref.ref(model)
        inner = getattr(model, "_orig_mod", None)
        compiled = inner is not None or getattr(model, "_compiled_call_impl", None) is not None
        self._current["torch_compile"] = compiled or self._compiled
        devices = getattr(inner or model, "device_ids", None)
        if devices and type(inner or model).__name__ == "DataParallel":
            self._current["data_parallel"] = len(devices)  # splits the batch of a plain loop's loader
        modules = list((inner or model).modules())
        attention = [getattr(getattr(module, "config", None), "_attn_implementation", None) for module in modules]
        self._current["attn_implementation"] = next((name for name in attention if isinstance(name, str)), None)
        checkpointing = [
            module.gradient_checkpointing for module in modules if hasattr(module, "gradient_checkpointing")
        ]
        self._current["gradient_checkpointing"] = any(each is True for each in checkpointing) if checkpointing else None

    def _find_model(self) -> None:
        """Read the outermost module with the optimizer's parameters, among all objects (about 100 ms per million)."""
        self.model_searched = True
        optimizers = {id(each): each for each in self._constructed}
        if self._recent is not None and self._optimizer is not None:  # of models that are trained in turn, that of now
            now = id(self._optimizer())
            optimizers = {key: optimizers[key] for key in self._recent if key in optimizers and now in self._recent}
            optimizers = optimizers or {now: self._optimizer()}
        self._counted = frozenset(optimizers)
        optimized = [each for optimizer in optimizers.values() for each in _parameters_of(optimizer)]
        trained = self._parameter() if not optimized else next(iter(_parameters_of(self._optimizer())), None)
        wanted = set(map(id, optimized or [trained]))
        # `type()` rather than `isinstance`, because lazy proxies load their target on attribute access.
        modules = [each for each in gc.get_objects() if issubclass(type(each), self._torch.nn.Module)]
        held = {id(child) for module in modules for child in module._modules.values()}
        outermost = [each for each in modules if id(each) not in held]
        parts = [(each, part) for each in outermost if (part := wanted.intersection(map(id, each.parameters())))]
        # A model may be made of another's layers, which still exists, with a head that nothing trains.
        models = [each for each, part in parts if not any(part < other for _, other in parts)]
        model = next((each for each in models if any(parameter is trained for parameter in each.parameters())), None)
        if model is not None:
            self._session.report("plan", **count_parameters(*models, optimized=optimized or None))  # of a GAN both
            self._inspect_model(model)

    def check(
        self,
        accumulation: int | None = None,
        optimizers: int = 1,
        recent: frozenset[int] | None = None,
        left_in_eval: tuple[Any, int] | None = None,
    ) -> None:
        """Read torch's global switches and report what changed.

        `accumulation` is that of a plain loop, as counted; `optimizers` make a step together. `recent` are those called
        lately, by `id`: whose models are trained now once they are the same twice. `left_in_eval`: see
        `EvaluationDetector`.
        """
        if left_in_eval != self._left_in_eval:
            self._left_in_eval, self._checks = left_in_eval, 0
            self._current["eval_mode_since"] = left_in_eval and call_safely(self._eval_mode_since, *left_in_eval)
        if recent is not None and recent == self._recent_before and recent != self._recent:
            self._recent = recent
            self.model_searched = self.model_searched and recent == self._counted
        self._recent_before = recent
        if optimizers > 1 or "optimizers" in self._current:
            self._current["optimizers"] = optimizers
        # Of several that step together, such as one for the parameters of the loss, that of most parameters.
        if optimizers > 1 and self._constructed and self._optimizer is not None:
            main = max(self._constructed, key=lambda each: sum(part.numel() for part in _parameters_of(each)))
            if main is not self._optimizer():
                self.optimizer_stepped(main)
        is_stated = accumulation is not None or ACCUMULATION in self._current  # one that varies later is taken back
        if is_stated and not self._has_arguments and ACCUMULATION not in self._framework:
            self._current[ACCUMULATION] = accumulation
        self._checks += 1
        if self._first_rate is not None and self._checks > 1 and self._first_rate == self.present_rate():
            self._current["learning_rate"], self._first_rate = self._first_rate, None  # no schedule has changed it
        if not self.model_searched and (self._optimizer is not None or self._parameter() is not None):
            call_safely(self._find_model)
        if self._checks > 2 and self._checks % CHECK_EVERY:
            return
        self._current["autocast_dtype"] = "none" if self._autocast is None else _dtype_name(self._autocast)
        self._autocast = None
        self._current["tf32"] = call_safely(self._tf32)
        self._current["sdpa_backends"] = call_safely(self._sdpa)
        self._current["cpu_threads"] = call_safely(lambda: self._torch.get_num_threads())
        changed = {
            name: value for name, value in self._current.items() if self._reported.get(name, _UNREPORTED) != value
        }
        if changed:
            self._reported.update(changed)
            self._session.report("in-effect", values=changed)

    def _eval_mode_since(self, model: Any, step: int) -> int | None:
        """The step since which the model is in eval mode if the optimizer trains nothing else and its mode matters."""
        trained = {id(each) for each in _parameters_of(self._optimizer()) if each.requires_grad}
        is_owner = bool(trained) and trained.issubset(map(id, model().parameters()))
        return step if is_owner and any(map(_depends_on_mode, model().modules())) else None

    def _tf32(self) -> bool:
        """Reads the new attributes where torch has them: after those were used, the old ones raise."""
        matmul = self._torch.backends.cuda.matmul
        if hasattr(self._torch.backends, "fp32_precision"):
            precision = matmul.fp32_precision
            return bool((self._torch.backends.fp32_precision if precision == "none" else precision) == "tf32")
        return bool(matmul.allow_tf32)

    def _sdpa(self) -> list[str]:
        cuda = self._torch.backends.cuda
        tests = LIBRARIES["sdpa_backends"].items()
        return [name for name, test in tests if hasattr(cuda, test) and getattr(cuda, test)()]


def _depends_on_mode(module: Any) -> bool:
    """Whether a module computes otherwise in train mode: dropout, also within a layer, or batch norm."""
    name = type(module).__name__
    rate = getattr(module, "p" if "Dropout" in name else "dropout", None)
    return "BatchNorm" in name or (isinstance(rate, float) and rate > 0)


def _parameters_of(optimizer: Any) -> list[Any]:
    return [each for group in getattr(optimizer, "param_groups", ()) for each in group["params"]]


def _rate_of(optimizer: Any) -> float | None:
    """The learning rate by the names that fastai, Keras and hand-written optimizers give it."""
    if not any(hasattr(optimizer, name) for name in ("step", "apply", "update")):  # `opt` may be the script's options
        return None
    hypers = getattr(optimizer, "hypers", ())[-1:] or getattr(optimizer, "param_groups", ())[:1]
    return number_of(
        hypers[0].get("lr") if hypers else getattr(optimizer, "learning_rate", getattr(optimizer, "lr", None))
    )


def number_of(rate: Any) -> float | None:
    """A learning rate as a number; None if there is none, or a device holds it."""
    if isinstance(rate, bool) or rate is None or not getattr(rate, "is_cpu", True):
        return None
    return rate if isinstance(rate, float) else float(f"{float(rate):.7g}")  # of Keras a number of 32 bits


_UNREPORTED = object()


def _dtype_name(dtype: Any) -> str:
    return str(dtype).replace("torch.", "")


MAX_OPTIONS = 400


class ScriptOptions:
    """The options seen so far, each with its aliases: `-b --batch-size`; `switches` are those without a value."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._values: list[str] = []
        self._switches: list[str] = []
        self._written = 0

    def parses(self, parser: Any, *_: Any, **__: Any) -> None:
        """Note the options of a parser that is about to parse."""
        for action in parser._actions:
            words = " ".join(action.option_strings)
            options = self._switches if action.nargs == 0 else self._values
            if words and words not in options and len(options) < MAX_OPTIONS and action.dest != "help":
                options.append(words)
        self.write()

    def write(self) -> None:
        """Write the options if there are new ones and the process is seen to train."""
        count = len(self._values) + len(self._switches)
        if self._session.is_open and count > self._written:
            self._written = count
            self._session.report("options", options=self._values, switches=self._switches)
