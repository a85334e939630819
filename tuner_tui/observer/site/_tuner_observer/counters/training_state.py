"""What a training carries from step to step, at its first steps and around each checkpoint: `states-rank0.jsonl`.

With it a run that resumes is compared with the one that it goes on from. A line is the state after `after` steps, read
before the next optimizer step, or while a checkpoint is saved (`"at": "checkpoint"`): learning rate, position of its
schedule, the optimizer's own count of steps and whether it has `moments`, the scale of the gradient scaler and the one
that it began with, checksums of the random states and of those that were `restored`,
counters of the script, and sums of sampled weights.
"""

from __future__ import annotations

import json
import random
import sys
import time
import zlib
from collections.abc import Callable
from types import FrameType
from typing import Any
from weakref import ref

from ..import_hooks import call_after, call_safely, is_compiling_function
from ..names import NAMES
from ..session import Session, json_safe
from .memory_peaks import HostCopy, copy_to_host
from .script_variables import LIBRARY_FOLDERS, MAX_FRAMES, calling_frames, variables_of
from .step_counters import StepCounters

FIRST_STEPS = 3
"""Steps that are recorded, at the start and after each checkpoint."""
MAX_CHECKPOINTS = 32
"""So many are recorded as they come, then one a minute."""
INTERVAL_S = 60.0
MAX_WEIGHTS = 32
MAX_ELEMENTS = 1 << 14
"""Tensors whose weights are summed, and the elements of each, evenly spaced."""
MAX_RESTORED = 64


