"""Reads the settings that are really in effect from optimizer, loader, model and torch, and reports changes."""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any

from . import settings_in_effect
from .import_hooks import call_safely

if TYPE_CHECKING:
    from .session import Session


MAX_FRAMES = 12
"""Frames looked at: a Trainer calls its callbacks a few frames below its own loop."""


def ignores_accumulation(model: Any) -> bool | None:
    """For the Trainer that is calling us with `model`; None where that cannot be told."""
    trainer = _calling_trainer(sys._getframe(1))
    if trainer is None:
        return None
    divides = not trainer.model_accepts_loss_kwargs or getattr(trainer, "loss_is_scaled_for_ga", None) is False
    if divides or trainer.compute_loss_func is not None or trainer.label_smoother is not None:
        return False
    theirs = sys.modules["transformers.trainer"].Trainer.compute_loss
    if type(trainer).compute_loss is not theirs:
        return None
    forward = inspect.unwrap(type(_unwrap_model(model)).forward)
    if not forward.__module__.startswith("transformers.models."):
        return None
    return "loss_fct" in forward.__code__.co_varnames


def _calling_trainer(frame: FrameType | None) -> Any:
    for _ in range(MAX_FRAMES):
        if frame is None:
            return None
        found = frame.f_locals.get("self")
        if hasattr(found, "model_accepts_loss_kwargs") and hasattr(found, "compute_loss_func"):
            return found
        frame = frame.f_back
    return None


def _unwrap_model(model: Any) -> Any:
    """The model without what compiler, DDP and PEFT wrap it in."""
    model = getattr(model, "_orig_mod", model)
    model = getattr(model, "module", model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


MAX_CANDIDATES = 32
"""Modules remembered, the newest."""


def count_parameters(model: Any) -> tuple[int | None, int | None]:
    """`(all, trainable)` parameters of a model; `(None, None)` without one."""
    if model is None:
        return None, None
    counts = [(each.numel(), each.requires_grad) for each in model.parameters()]
    return sum(count for count, _ in counts), sum(count for count, trains in counts if trains)


class ModelFinder:
    """Finds the model of an optimizer: a script asks it for its parameters to build that optimizer."""

    def __init__(self, module_class: Any) -> None:
        """`module_class`: torch.nn.Module, watched until a model was found."""
        self._class = module_class
        self._asked: dict[int, Any] = {}
        self._original = original = module_class.named_parameters

        @functools.wraps(original)
        def named_parameters(module: Any, *args: Any, **kwargs: Any) -> Any:
            call_safely(self._remember, module)
            return original(module, *args, **kwargs)

        self._wrapper = module_class.named_parameters = named_parameters

    def _remember(self, module: Any) -> None:
        self._asked.pop(id(module), None)
        self._asked[id(module)] = weakref.ref(module)
        if len(self._asked) > MAX_CANDIDATES:
            del self._asked[next(iter(self._asked))]

    def of(self, optimizer: Any) -> Any:
        """The outermost module that holds the parameters of `optimizer`, or None."""
        if self._class.named_parameters is self._wrapper:
            self._class.named_parameters = self._original
        wanted = {id(each) for group in optimizer.param_groups for each in group["params"]}
        asked = [module for module in (each() for each in self._asked.values()) if module is not None]
        self._asked.clear()
        holders = [module for module in asked if wanted <= {id(each) for each in module.parameters()}]
        if holders:
            return max(holders, key=lambda module: sum(1 for _ in module.modules()))
        return _outermost_owner(next(iter(optimizer.param_groups[0]["params"]), None), self._class)


def _outermost_owner(parameter: Any, module_class: type) -> Any:
    """The outermost module that holds `parameter`: looks through all objects, some 100 ms per million.

    Types are asked by `type()`, so that no lazy proxy wakes up.
    """
    modules = [each for each in gc.get_objects() if issubclass(type(each), module_class)]
    held = {id(child) for module in modules for child in module._modules.values()}
    for module in modules:
        if id(module) not in held and any(each is parameter for each in module.parameters()):
            return module
    return None


CHECK_EVERY = 10
"""Looks are cheap but not free: after the first two, one in this many written lines."""

TRAINING_ARGUMENTS = ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps",
             "dataloader_drop_last", "learning_rate", "weight_decay", "max_grad_norm", "max_length",
             "seed", "n_gpu")  # fmt: skip
"""Settings that a Trainer takes from its arguments as they are. `n_gpu`: the cards among which its process shares a
step, a micro batch on each (`DataParallel`); 0 on a CPU."""

MICRO_BATCH = "per_device_train_batch_size"

SDPA_BACKENDS = (("flash", "flash_sdp_enabled"), ("mem_efficient", "mem_efficient_sdp_enabled"),
                 ("math", "math_sdp_enabled"), ("cudnn", "cudnn_sdp_enabled"))  # fmt: skip


