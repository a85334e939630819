"""Finds the first operator whose result is not finite. Only with TUNER_REPLAY, in a run that is repeated for that.

Every operator of the last steps is seen by a `TorchDispatchMode`, forward and backward. Masks and the like are not
finite on purpose: what also happened in a batch with a finite loss is no cause, and nothing is reported before the
loss or the parameters are not finite. The process then writes `replay-rank0.json` and ends, as a trial does. Files
that a replayed training would save are not written.
"""

from __future__ import annotations

import builtins
import gc
import io
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import process_role
from .counters.batch_stats import MASK_NAMES, TOKEN_NAMES
from .counters.step_counters import StepCounters
from .import_hooks import around_module_calls, call_after, call_around, call_before, call_safely, replacing
from .names import LIBRARIES, NAMES

HEALTHY_STEPS = 3
"""Steps checked before the one that is looked for: they show what is not finite on purpose."""
STEPS_AFTER = 1
MAX_SKIPPED = 10
"""Steps in a row that a gradient scaler skips while it searches for its scale."""
MIN_SCALE = 1.0
MAX_EVENTS = 64
MAX_INPUTS = 4
MAX_ROW_TEXT = 200
MAX_VALUES = 8
"""Numbers that are shown one by one; of more their range."""


class FiniteCheck:
    """One replay in one process. `end` ends the process; a rank of several goes on without checks.

    `request`: the `step` to look for, and `first_step`, at which a script of its own resumes.
    """

    def __init__(
        self,
        torch: Any,
        counters: StepCounters,
        request: dict[str, Any],
        find_model: Callable[[], Any],
        end: Callable[[], None],
    ) -> None:
        self._torch, self._counters, self._find_model, self._end = torch, counters, find_model, end
        self._node = getattr(torch._C, "_current_autograd_node", lambda: None)
        self._sequence = getattr(getattr(torch._C, "_autograd", None), "_get_sequence_nr", lambda: -1)
        self._step, self._rows = request["step"], request.get("rows") or {}
        self._dataset: Any = None
        counters.set_first_step(request.get("first_step") or 0)  # a Trainer knows better
        self._optimizer: int | None = None
        self._done = 0
        self._is_armed = self._is_finished = self._is_busy = False
        self._names: dict[int, str] = {}
        self._parameters: dict[int | None, str] = {}
        self._broken_before: set[int] = set()
        self._usual: set[Any] = set()
        self._scaler: Any = None
        self._unscaled: Any = None
        self._skipped: list[dict[str, Any] | None] = []
        self._backwards = 0
        self._begin_batch()

    def _begin_batch(self) -> None:
        """Forget what was seen of a micro batch whose loss was finite, or of a step."""
        self._events: list[dict[str, Any]] = []
        self._modules: list[tuple[Any, bool, int]] = []
        self._spans: list[tuple[int, int, str]] = []
        self._written: set[int] = set()
        self._is_updating = False

    # called by the hooks

    def hook(self, name: str, module: Any) -> None:
        if name == "torch.nn.modules.module":
            around_module_calls(self._torch, self._enter, self._leave)
        elif name == "torch.optim.optimizer":
            module.register_optimizer_step_pre_hook(lambda *call: call_safely(self._steps, *call))
            module.register_optimizer_step_post_hook(lambda *call: call_safely(self._stepped, *call))
        elif name == "torch.utils.data.dataloader":
            call_before(module.DataLoader, "__iter__", self._iterated)
            # What is not finite in a batch is data, however it was collated.
            enter, leave = (lambda *_, busy=busy: setattr(self, "_is_busy", busy) for busy in (True, False))
            call_around(module._BaseDataLoaderIter, "__next__", enter, leave)

    def hook_grad_scaler(self, scaler_class: Any) -> None:
        call_after(scaler_class, "scale", self._scaled)
        call_around(scaler_class, "step", lambda *_: self._done, self._scaler_stepped)

    def _iterated(self, loader: Any) -> None:
        if not self._counters.evaluation.is_evaluating():
            self._dataset = loader.dataset

    def backward_called(self, loss: Any, *_: Any, **__: Any) -> None:
        """Judge the forward pass that led to `loss`."""
        if not self._is_armed or self._is_finished:
            return
        scaled, self._unscaled = self._unscaled, None
        loss = (loss if scaled is None else scaled).data
        self._backwards += 1
        if not self._is_finite(loss):
            unknown = {"phase": "forward", "micro_batch": self._backwards - 1}
            self._finish(self._first_event() or unknown, f"the loss is {float(loss)}")
        else:
            # Of a step that accumulates, earlier micro batches have left their gradients.
            self._usual.update(_site(each) for each in self._events if each["phase"] == "forward")
            self._events = [each for each in self._events if each["phase"] != "forward"]
            self._is_updating = True

    def _scaled(self, scaled: Any, scaler: Any, outputs: Any) -> None:
        if scaled is not outputs and isinstance(outputs, self._torch.Tensor):
            self._scaler, self._unscaled = scaler, outputs

    def _scaler_stepped(self, done: int, _: Any, error: BaseException | None) -> None:
        """Gradients that are not finite are normal now and then: the scaler leaves the step out."""
        if error is not None or self._done > done or self._is_finished:
            return
        self._skipped.append(self._first_event() if self._is_armed else None)
        event = next((each for each in self._skipped if each is not None), None)
        collapsed = self._scaler.get_scale() < MIN_SCALE
        if event is not None and (collapsed or len(self._skipped) > MAX_SKIPPED):
            self._finish(event, f"the gradient scaler skips every step, its scale is {self._scaler.get_scale():g}")
        else:
            self._step_done()

    def _steps(self, _: Any, args: Any, kwargs: Any) -> None:
        """Only what the optimizer leaves is checked, unless it computes the gradients itself."""
        self._is_busy = not any(map(callable, (*args[1:], *kwargs.values())))

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        self._is_busy = False
        self._optimizer = self._optimizer or id(optimizer)
        if self._is_finished or id(optimizer) != self._optimizer:  # of several the first one says where a step ends
            return
        self._skipped.clear()
        if self._is_armed:
            parameters = (each for group in optimizer.param_groups for each in group["params"])
            not_finite = (each for each in parameters if not self._is_finite(each))
            broken = next((each for each in not_finite if _storage(each) not in self._broken_before), None)
            if broken is not None:
                name = self._parameters.get(_storage(broken), "a parameter")
                event = self._first_event() or self._update(optimizer, name, broken.grad)
                self._finish(event, f"the optimizer step made {name} not finite")
                return
            self._usual.update(map(_site, self._events))
        self._step_done()

    def _step_done(self) -> None:
        self._done += 1
        self._backwards = 0
        self._begin_batch()
        if self._current_step() > self._step + STEPS_AFTER + len(self._skipped):
            self._finish(None, "")
        else:
            self._arm_if_due()

    def _current_step(self) -> int:
        """The optimizer step that is under way."""
        return 1 + self._done + self._counters.first_step

    # arming

    def _arm_if_due(self) -> None:
        if self._is_armed or self._current_step() < self._step - HEALTHY_STEPS:
            return
        from torch.utils._python_dispatch import TorchDispatchMode

        check = self

        class Watch(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return check.called(function, args, kwargs or {})

        self._is_armed = True
        Watch().__enter__()

    def _enter(self, module: Any) -> Any:
        if self._is_finished:
            return None
        if not self._modules:
            self._is_updating = False
            if self._torch.is_grad_enabled() and not self._counters.evaluation.is_evaluating():
                self._arm_if_due()
        if not self._is_armed:
            return None
        if not self._names or (not self._modules and id(module) not in self._names):
            self._learn_names(module)
        self._modules.append((module, self._node() is not None, len(self._events)))
        return len(self._modules), self._sequence()

    def _leave(self, entered: Any, result: Any) -> None:
        depth, began = entered
        if depth > len(self._modules):  # a new step has begun since
            return
        module, _, first = self._modules[depth - 1]
        del self._modules[depth - 1 :]
        self._spans.append((began, self._sequence(), self._names.get(id(module), type(module).__name__)))
        # A mask stays inside of the module that makes it; the result of a broken one does not.
        if first < len(self._events) and not all(map(self._is_finite, self._tensors(result))):
            for event in self._events[first:]:
                event["escaped"] = True

    def _learn_names(self, module: Any) -> None:
        """Of the model, and of a module outside of it, such as a loss; note what of it is not finite already."""
        model = self._find_model()
        for root in (module,) if model is None else (module, model):
            for name, each in root.named_modules():
                self._names[id(each)] = _without_wrappers(name) or type(root).__name__
            for name, each in (*root.named_parameters(), *root.named_buffers()):
                self._parameters[call_safely(_storage, each)] = _without_wrappers(name)
            for each in self._tensors(list(root.parameters())):
                if not self._is_finite(each):
                    self._broken_before.add(_storage(each))

    # operators

    def called(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Call an operator, and note it if its result is the first that is not finite."""
        if self._is_finished or self._is_busy:
            return function(*args, **kwargs)
        before = call_safely(self._before, function, args, kwargs)
        result = function(*args, **kwargs)
        if before is not None:
            self._is_busy = True
            call_safely(self._check, function, before, result)
            self._is_busy = False
        return result

    def _before(self, function: Any, args: Any, kwargs: Any) -> Any:
        name = function._schema.name
        if any(word in name for word in NAMES["skipped_operators"]) or self._counters.evaluation.depth:
            return None
        inputs = self._tensors((args, kwargs))
        # What is changed in place cannot be looked at afterwards.
        is_mutable = function._schema.is_mutable
        return inputs, [self._describe(each) for each in inputs] if is_mutable else None

    def _check(self, function: Any, before: Any, result: Any) -> None:
        inputs, described = before
        outputs = self._tensors(result) if described is None or result is not None else inputs
        broken = [each for each in outputs if not self._is_finite(each)]
        if not broken:
            return
        described = described or [self._describe(each) for each in inputs]
        output = self._describe(broken[0])
        pairs = zip(inputs, described)  # noqa: B905 - Python 3.8
        entered = [each for each, about in pairs if about["kinds"] and _storage(each) not in self._written]
        self._written.update(map(_storage, broken))
        parameter = self._parameters.get(_storage(broken[0]))
        if parameter is not None and self._events and self._events[-1]["module"] is None:
            self._events[-1]["module"] = parameter  # the code writes to it
        input_kinds = {kind for about in described for kind in about["kinds"]}
        if (set(output["kinds"]) <= input_kinds and not entered) or len(self._events) >= MAX_EVENTS:
            return
        event = {**self._place(), "operator": function._schema.name.replace("::", "."), "output": output}
        forward = event["phase"] == "forward"
        event.update(
            inputs=described[:MAX_INPUTS], micro_batch=self._backwards - (not forward), step=self._current_step()
        )
        if entered:
            event["entered"] = self._parameters.get(_storage(entered[0]), "data")
        event["on_purpose"] = output["kinds"] == ["-inf"] and any(
            word in event["operator"] for word in NAMES["filling_operators"]
        )
        if _site(event) not in self._usual:
            self._events.append(event)

    def _place(self) -> dict[str, Any]:
        """Whether it is forward or backward, the module, and autograd's own name of a backward operator."""
        node = self._node()
        module, in_backward, _ = self._modules[-1] if self._modules else (None, False, 0)
        if node is not None and not in_backward:
            variable = getattr(node, "variable", None)
            name = None if variable is None else self._parameters.get(_storage(variable))
            number = node._sequence_nr()
            spans = [(end - began, each) for began, end, each in self._spans if began <= number < end]
            return {"phase": "backward", "module": name or min(spans, default=(0, None))[1], "node": node.name()}
        name = None if module is None else self._names.get(id(module), type(module).__name__)
        return {"phase": "update" if self._is_updating and module is None else "forward", "module": name}

    def _update(self, optimizer: Any, name: str, gradient: Any) -> dict[str, Any]:
        inputs = [] if gradient is None else [self._describe(gradient)]
        rate = float(optimizer.param_groups[0].get("lr", 0.0))
        operator = f"{type(optimizer).__name__}.step"
        return {"phase": "update", "module": name, "operator": operator, "inputs": inputs, "learning_rate": rate}

    def _first_event(self) -> dict[str, Any] | None:
        likely = (each for each in self._events if not each["on_purpose"] or each.get("escaped"))
        return next(likely, self._events[0] if self._events else None)

    # tensors

    def _tensors(self, value: Any) -> list[Any]:
        """The tensors of floating point numbers in arguments or results, as they lie in memory here."""
        if isinstance(value, self._torch.Tensor):
            value = getattr(value, "_local_tensor", value)
            plain = value.layout == self._torch.strided and value.device.type != "meta" and value.numel()
            return [value] if plain and (value.is_floating_point() or value.is_complex()) else []
        if isinstance(value, dict):
            value = value.values()
        elif not isinstance(value, (list, tuple)):
            return []
        return [each for item in value for each in self._tensors(item)]

    def _is_finite(self, tensor: Any) -> bool:
        if tensor.is_cuda and self._torch.cuda.is_current_stream_capturing():
            return True
        with self._unwatched():
            return bool(self._torch.isfinite(tensor.detach()).all())

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        was_busy, self._is_busy = self._is_busy, True
        try:
            yield
        finally:
            self._is_busy = was_busy

    def _describe(self, tensor: Any) -> dict[str, Any]:
        """Type, shape, range of the finite values, and which others there are."""
        about: dict[str, Any] = {"dtype": str(tensor.dtype)[len("torch.") :], "shape": list(tensor.shape), "kinds": []}
        with self._unwatched():
            values = (self._torch.view_as_real(tensor) if tensor.is_complex() else tensor).detach()
            finite = self._torch.isfinite(values)
            count = int(finite.sum())
            if count:
                chosen = values if count == values.numel() else values[finite]
                about.update(min=float(chosen.min()), max=float(chosen.max()))
            if count < values.numel():
                others = (("nan", values.isnan()), ("inf", values == float("inf")), ("-inf", values == float("-inf")))
                about.update(kinds=[kind for kind, mask in others if bool(mask.any())], others=values.numel() - count)
        return about

    # the end

    def reset(self) -> None:
        """Check nothing in a forked child."""
        self._is_finished = True

    def training_ended(self) -> None:
        """Report what was seen before the training ended by itself, as with an exception at a loss that is nan."""
        if not self._is_finished and (self._done or self._is_armed):  # not of a launcher, which trains nothing
            self._finish(self._first_event(), "the training ended", ends=False)

    def _finish(self, event: dict[str, Any] | None, consequence: str, ends: bool = True) -> None:
        self._is_finished = True
        rank, world_size = process_role.rank_and_world()
        step = (event or {}).get("step", self._current_step())
        report = {"rank": rank, "step": step, "consequence": consequence, "cause": event}
        name = f"replay-rank{rank}.json"
        self._counters.session.write_json(name, report)
        texts = call_safely(self._row_texts, self._rows.get(str(rank)) or ())
        if texts:
            self._counters.session.write_json(name, {**report, "texts": texts})
        if ends and world_size == 1:
            self._end()
        call_safely(self._counters.flush)

    # the rows

    def _row_texts(self, rows: list[int]) -> dict[int, str]:
        """What the rows of the dataset hold, of those that can be read."""
        tokenizer = _tokenizer()
        texts = {row: call_safely(lambda row=row: self._text(self._dataset[row], tokenizer)) for row in rows}
        return {row: text[:MAX_ROW_TEXT] for row, text in texts.items() if text is not None}

    def _text(self, value: Any, tokenizer: Any) -> str:
        """A sample in words: its text or decoded tokens, a few numbers, or the range of many; short fields first."""
        if hasattr(value, "keys"):
            fields = {name: value[name] for name in value if name not in MASK_NAMES}
            if tokenizer is not None:
                fields.update({name: tokenizer.decode(fields[name]) for name in TOKEN_NAMES if name in fields})
            return ", ".join(sorted((f"{name}: {self._text(each, None)}" for name, each in fields.items()), key=len))
        if isinstance(value, (list, tuple)) and not {int, float} >= set(map(type, value)):
            return ", ".join(sorted((self._text(each, tokenizer) for each in value), key=len))
        if not isinstance(value, (list, tuple, self._torch.Tensor)) and not hasattr(value, "__array__"):
            return str(value)
        tensor = self._torch.as_tensor(value)
        if tensor.numel() <= MAX_VALUES:
            return str(tensor.tolist())
        about = self._describe(tensor)
        others = f", {about['others']} {' and '.join(about['kinds'])}" if about["kinds"] else ""
        shape = " × ".join(map(str, about["shape"]))
        return f"{shape} numbers of {about.get('min', 0):.4g} to {about.get('max', 0):.4g}{others}"


def _tokenizer() -> Any:
    """The tokenizer of this process, None if there are several vocabularies."""
    module = sys.modules.get("transformers.tokenization_utils_base")
    if module is None:
        return None
    tokenizers = [each for each in gc.get_objects() if issubclass(type(each), module.PreTrainedTokenizerBase)]
    return tokenizers[0] if len({len(each) for each in tokenizers}) == 1 else None


def _site(event: dict[str, Any]) -> Any:
    kinds = tuple(event["output"]["kinds"])
    return event["phase"], event["module"], event["operator"], kinds, event.get("entered")


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _without_wrappers(name: str) -> str:
    """A name in the model, without those that torch.compile and DDP put in front."""
    name = name.replace("_orig_mod.", "")
    return name[len("module.") :] if name.startswith("module.") else "" if name in ("module", "_orig_mod") else name


def keep_from_saving(name: str, module: Any) -> None:
    """Let the functions of the module `name` that save a checkpoint do nothing: the user's are not to be replaced."""
    for owner_name, function in LIBRARIES["saving"].get(name, ()):
        owner = getattr(module, owner_name, None) if owner_name else module
        if owner is not None and function in owner.__dict__:
            replacing(owner, function)(lambda *_, **__: None)


def keep_files(torch: Any) -> None:
    """Let `torch.save` write nothing to a path, and leave every file alone that was there before this process."""
    unwritten: set[str] = set()
    began_s, save, open_file = time.time(), torch.serialization.save, builtins.open

    def save_to_memory(value: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(f, (str, os.PathLike)):
            unwritten.add(os.path.abspath(os.fspath(f)))
        else:
            save(value, f, *args, **kwargs)

    def is_kept(path: Any) -> bool:
        return isinstance(path, (str, os.PathLike)) and os.path.isfile(path) and os.stat(path).st_mtime < began_s

    def opened(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        writes = mode[:1] in ("w", "a") and call_safely(is_kept, file)
        return open_file(os.devnull if writes else file, mode, *args, **kwargs)

    replacing(torch.serialization, "save")(save_to_memory)
    torch.save = torch.serialization.save
    for name in ("rename", "replace"):
        _refuse(os, name, lambda source, target, *_, **__: os.path.abspath(source) in unwritten or is_kept(target))
    for name in ("remove", "unlink"):
        _refuse(os, name, lambda path, **options: not options and is_kept(path))
    _refuse(os, "symlink", lambda _, target, *__, **___: os.path.lexists(target))

    def holds_kept(folder: Any, *_: Any, **__: Any) -> bool:
        return any(is_kept(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)

    _refuse(shutil, "rmtree", holds_kept)
    replacing(builtins, "open")(opened)
    io.open = builtins.open  # pathlib's


def _refuse(owner: Any, name: str, is_refused: Callable[..., bool]) -> None:
    """Let a function do nothing where `is_refused` holds for its arguments."""
    original = getattr(owner, name)

    def guarded(*args: Any, **kwargs: Any) -> Any:
        return None if call_safely(is_refused, *args, **kwargs) else original(*args, **kwargs)

    replacing(owner, name)(guarded)