class TrainingStates:
    """Hooked into optimizers for `FIRST_STEPS` steps only, so that the others pay nothing.

    Of several optimizers the first that steps is followed. Values on a GPU are copied without waiting for it.
    """

    def __init__(self, torch: Any, session: Session, counters: StepCounters, find_model: Callable[[], Any]) -> None:
        self._torch = torch
        self._session = session
        self._counters = counters
        self._find_model = find_model
        self._is_compiling = is_compiling_function()
        self._handle: Any = None
        self._scheduler: Any = None
        self._scaler: Any = None
        self._restored: list[int] = []
        for owner, name in ((torch.random, "set_rng_state"), (random, "setstate"), (_numpy(), "set_state")):
            if owner is not None:
                call_after(owner, name, lambda *_, **__: self._states_set())
        torch.set_rng_state = torch.random.set_rng_state
        self.reset()

    def reset(self) -> None:
        self._optimizer: Any = None
        self._left = FIRST_STEPS
        self._checkpoints = 0
        self._saved: tuple[int, float] | None = None
        self._unwritten: list[dict[str, Any]] = []

    def scheduler_made(self, _: None, scheduler: Any, *__: Any, **___: Any) -> None:
        """Remember the newest learning rate scheduler."""
        self._scheduler = ref(scheduler)

    def scaler_made(self, _: None, scaler: Any, *__: Any, **___: Any) -> None:
        """Remember the newest gradient scaler."""
        self._scaler = ref(scaler)

    def _states_set(self) -> None:
        """Note which random states were set before the first step: the loader draws from them before it begins."""
        if self._optimizer is None and len(self._restored) < MAX_RESTORED:
            self._restored += _random_states(self._torch).values()

    def follow(self) -> None:
        """Record the next steps."""
        if self._handle is None:
            register = sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook
            self._handle = register(self._step_begins)

    def _step_begins(self, optimizer: Any, *_: Any) -> None:
        if self._is_compiling() or self._left <= 0:
            return
        followed = None if self._optimizer is None else self._optimizer()
        if followed is None:
            self._optimizer = ref(optimizer)
        elif followed is not optimizer:
            return
        self._left -= 1
        call_safely(self._read, optimizer, "step" if followed else "start", followed is None)

    def saving(self) -> None:
        """Something is being saved, perhaps a checkpoint."""
        optimizer = None if self._optimizer is None else self._optimizer()
        step, now = self._counters.step, time.monotonic()
        if optimizer is None or (self._saved is not None and self._saved[0] == step):
            return
        if self._checkpoints >= MAX_CHECKPOINTS and self._saved is not None and now - self._saved[1] < INTERVAL_S:
            return
        self._checkpoints += 1
        self._saved = step, now
        self._read(optimizer, "checkpoint", True)
        self._left = FIRST_STEPS
        self.follow()

    def _read(self, optimizer: Any, at: str, weighs: bool) -> None:
        totals = self._counters.totals()
        scaler = None if self._scaler is None else self._scaler()
        scheduler = None if self._scheduler is None else self._scheduler()
        states = [each for each in optimizer.state.values() if isinstance(each, dict)]
        values = [value for each in states for value in each.values()]
        fields: dict[str, Any] = {
            "after": self._counters.step,
            "at": at,
            "learning_rate": self._number(optimizer.param_groups[0].get("lr")),
            "schedule": getattr(scheduler, "last_epoch", None),
            "optimizer_steps": self._number(next((each["step"] for each in states if "step" in each), None)),
            "moments": any(isinstance(each, self._torch.Tensor) and each.numel() > 1 for each in values),
            "random_states": call_safely(_random_states, self._torch),
            "counters": call_safely(_script_counters, sys._getframe(1)),
            "restored": self._restored if at == "start" else None,
            "epoch_batch": totals["epoch_batch"],
            "epoch_batches": totals["epoch_batches"],
        }
        if scaler is not None and scaler._enabled:
            fields["scale"] = self._number(scaler._init_scale if scaler._scale is None else scaler._scale)
            fields["first_scale"] = scaler._init_scale
        if weighs:
            call_safely(self._weigh, optimizer, fields)
        self._unwritten.append(fields)

    def _number(self, value: Any) -> Any:
        """A number, None for what is none; of a GPU its copy, which arrives later."""
        if not isinstance(value, self._torch.Tensor):
            return value if isinstance(value, (int, float)) else None
        if value.device.type == "cpu":
            return float(value)
        return copy_to_host(self._torch, value.detach().reshape(())) if value.is_cuda and value.numel() == 1 else None

    def _weigh(self, optimizer: Any, fields: dict[str, Any]) -> None:
        # Only plain tensors: of a tensor that is spread over ranks a sum would be a collective.
        plain = [
            each
            for group in optimizer.param_groups
            for each in group["params"]
            if type(each) in (self._torch.Tensor, self._torch.nn.Parameter)
            and not hasattr(each, "_is_flat_param")
            and each.is_floating_point()
            and each.numel()
        ]
        weighed = plain[:: -(-len(plain) // MAX_WEIGHTS) or 1]
        if len({each.device for each in weighed}) != 1:
            return
        sums = self._torch.stack([_sum(each.detach(), self._torch.float64) for each in weighed])
        fields["weights"] = copy_to_host(self._torch, sums) if sums.is_cuda else sums.tolist()
        model = self._find_model()
        if model is not None:
            names = {id(each): name for name, each in model.named_parameters()}
            fields["names"] = [names.get(id(each), "") for each in weighed]

    def resumed(self, first_step: int) -> None:
        """Number the states so far, which are not written yet, after the steps of the processes before."""
        for state in self._unwritten:
            state["after"] += first_step

    def write(self, wait: bool = False) -> None:
        """Write the states whose values have arrived, and let the optimizers go after the last."""
        if self._left <= 0 and self._handle is not None:
            self._handle.remove()
            self._handle = None
        lines = []
        while self._unwritten and (
            wait or all(not isinstance(each, HostCopy) or each.has_arrived() for each in self._unwritten[0].values())
        ):
            fields = self._unwritten.pop(0)
            for name, value in fields.items():
                fields[name] = value.values() if isinstance(value, HostCopy) else value
            state = {name: value for name, value in fields.items() if value is not None}
            lines.append(json.dumps(json_safe(state), separators=(",", ":")))
        if lines:
            self._session.append("states", lines)


def _sum(weights: Any, dtype: Any) -> Any:
    flat = weights.reshape(-1)
    return flat[:: -(-flat.numel() // MAX_ELEMENTS)].abs().sum(dtype=dtype)


def _random_states(torch: Any) -> dict[str, int]:
    """Checksums by the name of the generator; reading a state draws nothing."""
    states = {"python": repr(random.getstate()).encode(), "torch": bytes(torch.get_rng_state().tolist())}
    numpy = _numpy()
    if numpy is not None:
        _, keys, *position = numpy.get_state()
        states["numpy"] = keys.tobytes() + repr(position).encode()
    if torch.cuda.is_initialized():
        states["cuda"] = bytes(torch.cuda.get_rng_state().tolist())
    return {name: zlib.crc32(state) for name, state in states.items()}


def _numpy() -> Any:
    return sys.modules.get("numpy.random")


def _script_counters(innermost: FrameType) -> dict[str, int]:
    """The variables of the script that count, of the innermost function that has them."""
    counters: dict[str, int] = {}
    for frame in calling_frames(innermost, MAX_FRAMES):
        if not any(library in frame.f_code.co_filename for library in LIBRARY_FOLDERS):
            variables = variables_of(frame)
            for names in (variables, getattr(variables.get("self"), "__dict__", {})):
                for name in NAMES["counters"].intersection(names):
                    if type(names[name]) is int:
                        counters.setdefault(name, names[name])
    return counters