class SettingsInEffect:
    """Gathers `name: value` and tells the session of changes. Names are those of the settings where one exists."""

    def __init__(self, torch: Any, session: Session) -> None:
        self._torch = torch
        self._session = session
        self._owners: settings_in_effect.ModelFinder | None = None
        self.asked: tuple[str, ...] = ()
        self.reset()

    def reset(self) -> None:
        """Forget what was told: a forked child tells its own story."""
        self._told: dict[str, Any] = {}
        self._now: dict[str, Any] = {}
        self._looks = 0
        self._autocast: Any = None
        self._optimizer: Any = None
        self._model_sought = self._compiled = self._has_arguments = False

    def watch_models(self, module_class: Any) -> None:
        """Be able to find the model where nobody shows it. `module_class`: torch.nn.Module."""
        self._owners = settings_in_effect.ModelFinder(module_class)

    def compiled(self) -> None:
        """The compiler was at work: what the model is wrapped in says so only where it is wrapped outermost."""
        self._compiled = True
        if "torch_compile" in self._now:
            self._now["torch_compile"] = True

    def watch_autocast(self, module: Any) -> None:
        """Notice autocast where it is entered, around the forward pass; a step is outside of it."""
        original = module.autocast.__enter__
        effective = self

        @functools.wraps(original)
        def __enter__(self: Any) -> Any:
            result = original(self)
            if getattr(self, "_enabled", False):
                effective._autocast = self.fast_dtype
            return result

        module.autocast.__enter__ = __enter__

    def loader_started(self, settings: dict[str, Any]) -> None:
        """Settings of a loader from which a training batch will be taken. A Trainer knows the batch of one device."""
        batch = settings.pop(MICRO_BATCH, None)
        self._now.update(settings)
        if batch is not None and not self._has_arguments:
            self._now[MICRO_BATCH] = batch

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Read an optimizer that stepped for the first time."""
        group = optimizer.param_groups[0]
        self._now["optimizer"] = type(optimizer).__name__
        for name in ("fused", "foreach"):
            if name in group:
                self._now[name] = group[name]
        self._now["parameter_dtype"] = _parameter_dtypes(optimizer)
        if group["params"]:
            self._optimizer = weakref.ref(optimizer)
            self._now["device"] = _device_names(group["params"])

    def arguments_known(self, arguments: Any) -> None:
        """What a Trainer was built with that shows nowhere else; told at once, for the first step may be the last.

        What was injected is among it: a script may have set it anew since.
        """
        known = {name: getattr(arguments, name, None) for name in (*TRAINING_ARGUMENTS, *self.asked)}
        values = {name: value for name, value in known.items() if isinstance(value, (bool, int, float, str))}
        self._has_arguments = True
        self._now.update(values)
        self._told.update(values)
        self._session.tell("in-effect", values=values)

    def known(self, values: dict[str, Any]) -> None:
        """Settings that a trainer says it has."""
        self._now.update(values)

    def versions_known(self) -> None:
        """Libraries that were imported after the observer said that it is here."""
        for name in ("transformers", "accelerate", "peft", "trl", "lightning"):
            version = getattr(sys.modules.get(name), "__version__", None)
            if version is not None:
                self._now[name] = str(version)

    def model_known(self, model: Any) -> None:
        """Read a model that a trainer gave us."""
        self._model_sought = True
        call_safely(self._read_model, model)
        ignores = call_safely(settings_in_effect.ignores_accumulation, model)
        if ignores is not None:
            self._now["loss_ignores_accumulation"] = ignores

    def _read_model(self, model: Any) -> None:
        inner = getattr(model, "_orig_mod", None)
        compiled = inner is not None or getattr(model, "_compiled_call_impl", None) is not None
        self._now["torch_compile"] = compiled or self._compiled
        devices = getattr(inner or model, "device_ids", None)
        if devices and type(inner or model).__name__ == "DataParallel":
            self._now["data_parallel"] = len(devices)  # of a loop: it splits the batch that its loader gives
        modules = list((inner or model).modules())
        attention = [getattr(getattr(module, "config", None), "_attn_implementation", None) for module in modules]
        self._now["attn_implementation"] = next((word for word in attention if isinstance(word, str)), None)
        checkpointing = [
            module.gradient_checkpointing for module in modules if hasattr(module, "gradient_checkpointing")
        ]
        self._now["gradient_checkpointing"] = any(each is True for each in checkpointing) if checkpointing else None

    def _seek_model(self) -> None:
        """Where no trainer showed us the model: the one that holds the parameters of the optimizer."""
        self._model_sought = True
        optimizer = self._optimizer()
        model = None if optimizer is None or self._owners is None else self._owners.of(optimizer)
        if model is not None:
            total, trainable = settings_in_effect.count_parameters(model)
            self._session.tell("plan", parameters=total, trainable_parameters=trainable)
            self._read_model(model)

    def look(self) -> None:
        """Read the global switches, and tell what changed."""
        self._looks += 1
        if not self._model_sought and self._optimizer is not None:
            call_safely(self._seek_model)
        if self._looks > 2 and self._looks % CHECK_EVERY:
            return
        self._now["autocast_dtype"] = "none" if self._autocast is None else _dtype_name(self._autocast)
        self._autocast = None
        self._now["tf32"] = call_safely(self._tf32)
        self._now["sdpa_backends"] = call_safely(self._sdpa)
        changed = {name: value for name, value in self._now.items() if self._told.get(name, _UNREPORTED) != value}
        if changed:
            self._told.update(changed)
            self._session.tell("in-effect", values=changed)

    def _tf32(self) -> bool:
        """By the new names where torch has them: once those are used, reading the old ones raises."""
        matmul = self._torch.backends.cuda.matmul
        if hasattr(self._torch.backends, "fp32_precision"):
            word = matmul.fp32_precision
            return bool((self._torch.backends.fp32_precision if word == "none" else word) == "tf32")
        return bool(matmul.allow_tf32)

    def _sdpa(self) -> list[str]:
        cuda = self._torch.backends.cuda
        return [name for name, test in SDPA_BACKENDS if hasattr(cuda, test) and getattr(cuda, test)()]


_UNREPORTED = object()


def _dtype_name(dtype: Any) -> str:
    return str(dtype).replace("torch.", "")


def _device_names(parameters: Any) -> str:
    """Where they lie: several devices where a model is spread over them."""
    return "+".join(sorted({str(each.device) for each in parameters}))


def _parameter_dtypes(optimizer: Any) -> str:
    found = sorted({_dtype_name(each.dtype) for group in optimizer.param_groups for each in group["params"]})
    return "+".join(found)
