"""Detects evaluation in a loop without a framework: gradients off, a model in eval mode, or a trainer's notice.

A plain loop does not announce its evaluations, and they vary: without `eval()`, with gradients, stopped half-way.
Those that were not detected while they lasted are recognised afterwards: batches of a validation loader come in a block
and are not consumed by the next step.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..import_hooks import call_around
from ..names import NAMES
from .batch_stats import IteratorStats

if TYPE_CHECKING:
    CallSite = tuple[Any, int]
    """A code object and an instruction in it, or a function decorated as a whole."""
    Span = tuple[float, float]
    """Start and end, by `perf_counter`."""

get_ident = threading.get_ident


class EvaluationDetector:
    """Tells whether the loop is evaluating.

    Eval mode is only a hint: some loops keep a frozen teacher in it, some never leave it. After the first optimizer
    step in spite of it the hint is ignored for good, and where a Trainer announces its evaluations: it may fetch the
    next batches before it calls `train()` again.
    """

    def __init__(self, grad_enabled: Callable[[], bool]) -> None:
        """`grad_enabled`: torch.is_grad_enabled.

        `on_eval` is called when a model enters eval mode, `on_distrust` when a step shows that this means nothing.
        `left_in_eval`: a reference to the model that remains in it while it is trained, and the first such step.
        """
        self.grad_enabled = grad_enabled
        self.on_eval: Callable[[], None] = lambda: None
        self.on_distrust: Callable[[], None] = lambda: None
        self.reset()

    def reset(self) -> None:
        self.depth = 0
        self.has_stepped = False
        self._model: Any = None
        self._left_at: tuple[Any, int] | None = None
        self.left_in_eval: tuple[Any, int] | None = None
        self._trusts_mode, self._was_training = True, False
        self._frozen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._thread = get_ident()

    def ignore_mode(self) -> None:
        """Ignore the modes of models from now on."""
        self._trusts_mode, self._model = False, None

    def hook_eval_mode(self, module_class: Any, before: Callable[[], None]) -> None:
        """Hook `eval` if this class defines it; not `train()`, which Trainer calls on every module at every step.

        `before` is called before the state changes.
        """
        if "eval" in module_class.__dict__:
            called = lambda entered, *_: self._eval_called(entered[0], entered[1], before)  # noqa: E731
            call_around(module_class, "eval", lambda module: (module, module.training), called)

    def _eval_called(self, module: Any, was_training: bool, before: Callable[[], None]) -> None:
        if not self._trusts_mode or get_ident() != self._thread or module in self._frozen:
            return
        before()
        if not self.has_stepped:
            self.on_eval()
            return
        if not any(each.requires_grad for each in module.parameters()):
            self._frozen.add(module)  # a teacher, whose mode says nothing of the training
            return
        self._was_training = was_training or (self._was_training and self._model == weakref.ref(module))
        self._model = weakref.ref(module)
        self.on_eval()

    @property
    def is_in_eval_mode(self) -> bool:
        """Whether the model that entered eval mode last is still in it."""
        model = self._model and self._model()
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
        if trained:
            return False
        if not self.is_in_eval_mode:
            self._model = None
        return self._model is not None

    def step_done(self, step: int) -> None:
        """Note an optimizer step: the loop is training, whatever the mode of the model."""
        self.has_stepped = True
        if self.is_in_eval_mode:
            # A step in eval mode: the model stays in it on purpose, as where batch norm is frozen. Trusting the mode
            # would turn every batch from now on into an evaluation's.
            self._left_at = (self._model, step) if self._was_training else None
            self.ignore_mode()
            self.on_distrust()
        self._model = None

    def note_mode(self) -> None:
        """Called at some steps: a model that is back in train mode was not left in eval mode."""
        if self._left_at is not None:
            model = self._left_at[0]()
            self.left_in_eval = self._left_at = None if model is None or model.training else self._left_at


MAX_STEPS_IN_A_ROW = 3
"""A place that was first passed long after the first step, and then before so many in a row, belongs to training."""


class EvaluationSites:
    """Tells evaluations from training by the place in the code that disables gradients.

    A plain loop may evaluate with neither a loader nor `eval()`. What a training computes without gradients differs
    from that: the rollouts and targets of reinforcement learning, latents, or the outputs of a teacher are needed for a
    step, so the same place was passed before the first step of an optimizer, or lies within a model's forward. So are
    those of another place in a function of rollouts, such as the values of an episode that was cut off.

    A function may say by its name that it evaluates, which counts where a loop evaluates before its first step.

    `training`: the places that never evaluate. A function in which an optimizer steps may hold places of both kinds.
    """

    def __init__(self) -> None:
        self.training: set[CallSite] = set()
        self._steps_in: set[Any] = set()
        self._passed: dict[CallSite, tuple[int, int, int]] = {}

    def passed_first(self, site: CallSite) -> None:
        """Note a place before the first step of all.

        Rollouts, targets and latents are computed there. An untrained model may be evaluated there too, which nothing
        but a name tells from them.
        """
        words = frozenset(getattr(site[0], "co_name", "").lower().split("_"))
        estimates_loss = words >= {"estimate", "loss"}  # returns and advantages are estimated for the next steps
        if not estimates_loss and NAMES["evaluating_functions"].isdisjoint(words):
            self.training.add(site)

    def evaluates(self, site: CallSite, calls: int, optimizers: int) -> bool:
        """Whether a model that is called at `site`, after `calls` steps of so many optimizers, is evaluated."""
        if not calls:
            self.passed_first(site)
        if site[0] not in self._steps_in and any(code is site[0] for code, _ in self.training):
            self.training.add(site)
        if not calls or site in self.training:
            return False
        first, last, in_a_row = self._passed.get(site, (calls, calls, 0))
        # Passed once for each step, a place belongs to the step; every n-th step, or several times after one, it
        # evaluates.
        if calls != last:
            in_a_row = in_a_row + 1 if calls - last <= optimizers else 0
        self._passed[site] = (first, calls, in_a_row)
        if first > optimizers and in_a_row >= MAX_STEPS_IN_A_ROW:
            self.training.add(site)
        return site not in self.training

    def optimizer_added(self, calls: int, frame: FrameType | None) -> bool:
        """Called after the first step of each optimizer, the `calls`th of all, in `frame`. Returns whether it needed a
        place.

        What was passed for the first time since the step before was needed for this one, such as a trained teacher.
        """
        while frame is not None:
            self._steps_in.add(frame.f_code)
            frame = frame.f_back
        needed = {site for site, (first, _, _) in self._passed.items() if first == calls - 1}
        self.training |= needed
        return bool(needed)


def generates(frame: FrameType | None) -> bool:
    """Whether the innermost function that says by its name what it is for generates samples, and does not evaluate."""
    words: frozenset[str] = frozenset()
    while frame is not None and not words & (NAMES["evaluating_functions"] | NAMES["generating_functions"]):
        words, frame = frozenset(frame.f_code.co_name.lower().split("_")), frame.f_back
    return words.isdisjoint(NAMES["evaluating_functions"]) and not words.isdisjoint(NAMES["generating_functions"])


MIN_BLOCK_BATCHES = 3
"""Consecutive batches of one loader that no step consumed, which count as an evaluation without further evidence."""


# How the two are distinguished. At a step, every iterator that delivered since the step before is pending. One that an
# earlier step consumed is training's. Among those that never trained, one is an evaluation's if it was read to its end
# without a step, or in one block (no training batch in between) that either ran without gradients or is longer than any
# training block. What delivers a batch or two between every pair of steps, such as the unlabelled loader of semi-
# supervised training or the second domain of a CycleGAN, stays training's.
class StepGapClassifier:
    """Classifies batches and spans without gradients at each step.

    The caller may skip `classify` for a step with a single iterator and no span, and sets `skipped` instead.
    """

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self.skipped = False
        self._last_evaluations: list[IteratorStats] = []

    def classify(
        self, pending: Sequence[IteratorStats], no_grad_spans: deque[Span], now: float
    ) -> tuple[list[IteratorStats], list[Span]]:
        """The iterators in `pending` that the step at `now` did not consume, and the spans of evaluations.

        Removes the spans without gradients before `now` from `no_grad_spans`. The returned spans may overlap.
        """
        if self.skipped:
            self._last_evaluations, self.skipped = [], False
        self._spans.clear()
        while no_grad_spans and no_grad_spans[0][1] <= now:
            self._spans.append(no_grad_spans.popleft())
        evaluations = self._evaluation_iterators(pending) if len(pending) > 1 else []
        self._last_evaluations = evaluations
        trained = [iterator for iterator in pending if iterator not in evaluations]
        return evaluations, [self._block(iterator, trained) for iterator in evaluations]

    def _evaluation_iterators(self, pending: Sequence[IteratorStats]) -> list[IteratorStats]:
        """Iterators whose batches the step did not consume."""
        trained = [iterator for iterator in pending if iterator.has_trained]
        # Before the first step nothing has trained yet: the batch that was fetched last is the one that the step
        # consumed.
        if not trained:
            trained = [max(pending, key=lambda iterator: iterator.last_s)]
        return [iterator for iterator in pending if not iterator.has_trained and self._is_evaluation(iterator, trained)]

    def _is_evaluation(self, iterator: IteratorStats, trained: Sequence[IteratorStats]) -> bool:
        """Whether this iterator was read to its end without a step, or in one block that is long or without gradients.

        An iterator that delivers between every two steps belongs to the training.
        """
        if iterator.exhausted:
            return True
        # A block in two consecutive gaps is no evaluation that began anew, but a loader that each step uses.
        if iterator in trained or iterator in self._last_evaluations or iterator.first_s is None:
            return False
        if any((peer.first_s or 0.0) < iterator.last_s and peer.last_s > iterator.first_s for peer in trained):
            return False
        until_s = min(
            (peer.first_s for peer in trained if peer.first_s and peer.first_s > iterator.last_s), default=None
        )
        without_gradients = any(
            iterator.first_s <= began and (until_s is None or began < until_s) for began, _ in self._spans
        )
        if any(iterator.loader is not None and peer.loader is iterator.loader for peer in trained):
            return without_gradients  # of the next epoch: the last one ended between two steps
        return without_gradients or (
            iterator.batches >= MIN_BLOCK_BATCHES and iterator.batches > max(peer.batches for peer in trained)
        )

    def _block(self, iterator: IteratorStats, trained: Sequence[IteratorStats]) -> Span:
        """From its first batch until training fetches again, or if that was earlier, until gradients are enabled."""
        began_s = iterator.first_s or iterator.last_s
        after = [peer.first_s for peer in trained if peer.first_s is not None and peer.first_s > iterator.last_s]
        ends = [ended for began, ended in self._spans if began >= began_s]
        return began_s, min(after) if after else max([iterator.last_s, *ends])


def covered_s(spans: Sequence[Span], from_s: float, to_s: float) -> float:
    """Seconds between `from_s` and `to_s` covered by `spans`, overlaps counted once."""
    total_s, reached_s = 0.0, from_s
    for began_s, ended_s in sorted(spans):
        began_s, ended_s = max(began_s, reached_s), min(ended_s, to_s)
        if ended_s > began_s:
            total_s += ended_s - began_s
            reached_s = ended_s
    return total_s
