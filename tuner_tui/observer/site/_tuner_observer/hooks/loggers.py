"""Reads what the script gives to its loggers: the names and values of Weights & Biases, TensorBoard, MLflow and others.

No logger is imported here: each is hooked when the training has imported it, and works as without the hook.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..counters.step_counters import StepCounters
from ..import_hooks import call_after
from ..names import LIBRARIES, NAMES
from ..session import Session
from .reporter import as_float

perf_counter = time.perf_counter
get_ident = threading.get_ident


class Logger(NamedTuple):
    """The logging methods of `owner`, a class of the module, or of the module itself, and their parameters.

    The parameters are one mapping of values by their names, or a name and its value, and then the step.
    `reads`: they convert tensors at once, so that reading one again does not wait for a GPU.
    """

    source: str
    owner: str | None
    methods: Mapping[str, list[str]]
    reads: bool = True


LOGGERS = {module: Logger(**fields) for module, fields in LIBRARIES["loggers"].items()}
"""By the module that defines them."""


def hook_logger(name: str, module: Any, logged: LoggedValues) -> None:
    """Hook the methods of `module`, one of `LOGGERS`."""
    logger = LOGGERS[name]
    owner = module if logger.owner is None else getattr(module, logger.owner)
    for method, parameters in logger.methods.items():
        if hasattr(owner, method):
            call_after(owner, method, functools.partial(logged.add, logger, parameters))


INTERVAL_S = 1.0
EVALUATIONS_AT_ONCE = 50
"""Evaluations written as they come, before they are limited to one a second (a loop may evaluate after every step)."""
MAX_PARTS = 8
PART = 2
"""Order of a loss whose name is that of a part of the training's, such as `losses/value_loss`."""

LOSS, METRIC, OTHER, EVALUATION, IGNORED = "loss", "metric", "other", "evaluation", ""
_WORDS = re.compile(r"(?:[^a-z0-9@]|(?<![a-z0-9@.])\d+\.(?=[a-z]))+")
"""What is between words: also the number in `1.train_loss`, which orders the charts."""
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Kind(NamedTuple):
    """What a name says of its value: its `category`, `key` is its name in an event, and whether it says `trains`.

    Of several losses that of the lowest `order` is the training's.
    """

    category: str
    key: str = ""
    trains: bool = False
    order: int = 0


@functools.lru_cache(maxsize=1000)
def kind_of(name: str) -> Kind:
    """The kind of a logged name such as `train/loss`, `val_acc` or `Loss/test`."""
    words = [word for word in _WORDS.split(_CAMEL_CASE.sub("_", name).lower()) if word]
    unique = set(words)
    named, trains = unique - NAMES["training"], bool(unique & NAMES["training"])
    if named in ({"lr"}, {"learning", "rate"}):
        return Kind("learning_rate")
    if named in ({"grad", "norm"}, {"gradient", "norm"}, {"gradnorm"}, {"gnorm"}):
        return Kind("grad_norm")
    if unique == {"epoch"}:
        return Kind("epoch")
    # cleanrl's `losses/explained_variance` is none.
    group = words[:1] == ["losses"] and not unique <= {"losses", "total", *NAMES["plain_losses"], *NAMES["evaluation"]}
    is_loss = any(word.startswith("loss") or word.endswith("loss") for word in words[group:])
    # The second is the sum of `train/ce` and `train/reg`.
    is_loss = (is_loss and not unique & NAMES["perplexity"]) or (trains and named == {"total"})
    if unique & NAMES["no_figures"] - (NAMES["plain_losses"] if is_loss else frozenset()):
        return Kind(IGNORED)
    left_out = NAMES["evaluation"] | NAMES["means"]
    rest = [word for word in words if word not in left_out]
    if unique & NAMES["evaluation"] and not trains:
        return Kind(EVALUATION, "eval_" + "_".join(rest)) if rest else Kind(IGNORED)
    if is_loss:
        order = 3 if "epoch" in unique else 0 if unique <= NAMES["plain_losses"] else 1 if "total" in unique else PART
        return Kind(LOSS, "eval_" + "_".join(words), trains, order)
    if unique & NAMES["metrics"] and not trains:
        return Kind(METRIC, "eval_" + "_".join(words))
    return Kind(IGNORED) if unique & NAMES["bookkeeping"] else Kind(OTHER, trains=trains)


def training_losses(values: Mapping[str, Any]) -> dict[str, Any]:
    """The loss of the training among logged `values`, and its parts, as fields of an event; empty if there is none."""
    losses = {name: kind.order for name in values if (kind := kind_of(str(name))).category == LOSS}
    if not losses:
        return {}
    main, parts = min(losses, key=losses.__getitem__), [name for name, order in losses.items() if order == PART]
    fields = {"loss": as_float(values[main]), "part": main in parts or None}
    return {**fields, "parts": {name: as_float(values[name]) for name in parts[:MAX_PARTS]} or None}


