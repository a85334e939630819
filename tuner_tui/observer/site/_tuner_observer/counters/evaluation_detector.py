"""Detects evaluation in a loop without a framework: gradients off, a model in eval mode, or a trainer's notice."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..import_hooks import call_after

if TYPE_CHECKING:
    Place = tuple[Any, int]
    """A code object and an instruction in it, or a function decorated as a whole."""

get_ident = threading.get_ident


class EvaluationDetector:
    """Tells whether the loop is evaluating.

    Eval mode is only a hint: some loops keep a frozen teacher in it, some never leave it. After the first optimizer
    step in spite of it the hint is ignored for good.
    """

    def __init__(self, grad_enabled: Callable[[], bool]) -> None:
        """`grad_enabled`: torch.is_grad_enabled. `on_eval` is called when a model enters eval mode."""
        self.grad_enabled = grad_enabled
        self.on_eval: Callable[[], None] = _nothing
        self.reset()

    def reset(self) -> None:
        """Discard the state, in a forked child."""
        self.depth = 0
        self.has_stepped = False
        self._model: Any = None
        self._since_s: float | None = None
        self._trusts_mode = True
        self._frozen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._thread = get_ident()

    def hook_eval_mode(self, module_class: Any, before: Callable[[], None]) -> None:
        """Hook `eval` if this class defines it; not `train()`, which Trainer calls on every module at every step.

        `before` is called before the state changes.
        """
        if "eval" in module_class.__dict__:
            call_after(module_class, "eval", lambda _, module: self._eval_called(module, before))

    def _eval_called(self, module: Any, before: Callable[[], None]) -> None:
        if not self._trusts_mode or get_ident() != self._thread or module in self._frozen:
            return
        before()
        if not self.has_stepped:
            self.on_eval()
            return
        if not any(each.requires_grad for each in module.parameters()):
            self._frozen.add(module)  # a teacher, whose mode says nothing of the training
            return
        self._model = weakref.ref(module)
        if self._since_s is None:
            self._since_s = time.perf_counter()
        self.on_eval()

    @property
    def is_in_eval_mode(self) -> bool:
        """Whether the model that entered eval mode last is still in it."""
        if self._model is None:
            return False
        model = self._model()
        return model is not None and not model.training

    @property
    def is_ruled_out(self) -> bool:
        """Whether the next batch can only be an evaluation's if gradients are disabled."""
        return not self.depth and self._model is None

    def is_evaluating(self, trained: bool = False) -> bool:
        """Whether the next batch is for evaluation. `trained`: its iterator was used by earlier optimizer steps.

        Such an iterator is training's even in eval mode: a loop may fetch its next batch before it calls `train()`
        again.
        """
        if self.depth or not self.grad_enabled():
            return True
        if self._model is None or trained:
            return False
        model = self._model()
        if model is None or model.training:
            self._model = None
            return False
        return True

    def take_start_s(self) -> float | None:
        """Time at which the model entered eval mode since the last step, if it trains again. Resets it."""
        since_s, self._since_s = self._since_s, None
        return since_s

    def step_done(self) -> None:
        """Note an optimizer step: the loop is training, whatever the mode of the model."""
        self.has_stepped = True
        self._since_s = None
        if self._model is not None:
            model = self._model()
            if model is not None and not model.training:
                # A step in eval mode: the model stays in it on purpose, as where batch norm is frozen. Trusting the
                # mode would turn every batch from now on into an evaluation's.
                self._trusts_mode = False
            self._model = None


def _nothing() -> None:
    return None


EVALUATION_WORDS = frozenset(
    {"eval", "evaluate", "evaluation", "val", "valid", "validate", "validation", "test", "testing", "estimate"}
)
"""Words in the name of a function that evaluates."""
MAX_STEPS_IN_A_ROW = 3
"""A place that was first passed long after the first step, and then before so many in a row, belongs to training."""


class EvaluationPlaces:
    """Tells evaluations from training by the place in the code that disables gradients.

    A plain loop may evaluate with neither a loader nor `eval()`. What a training computes without gradients differs
    from that: the rollouts and targets of reinforcement learning, latents, or the outputs of a teacher are needed for a
    step, so the same place was passed before the first step of an optimizer, or lies within a model's forward.

    A function may say by its name that it evaluates, which counts where a loop evaluates before its first step.

    `training`: the places that never evaluate.
    """

    def __init__(self) -> None:
        self.training: set[Place] = set()
        self._passed: dict[Place, tuple[int, int, int]] = {}

    def passed_first(self, place: Place) -> None:
        """Note a place before the first step of all.

        Rollouts, targets and latents are computed there. An untrained model may be evaluated there too, which nothing
        but a name tells from them.
        """
        words = getattr(place[0], "co_name", "").lower().split("_")
        if EVALUATION_WORDS.isdisjoint(words):
            self.training.add(place)

    def evaluates(self, place: Place, calls: int, optimizers: int) -> bool:
        """Whether a model that is called at `place`, after `calls` steps of so many optimizers, is evaluated."""
        if not calls:
            self.passed_first(place)
        if not calls or place in self.training:
            return False
        first, last, in_a_row = self._passed.get(place, (calls, calls, 0))
        # Passed once for each step, a place belongs to the step; every n-th step, or several times after one, it
        # evaluates.
        if calls != last:
            in_a_row = in_a_row + 1 if calls - last <= optimizers else 0
        self._passed[place] = (first, calls, in_a_row)
        if first > optimizers and in_a_row >= MAX_STEPS_IN_A_ROW:
            self.training.add(place)
        return place not in self.training

    def optimizer_added(self, calls: int) -> None:
        """Called after the first step of each optimizer, the `calls`th of all.

        What was passed for the first time since the step before was needed for this one, such as a trained teacher.
        """
        self.training.update(place for place, (first, _, _) in self._passed.items() if first == calls - 1)
