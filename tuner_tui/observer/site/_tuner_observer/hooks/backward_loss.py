"""Reads the scalar that `backward()` is called on: the loss of a loop that neither prints nor logs one.

At most once a second, and without waiting for a GPU: its value is copied to pinned memory and read a second later.
Where no optimizer of torch is called, its calls also tell the steps.
"""

from __future__ import annotations

import linecache
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from types import CodeType, FrameType, SimpleNamespace
from typing import Any
from weakref import ref

from ..counters.memory_peaks import HostCopy, copy_to_host
from ..counters.script_variables import MAX_FRAMES, calling_frames, kind_of_code
from ..counters.step_counters import StepCounters
from ..import_hooks import call_safely, replacing
from ..session import Session
from ..settings_in_effect import SettingsInEffect, number_of

perf_counter = time.perf_counter
get_ident = threading.get_ident
getframe = sys._getframe

SOURCE = "backward()"
INTERVAL_S = 1.0
FORGET_S = 10.0
"""A place in the code that has not called `backward` for this long is replaced by another."""
MAX_OTHERS = 8
MAX_NAME = 30
"""Characters of what a loss is called."""


class BackwardLoss:
    """Follows the first call of `backward` on a scalar.

    Where several optimizers step, as in a GAN, and each has a loss, none of them is that of the training: they are
    reported by their names. A loss that was divided by the number of micro batches of a step is multiplied by it.
    `losses`: the newest ones as they are, each with the number of its call of `backward`; on a GPU the tensor, not to
    wait for it.
    """

    def __init__(
        self,
        torch: Any,
        session: Session,
        counters: StepCounters,
        first_step: Callable[[FrameType, Any], None],
        settings: SettingsInEffect,
    ) -> None:
        """`settings` know the optimizers of torch and the present learning rate.

        `first_step` gets the caller and a parameter at the first step of an optimizer that is not torch's.
        """
        self._torch = torch
        self._session = session
        self._counters = counters
        self._first_step = first_step
        self._settings = settings
        self.losses: deque[tuple[int, Any]] = deque(maxlen=1)
        self.reset()

    def reset(self) -> None:
        self._thread = get_ident()
        self.groups = GradientGroups(self._counters, self._settings)
        self._code: Any = None
        self._at = self._called_at = -1
        self._tells_callers = False
        self._call: Any = None
        self._source_line: Any = None
        self._others: dict[Any, SimpleNamespace] = {}
        self._simple_until_s = 0.0
        self._newest: Any = None
        self._newest_s = self._due_s = 0.0
        self._copied: HostCopy | None = None
        self._copied_from: tuple[Any, ...] = ()
        self._unscaled: tuple[int, Any] | None = None
        self._written: list[float] = []
        self._losses: list[float] = []
        self._read_from: tuple[Any, ...] = ()
        self._divided_by = 0.0

    def hook_backward(self, tensor_class: Any) -> None:
        """Hook `torch.Tensor.backward`."""
        original, buffer = tensor_class.backward, self._counters.buffer

        @replacing(tensor_class, "backward")
        def backward(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                # The hot path: the place in the code that is followed, with no value due to be read. The instruction
                # tells two calls in one function apart, as in a GAN, and that of its caller two of one that calls
                # `backward` for each. Anything else is decided in `_called`.
                now, frame = perf_counter(), getframe(1)
                if (
                    now < self._simple_until_s
                    and frame.f_code is self._code
                    and frame.f_lasti == self._at
                    and (not self._tells_callers or _called_at(frame) == self._called_at)
                    and get_ident() == self._thread
                    and not buffer.paused
                ):
                    buffer.backwards += 1
                    self._newest = newest = _value_of(tensor)
                    self.losses.append((buffer.backwards, newest))
                else:
                    self._called(tensor, frame, now)
            except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
                return original(tensor, *args, **kwargs)
            result = original(tensor, *args, **kwargs)
            if self.groups.follows:
                call_safely(self.groups.after)
            return result

    def scaled(self, scaled: Any, _: object, outputs: Any) -> None:
        """Remember the loss that `GradScaler.scale` has multiplied."""
        if scaled is not outputs and isinstance(outputs, self._torch.Tensor):
            self._unscaled = (id(scaled), outputs.detach())
            if perf_counter() >= self._due_s:
                self._divided_by = _divisor(outputs)

    def _called(self, tensor: Any, frame: FrameType, now: float) -> None:
        if get_ident() != self._thread or tensor.numel() != 1:
            return
        buffer = self._counters.buffer
        if self._call is None and self._session.phase == "starting":
            self._session.enter_phase("training")  # the first step may take long, as with a closure
        if buffer.paused and not self._counters.trainer_reports:
            self._counters.backward_called(now)
        unscaled, self._unscaled = self._unscaled, None
        is_scaled = unscaled is not None and unscaled[0] == id(tensor)
        loss = _value_of(unscaled[1] if unscaled is not None and is_scaled else tensor)
        caller = _loss_owner(frame)
        self._tells_callers = len(buffer.optimizers) > 1
        call, source_line = _call_of(caller)
        compared = slice(2 + self._tells_callers)
        if self._call is None or call[compared] != self._call[compared]:
            # The second `backward` of the same loop: a mixture of two losses would mean nothing.
            if self._call is not None and now - self._newest_s < FORGET_S:
                self._note_other(call[compared], source_line, loss, now)
                return
            self._others.clear()
        self._call, self._source_line = call, source_line
        self._code, self._at, self._called_at = frame.f_code, frame.f_lasti, _called_at(frame)
        self.groups.before(tensor, frame, now, self._first_step)
        buffer.backwards += 1
        self._newest, self._newest_s = loss, now
        self.losses.append((buffer.backwards, loss))
        if self._counters.trainer_logs:
            self._due_s = now + INTERVAL_S
        elif now >= self._due_s:
            self._due_s = now + INTERVAL_S
            if not is_scaled:
                self._divided_by = _divisor(tensor)
            self._read(self._counters.step + 1)
        self._simple_until_s = 0.0 if is_scaled or self.groups.follows or caller is not frame else self._due_s

    def _note_other(self, call: Any, source_line: Any, loss: Any, now: float) -> None:
        """Note the loss of another call than the followed one, and how often it came between two of those."""
        candidate = self._others.get(call)
        if candidate is None and len(self._others) < MAX_OTHERS:
            candidate = self._others[call] = SimpleNamespace(source_line=source_line, after=0, alternations=0)
        if candidate is not None:
            candidate.alternations += self._counters.buffer.backwards > candidate.after
            candidate.after, candidate.called_s, candidate.loss = self._counters.buffer.backwards, now, loss

    def _read(self, step: int) -> None:
        """Read the loss of a step, and those of other optimizers. It is written later, when more steps were made."""
        several = len(self._counters.buffer.optimizers) > 1
        others = [
            each
            for each in self._others.values()
            if several and each.alternations > 1 and self._newest_s - each.called_s < FORGET_S
        ]
        losses = [self._newest, *(other.loss for other in others)]
        source_lines = [self._source_line, *(other.source_line for other in others)]
        devices = {getattr(each, "device", None) for each in losses}
        read_from = (source_lines, self._divided_by, step, self._present_rate())
        if devices == {None}:  # all are numbers
            self._losses, self._read_from = losses, read_from
        elif len(devices) == 1 and self._newest.device.type == "cuda":
            self._read_copy()
            # While a CUDA graph is captured, the operations below would become a part of it.
            if self._copied is None and not self._torch.cuda.is_current_stream_capturing():
                stacked = self._torch.stack([each.reshape(()).float() for each in losses])
                self._copied, self._copied_from = copy_to_host(self._torch, stacked), read_from

    def _read_copy(self) -> None:
        if self._copied is not None and self._copied.has_arrived():
            self._losses, self._read_from, self._copied = self._copied.values(), self._copied_from, None

    def _present_rate(self) -> float | None:
        rate = self._settings.present_rate()
        # At the end of the process the optimizer of a function is gone: that of its last step.
        return number_of(self._counters.buffer.rate) if rate is None else rate

    def write(self) -> None:
        """Write the loss if there is a new one."""
        if self._newest is None or self._counters.trainer_logs:
            return
        self._read_copy()
        if self._losses and self._losses != self._written:
            self._written = self._losses
            source_lines, divisor, step, rate = self._read_from
            micro_batches = round(self._counters.buffer.backwards / max(1, self._counters.own_steps))
            if self._counters.trainer_reports and micro_batches not in (1, divisor):
                return  # divided by the items of all micro batches, as the Trainer of transformers lets the model do
            # `loss = loss / accumulation` before `backward()`: undone only if the divisor is the number of micro
            # batches, because a loss may be divided for other reasons.
            loss = self._losses[0] * divisor if divisor == micro_batches else self._losses[0]
            parts = None if len(self._losses) < 2 else dict(zip(_names(source_lines), self._losses))  # noqa: B905
            step = max(step, self._counters.first_step + 1)  # it may have been read before that was known
            fields = {"step": step, "loss": None if parts else loss, "parts": parts, "source": SOURCE}
            rate = self._present_rate() if rate is None else rate  # before the first step no optimizer is known
            self._session.report_counters("metrics", dict(fields, learning_rate=rate))

    def at_exit(self) -> None:
        """Read the last loss, now that nothing waits for it."""
        self.groups.at_exit(perf_counter())
        if self._newest is not None and not self._counters.trainer_logs:
            self._copied = None
            self._newest = float(self._newest)
            for candidate in self._others.values():
                candidate.loss = float(candidate.loss)
            self._read(self._counters.step)
            self.write()


def _called_at(frame: FrameType) -> int:
    return -1 if frame.f_back is None else frame.f_back.f_lasti


def _loss_owner(frame: FrameType) -> FrameType:
    """The outermost frame that has `backward` called, up to the script: a library such as accelerate calls it for the
    script or for another library, while one with a loop of its own (SAC of Stable-Baselines3) has losses of its own."""
    owner = frame
    for caller in calling_frames(frame, MAX_FRAMES):
        if _CALLS_BACKWARD.search(linecache.getline(caller.f_code.co_filename, caller.f_lineno)):
            owner = caller
        if kind_of_code(caller.f_code.co_filename) == "script":
            break
    return owner


def _call_of(caller: FrameType) -> tuple[tuple[CodeType, int, int], tuple[CodeType, int, int]]:
    """A place in a function of the script, and the one from which another function of the script has called that:
    their instructions and their lines, -1 and 0 without such a function."""
    outer = caller.f_back
    if outer is None or kind_of_code(outer.f_code.co_filename) != "script":
        return (caller.f_code, caller.f_lasti, -1), (caller.f_code, caller.f_lineno, 0)
    return (caller.f_code, caller.f_lasti, outer.f_lasti), (caller.f_code, caller.f_lineno, outer.f_lineno)


_CALLS_BACKWARD = re.compile(r"\b(?:manual_)?backward\(")
_ARGUMENT = re.compile(r"(?:backward|scale)\(\s*([A-Za-z_][\w.]*)\s*[,)]")
_CALLED_ON = re.compile(r"([^;=]*)\.backward\(")


def _names(source_lines: list[Any]) -> list[str]:
    """What `backward` is called on at each place, by the line of source; numbered by their lines if these are alike."""
    names, lines = [], []
    for code, line, outer_line in source_lines:
        source = linecache.getline(code.co_filename, line)
        match = _ARGUMENT.search(source) or _CALLED_ON.search(source)
        names.append("loss" if match is None else match[1].strip()[:MAX_NAME] or "loss")
        lines.append(f"{names[-1]} (line {outer_line or line})")
    return names if len(set(names)) == len(names) else lines


def _value_of(loss: Any) -> Any:
    """Of a CPU the number: holding thousands of tensors would have each one allocated in cold memory."""
    return float(loss.item()) if loss.is_cpu else loss.detach()


MAX_NODES = 10_000
"""Of the graph of a loss that are searched for a parameter."""


class GradientGroups:
    """Tells the steps of an optimizer that is not derived from torch's, such as those of fastai and Keras.

    Calls of `backward` between which a parameter and its gradient were left alone accumulate gradients for one step;
    a step changes the parameter, and the gradient is reset before the next one. `follows`: there is no optimizer of
    torch, whose first step may call `backward` many times. A step is counted when the next one begins.
    """

    def __init__(self, counters: StepCounters, settings: SettingsInEffect) -> None:
        self._counters = counters
        self._settings = settings
        self._parameter: Any = None
        self._left: tuple[Any, ...] | None = None
        self._ended_at = 0
        self._counted = 0
        self._was_planned = False
        self.follows = False
        counters.count_ended_group = lambda: call_safely(self.count_ended)

    def before(self, loss: Any, frame: FrameType, now: float, first_step: Callable[[FrameType, Any], None]) -> None:
        """Count a step if the calls of `backward` so far were for another one than this."""
        counters = self._counters
        others_step = self._settings.has_optimizer or counters.own_steps > self._counted
        self.follows = not others_step and not counters.trainer_reports
        if not self.follows:
            return
        parameter = None if self._parameter is None else self._parameter()
        if parameter is None:
            parameter, self._left = _parameter_of(loss), None
            self._parameter = None if parameter is None else ref(parameter)
            self.follows = parameter is not None
        elif self._ended(now) and not self._was_planned:
            self._was_planned = True
            first_step(frame, parameter)
        if self._counted:
            counters.process_step(now)

    def _ended(self, now: float) -> bool:
        """Count a step if the parameter or its gradient was changed. Returns whether there was a step so far."""
        parameter = None if self._parameter is None else self._parameter()
        if parameter is not None and self._left not in (None, _versions(parameter)):
            self._step(now)
        return self._counted > 0

    def count_ended(self) -> None:
        """Count a step that has ended, before an evaluation or a checkpoint."""
        if self.follows:
            self._ended(perf_counter())

    def stop(self) -> None:
        """An optimizer of torch has stepped: what came before, such as a test of the gradients, were no steps."""
        if self._counted:
            self._counters.drop_steps(self._counted)
        self._counted, self.follows = 0, False

    def _step(self, now: float) -> None:
        self._counted += 1
        self._left = None
        self._counters.group_ended(self._ended_at, now)

    def after(self) -> None:
        """Note how a call of `backward` leaves the parameter and its gradient."""
        parameter = self._parameter()
        self._left = None if parameter is None else _versions(parameter)
        buffer = self._counters.buffer
        self._ended_at = buffer.written()
        buffer.due_s = buffer.due_s or perf_counter() + INTERVAL_S

    def at_exit(self, now: float) -> None:
        """Count the last step."""
        if self.follows and self._counted and self._left is not None:
            self._step(now)


def _versions(parameter: Any) -> tuple[Any, ...]:
    gradient = parameter.grad
    return parameter._version, id(gradient), None if gradient is None else gradient._version


def _parameter_of(loss: Any) -> Any:
    """A parameter that the loss depends on, None if none is found."""
    nodes, seen = [loss.grad_fn], 0
    while nodes and seen < MAX_NODES:
        node = nodes.pop()
        seen += 1
        if node is None:
            continue
        variable = getattr(node, "variable", None)
        if variable is not None and variable.is_leaf and variable.requires_grad:
            return variable
        nodes.extend(each for each, _ in node.next_functions)
    return None


def _divisor(loss: Any) -> float:
    """The number on a CPU by which `loss` was divided, 1 if it was not."""
    # The graph of the loss says how it was computed last; `_saved_other` is the divisor that the division keeps for its
    # own gradient.
    function = loss.grad_fn
    if function is None or function.name() != "DivBackward0":
        return 1.0
    operand = function._saved_other
    return float(operand) if operand is not None and operand.is_cpu and operand.numel() == 1 else 1.0