class LoggedValues:
    """Collects what is logged and writes it with the counters, at most once a second.

    A loss that is logged only with the metrics of an evaluation is one of an epoch, not of the step: a `summary`.
    """

    def __init__(self, session: Session, counters: StepCounters) -> None:
        self._session = session
        self._counters = counters
        self.reset()

    def reset(self) -> None:
        self._thread = get_ident()
        self._device_read_s: dict[str, float] = {}
        self._loss_order = 9
        self._loss_name = ""
        self._loss_step: int | None = None
        self._is_of_steps = False
        self._metrics: dict[str, Any] = {}
        self._parts: dict[str, float] = {}
        self._others: dict[str, float] = {}
        self._evaluated: dict[str, float] = {}
        self._evaluation: dict[str, Any] = {}
        self._evaluations_left = float(EVALUATIONS_AT_ONCE)
        self._evaluation_s = 0.0

    def add(self, logger: Logger, parameters: list[str], _: Any, *args: Any, **kwargs: Any) -> None:
        """Add what was logged by a call with this result and these arguments. A Trainer reports by itself."""
        counters = self._counters
        if counters.trainer_reports or get_ident() != self._thread:
            return
        given = args if logger.owner is None else args[1:]
        arguments = dict(zip(parameters, given), **kwargs)  # noqa: B905 - no `strict` in Python 3.8
        *logged, step = [arguments.get(name) for name in parameters]
        values: Any = logged[0] if len(logged) == 1 else {logged[0]: logged[1]}
        kinds = [(name, kind_of(name), value) for name, value in _flattened(values)]
        kinds = [each for each in kinds if each[1].category != IGNORED]
        if not kinds:
            return
        origin = {"step": self._step(step), "source": logger.source}
        without_gradients = not counters.evaluation.grad_enabled()
        evaluating = without_gradients or counters.clock.paused_phase == "evaluating"
        summary = evaluating or any(kind.category == EVALUATION for _, kind, _ in kinds)
        for name, kind, value in kinds:
            number = self._number(name, value, logger.reads)
            if number is None:
                continue
            unnamed = (kind.category == METRIC and evaluating) or (
                kind.category == LOSS and without_gradients and not kind.trains
            )
            if kind.category == EVALUATION or unnamed:
                self._add_evaluated(kind.key, number, origin)
            elif kind.category == LOSS:
                self._add_loss(name, kind, number, dict(origin, summary=summary or None))
            elif kind.category not in (METRIC, OTHER):
                self._metrics[kind.category] = number
            elif (kind.trains or not evaluating) and (name in self._others or len(self._others) < MAX_PARTS):
                self._others[name] = number
                self._metrics = {**origin, **self._metrics}
        if not counters.own_steps:
            self.write()

    def _step(self, logged: Any) -> int:
        """The optimizer step; that of the script where there is no optimizer."""
        step = self._counters.step
        logged_step = as_float(logged)
        return step if self._counters.own_steps or logged_step is None else int(logged_step)

    def _number(self, name: str, value: Any, reads: bool) -> float | None:
        number = as_float(value)
        if number is not None or not reads or getattr(value, "is_cpu", True):
            return number
        now = perf_counter()
        if now - self._device_read_s.get(name, float("-inf")) < INTERVAL_S:
            return None
        self._device_read_s[name] = now
        return float(value.detach())

    def _add_loss(self, name: str, kind: Kind, number: float, origin: dict[str, Any]) -> None:
        # A loop may log several losses (`loss_cls`, `total_loss`, `epoch_loss`): the one whose name is the plainest is
        # followed. If it comes at steps without an evaluation it is the loss of a step; if only together with
        # evaluations it is a mean over the epoch, a `summary`.
        if kind.order == PART and (name in self._parts or len(self._parts) < MAX_PARTS):
            self._parts[name] = number
        if name == self._loss_name or kind.order < self._loss_order:
            step = origin["step"]
            if name != self._loss_name:
                self._loss_step, self._is_of_steps = None, False
            evaluated = self._evaluation.get("step")
            self._is_of_steps = self._is_of_steps or self._loss_step not in (None, step, evaluated)
            self._loss_name, self._loss_order, self._loss_step = name, kind.order, step
            if self._is_of_steps:
                origin = dict(origin, summary=None)
            elif evaluated == step:
                origin = dict(origin, summary=True)
            self._metrics.update(origin, loss=number, part=kind.order == PART or None)

    def _add_evaluated(self, key: str, number: float, origin: dict[str, Any]) -> None:
        if self._evaluated and origin["step"] != self._evaluation["step"]:
            self._write_evaluation()
        self._evaluated[key] = number
        self._evaluation = origin
        if self._metrics.get("step") == origin["step"] and not self._is_of_steps:
            self._metrics["summary"] = True

    def _write_evaluation(self) -> None:
        now = perf_counter()
        self._evaluations_left = min(float(EVALUATIONS_AT_ONCE), self._evaluations_left + now - self._evaluation_s)
        self._evaluation_s = now
        if self._evaluations_left >= 1:
            self._evaluations_left -= 1
            self._session.report("evaluated", metrics=self._evaluated, **self._evaluation)
        self._evaluated = {}

    def write(self) -> None:
        """Write what is new. Without steps there is no other occasion than the call itself."""
        if self._evaluated:
            self._write_evaluation()
        if "loss" in self._metrics or self._others:
            self._session.report_counters(
                "metrics", dict(self._metrics, parts=self._parts or None, others=self._others or None)
            )
            self._metrics, self._parts, self._others = {}, {}, {}


def _flattened(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if hasattr(value, "items"):
            yield from ((f"{name}/{each}", number) for each, number in value.items())
        else:
            yield str(name), value
