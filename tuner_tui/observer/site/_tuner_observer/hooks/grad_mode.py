"""Hooks no_grad and inference_mode, as contexts and as decorators, and shows evaluations while they last.

A span in which no model is called, such as weight averaging, evaluates nothing. Neither does what torch and torchvision
do themselves, such as `clip_grad_norm_`, the buffers of `DistributedDataParallel` and `save_image`. Optimizers disable
gradients in another way, which is not hooked.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..counters.evaluation import generates
from ..counters.step_counters import StepCounters
from ..import_hooks import call_around, call_before, call_safely, outer_frame, replacing

if TYPE_CHECKING:
    from ..counters.evaluation import CallSite

    ForwardHooks = dict[Any, Callable[..., None]]

perf_counter = time.perf_counter
get_ident = threading.get_ident

MIN_SPAN_S = 1e-3
"""Shorter spans are gradient clipping, weight averaging and the like."""

HOOK = "tuner-tui"
"""Key of the hook among those that torch calls before the forward of every module."""


class NoGradTracker:
    """Nesting depth of these contexts in the training's thread, and when and where the outermost one was entered.

    An evaluation is shown while it lasts. It begins in a context in which a model is in eval mode, or with the first
    call of a model at a place that evaluates: where gradients are disabled, or with gradients after `eval()`. A library
    may enter the context for each batch, so it lasts until `train()` or `backward()` is called, and ended with the last
    context.
    """

    __slots__ = ("awaits_train", "compiles", "count", "counters", "evaluation", "since_s", "site", "spans", "thread")

    def __init__(self, counters: StepCounters) -> None:
        self.counters = counters
        self.evaluation = counters.evaluation
        self.spans = counters.buffer.no_grad_spans
        self.thread = get_ident()
        self.count = 0
        self.since_s = 0.0
        self.site: CallSite | None = None
        self.compiles = self.awaits_train = False
        self.evaluation.on_eval = self.eval_called
        self.evaluation.on_distrust = self._distrust
        counters.on_evaluation = self._await_train

    def enter(self, _: object) -> None:
        if get_ident() == self.thread:
            if not self.count:
                self.since_s = perf_counter()
                self.site = call_safely(_call_site, outer_frame())
                self._await_call()
            self.count += 1

    def _await_call(self) -> None:
        # A global forward hook slows every module of the model down. So it exists only until the first call, and not at
        # places that are known to be training's; nor where torch compiles, which warns of hooks.
        if self.site is not None and not self.compiles and self.site not in self.counters.evaluation_sites.training:
            _forward_hooks()[HOOK] = self.model_called

    def entered(self, *_: object) -> None:
        """Called when the gradients are disabled, unless it is `inference_mode(False)`."""
        if self.count == 1 and self.evaluation.is_in_eval_mode and get_ident() == self.thread:
            self._eval_without_gradients()

    def eval_called(self) -> None:
        """A model is in eval mode now: begin an evaluation if there are no gradients, else wait for its first call."""
        if self.count:
            self._eval_without_gradients()
            return
        self.since_s, self.site = perf_counter(), _call_site(outer_frame())  # of the caller of `eval`
        if self.evaluation.has_stepped:
            self._await_call()
        elif self.site is not None:
            # Modes that change within the step, as where adversarial examples are computed, change before the first.
            self.counters.evaluation_sites.passed_first(self.site)

    def _eval_without_gradients(self) -> None:
        if self.evaluation.has_stepped and not self.evaluation.grad_enabled():
            self._pause(self.since_s, outer_frame())

    def _pause(self, since_s: float, frame: FrameType | None) -> None:
        session = self.counters.session
        session.generates = self.counters.clock.paused_phase is None and generates(frame)
        self.counters.pause("evaluating", since_s)

    def _distrust(self) -> None:
        """The outputs of a model in eval mode, such as a teacher's, were for the step."""
        if self.site in self.counters.evaluation_sites.training:
            self.counters.clock.end_pause(perf_counter())
            self.counters.clock.drop_evaluation()
        if self.site is not None:
            self.counters.evaluation_sites.training.add(self.site)

    def compiling(self) -> None:
        """Set no more hooks."""
        self.compiles = True
        _forward_hooks().pop(HOOK, None)

    def model_called(self, module: Any, inputs: Any) -> None:
        """Begin an evaluation if this place evaluates. Called before every forward of a module until the first of a
        model."""
        if get_ident() != self.thread:
            return
        in_eval_mode = self.evaluation.is_in_eval_mode
        if self.evaluation.grad_enabled() and (self.count or (in_eval_mode and module.training)):
            return  # `enable_grad` within the context, or an augmentation before the model
        _forward_hooks().pop(HOOK, None)
        if in_eval_mode != bool(self.count):
            call_safely(self._model_called, sys._getframe(1))

    def _model_called(self, frame: FrameType | None) -> None:
        counters, site, since_s = self.counters, self.site, self.since_s
        if site is None or self.evaluation.depth or counters.clock.paused_phase:
            evaluates, since_s = counters.clock.paused_phase == "evaluating", perf_counter()  # it goes on
        elif _is_in_forward(frame, site):
            evaluates = False
            counters.evaluation_sites.training.add(site)
        else:
            optimizers = max(1, len(counters.buffer.optimizers))
            evaluates = counters.evaluation_sites.evaluates(site, counters.calls(), optimizers)
        if evaluates:
            counters.session.marks_output = True
            self._pause(since_s, frame)

    def _await_train(self) -> None:
        """End the evaluation when its model is in train mode again.

        `train` is hooked only until then: it calls itself for each module of a model, in some loops before every step.
        """
        if self.awaits_train or self.evaluation.depth or not self.evaluation.is_in_eval_mode:
            return
        module_class = sys.modules["torch.nn.modules.module"].Module
        original = module_class.train
        self.awaits_train = True

        @replacing(module_class, "train")
        def train(module: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(module, *args, **kwargs)
            if self.awaits_train and not self.evaluation.is_in_eval_mode:
                self.awaits_train = False
                if module_class.train is train:
                    module_class.train = original
                call_safely(self._trains_again)
            return result

    def _trains_again(self) -> None:
        self.counters.session.output_ended()
        if self.counters.clock.paused_phase == "evaluating":
            self.counters.gradients_follow(perf_counter())

    def leave(self, _: object, error: type[BaseException] | None, *__: object) -> None:
        """Leave a context, recording the outermost one unless it was `inference_mode(False)`."""
        if get_ident() != self.thread or not self.count:
            return
        self.count -= 1
        if not self.count:
            _forward_hooks().pop(HOOK, None)
        if not self.count and not self.evaluation.grad_enabled():
            now = perf_counter()
            # Evidence for `StepGapClassifier`, which recognises the evaluations that were not shown while they lasted.
            if now - self.since_s >= MIN_SPAN_S and self.site is not None:
                self.spans.append((self.since_s, now))
            if error is None:
                self.counters.gradients_enabled(now)
            self.counters.session.output_ended()


def _forward_hooks() -> ForwardHooks:
    hooks: ForwardHooks = getattr(sys.modules.get("torch.nn.modules.module"), "_global_forward_pre_hooks", {})
    return hooks


def _call_site(frame: FrameType) -> CallSite | None:
    """Where the context is entered that `frame` enters, or the function that it decorates; None in torch itself."""
    site: CallSite = (frame.f_code, frame.f_lasti)
    module = frame.f_globals.get("__name__")
    if frame.f_code.co_name == "decorate_context":
        function = frame.f_locals.get("func")
        site, module = (getattr(function, "__code__", function), -1), getattr(function, "__module__", None)
    return None if str(module).partition(".")[0] in ("torch", "torchvision") else site


def _is_in_forward(frame: FrameType | None, site: CallSite) -> bool:
    """Whether `site`, which called `frame`, was itself called by the forward of a module."""
    passed = False
    while frame is not None:
        passed = passed or frame.f_code is site[0]
        if passed and frame.f_code.co_name == "_call_impl":
            return True
        frame = frame.f_back
    return False


def hook_grad_mode(grad_mode: Any, depth: NoGradTracker) -> None:
    """Hook those contexts of `torch.autograd.grad_mode` that this version of torch has."""
    for name in ("no_grad", "inference_mode"):
        context = grad_mode.__dict__.get(name)
        if context is not None and {"__enter__", "__exit__"} <= context.__dict__.keys():
            call_around(context, "__enter__", depth.enter, depth.entered)
            call_before(context, "__exit__", depth.leave)
