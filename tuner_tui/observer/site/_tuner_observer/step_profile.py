"""Profiles a few optimizer steps when it is asked to: first as many plain ones, then those under `torch.profiler`.

A request for their memory goes to the allocator's history instead.

Requests and answers are lines of JSON in the file in memory `tuner-profile:0:PID` (see `inspection.py`), which the
reader keeps locked while it waits. It is looked at about once a second, so that a step costs nothing until then. The
trace goes to a file without a name, whose descriptor is in the answer: the reader evaluates it, not the training.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any
from weakref import ref

from .allocator_history import AllocatorHistory
from .counters.step_counters import StepCounters
from .import_hooks import around_module_calls, call_safely
from .inspection import memory_file
from .process_role import rank_and_world

MAX_STEPS = 100
EVENT_FACTOR = 3
"""Recording and saving the events of a step cost about twice as much as stopping the profiler after them."""
OWN_PROFILER = "the training uses a profiler of its own"
MAX_REQUEST_BYTES = 2**16
MARK, PAUSED_MARK, MODULE_PREFIX = "tuner.step", "tuner.paused-step", "tuner.module:"
NATIVE_TOOLS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "ROCP_TOOL_LIB")
"""Set by nsys, ncu and rocprof, which take the GPU's activity records for themselves."""
MEMORY = "/dev/shm"  # noqa: S108 - the file has a random name, and none when it is complete
perf_counter = time.perf_counter


class StepProfiler:
    """Answers the requests of this process. `find_model` returns the model whose modules are named, or None."""

    def __init__(
        self, torch: Any, counters: StepCounters, find_model: Callable[[], Any], history: AllocatorHistory
    ) -> None:
        self._torch, self._history = torch, history
        self._counters = counters
        self._find_model = find_model
        self._recording: _Recording | None = None
        self._file: int | None = None
        self._trace: int | None = None
        self._prepared: Callable[[], Any] = lambda: None

    def prepares(self, profile: Any) -> None:
        """Note who prepares a profile, which is not enabled before it has warmed up: another one would disturb it."""
        self._prepared = ref(profile)

    def check(self) -> None:
        """Offer a file for requests at the first call, and follow the request in it at a later one."""
        if self._recording is not None or not hasattr(os, "memfd_create"):
            return
        if self._file is None:
            if self._counters.own_steps:
                self._file = memory_file("tuner-profile:0")
            return
        if self._trace is not None and not self._is_awaited():
            os.close(self._trace)
            self._trace = None
        if not os.fstat(self._file).st_size:
            return
        request = json.loads(os.pread(self._file, MAX_REQUEST_BYTES, 0) or b"{}")
        if "steps" not in request and "report" not in request:
            return  # an answer that was not read yet
        os.ftruncate(self._file, 0)
        if "report" in request:
            self._counters.session.report("profiled", **request["report"])
        elif self._is_awaited():
            try:
                steps = max(1, min(MAX_STEPS, int(request["steps"])))
                if request.get("memory"):
                    self._answer(self._history.record(steps, self._answer))
                else:
                    self._begin(steps)
            except Exception as error:  # noqa: BLE001 - private names of torch may have moved
                self._answer(_failure(self._torch, error))

    def _begin(self, steps: int) -> None:
        warms_up = getattr(self._prepared(), "current_action", None) == self._torch.profiler.ProfilerAction.WARMUP
        reason = OWN_PROFILER if warms_up else _why_not(self._torch)
        if reason is not None:
            self._answer({"refused": reason})
            return
        # Part of what a profile takes stays in the process: from now on its peak is not that of the training.
        fields, peak = self._counters.memory_fields, self._counters.memory_fields()["rss_peak_bytes"]
        self._counters.memory_fields = lambda: {**fields(), "rss_peak_bytes": peak}
        self._recording = _Recording(self._torch, self._counters, steps, self._find_model, self._recorded, self._answer)
        self._answer({"state": "timing"})

    def _recorded(self, answer: dict[str, Any], results: Any) -> None:
        """Called when a recording has ended. `results` is Kineto's, None if there are none."""
        self._recording = None
        if results is not None and self._is_awaited():
            began_s = perf_counter()
            try:
                self._trace = _save(results)
            except OSError as error:
                answer = {"refused": f"the trace cannot be written: {error.strerror}"}
            else:
                answer.update(trace=self._trace, save_s=perf_counter() - began_s)
        self._answer(answer)

    def _answer(self, answer: dict[str, Any]) -> None:
        if self._file is not None:
            line = json.dumps(dict(answer, rank=rank_and_world()[0]), default=str) + "\n"
            os.pwrite(self._file, line.encode(), os.fstat(self._file).st_size)

    def _is_awaited(self) -> bool:
        """Whether a reader has locked the file."""
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False

    def at_exit(self) -> None:
        """Stop what is being recorded: torch crashes in a process that ends with its profiler on."""
        if self._recording is not None:
            self._recording.fail({"refused": "the training ended before its steps were recorded"})

    def reset(self) -> None:
        """Forget everything, in a forked child: the files are its parent's."""
        self._history.stop()
        if self._recording is not None:
            self._recording.restore()
        for descriptor in (self._file, self._trace):
            if descriptor is not None:
                os.close(descriptor)
        self._recording = self._file = self._trace = None


class _Recording:
    """One request. The hook of the optimizer step moves it on; `ended` is called with the answer once."""

    def __init__(
        self,
        torch: Any,
        counters: StepCounters,
        steps: int,
        find_model: Callable[[], Any],
        ended: Callable[[dict[str, Any], Any], None],
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        self._tell = tell
        self._torch, self._counters, self._wanted = torch, counters, steps
        self._find_model, self._ended = find_model, ended
        self._key: tuple[int, int] | None = None
        self._marks: list[tuple[float, float, float]] = []
        self._last = 0
        self._is_starting = False
        self._profile: Any = None
        self._restore: list[Callable[[], None]] = []
        handle = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(self._stepped)
        self._restore.append(handle.remove)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        key = get_ident(), id(optimizer)
        self._key = self._key or key
        if key != self._key:  # of several optimizers the first one says where a step ends
            return
        try:
            self._advance()
        except Exception as error:  # noqa: BLE001 - private names of torch may have moved
            self.fail(_failure(self._torch, error))

    def _advance(self) -> None:
        totals = self._counters.totals()
        now = perf_counter()
        before, done = self._marks[-1:], len(self._marks)
        self._marks.append((now, totals["train_s"], totals["data_wait_s"]))
        if done < self._wanted:
            return
        if done == self._wanted:
            if self._torch.autograd._profiler_enabled():
                self.fail({"refused": OWN_PROFILER})
                return
            self._tell({"state": "profiling"})
            self._name_modules()
            # A profiler that the training starts itself would raise an error as long as this one runs.
            module = self._torch.autograd.profiler
            for owner, name in ((module.profile, "_prepare_trace"), (module.profile, "_start_trace"),
                                (module.emit_nvtx, "__enter__"), (module.emit_itt, "__enter__")):  # fmt: skip
                original = owner.__dict__.get(name)
                if original is not None:
                    setattr(owner, name, self._giving_way(original))
                    self._restore.append(partial(setattr, owner, name, original))
        else:
            # Longer than the training's own clock says: an evaluation or a checkpoint.
            paused = totals["train_s"] - before[0][1] < (now - before[0][0]) / 2
            self._mark(PAUSED_MARK if paused else MARK)
        if done == self._wanted + 1:  # A step to warm up, in a profile of its own: it says what events cost.
            began_s = perf_counter()
            profile, self._profile = self._profile, None
            profile.stop()
            a_step_s = EVENT_FACTOR * (perf_counter() - began_s)
            affordable = int(2 * self._wanted * self._plain_step_s() / a_step_s)
            self._last = done + 1 + max(2, min(self._wanted, affordable))
        # torch still marks this optimizer step. The end of a mark that began in one profile must not come in the next
        # one, where it would write to memory that was freed: so a plain step lies between the two.
        if done in (self._wanted, self._wanted + 2):
            kinds = self._torch.profiler.ProfilerActivity
            activities = [kinds.CPU, kinds.CUDA] if self._device() == "cuda" else [kinds.CPU]
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it is read once: else there are lines in the output
            profile, self._is_starting = self._torch.profiler.profile(activities=activities), True
            profile.start()
            self._profile, self._is_starting = profile, False  # one that did not start must not be stopped
            self._mark(MARK)
        elif done == self._last:
            self._stop()

    def _mark(self, name: str) -> None:
        with self._torch.autograd.profiler.record_function(name):
            pass

    def _plain_step_s(self) -> float:
        times = [mark[0] for mark in self._marks[: self._wanted + 1]]
        steps = sorted(times[n + 1] - times[n] for n in range(self._wanted))
        return steps[self._wanted // 2]

    def _stop(self) -> None:
        self.restore()
        profile, self._profile = self._profile, None
        profile.stop()
        first, last = self._marks[0], self._marks[self._wanted]
        took_s = perf_counter() - last[0]
        answer = {
            "state": "done",
            "device": self._device(),
            "step_s": ((last[1] - first[1]) or (last[0] - first[0])) / self._wanted,
            "data_s": (last[2] - first[2]) / self._wanted,
            "lost_s": took_s - (len(self._marks) - 1 - self._wanted) * self._plain_step_s(),
            # Inside of what torch.compile has compiled no module is called.
            "compiled": bool(getattr(sys.modules.get("torch._dynamo.convert_frame"), "FRAME_COUNTER", 0)),
        }
        self._ended(answer, profile.profiler.kineto_results)

    def _device(self) -> str:
        return "cuda" if self._torch.cuda.is_initialized() else "cpu"

    def _name_modules(self) -> None:
        """Record each call of a module of the model under its name in the model, a mere number with its class."""
        model = self._find_model()
        if model is None:
            return
        named = ((each, name, name.rpartition(".")[2].isdigit()) for name, each in model.named_modules())
        names = {each: f"{MODULE_PREFIX}{name}{f' ({type(each).__name__})' * number}" for each, name, number in named}
        names[model] = MODULE_PREFIX + type(model).__name__
        record = getattr(self._torch._C._profiler, "_RecordFunctionFast", self._torch.autograd.profiler.record_function)

        def enter(module: Any) -> Any:
            name = names.get(module)
            mark = None if name is None else record(name)
            if mark is not None:
                mark.__enter__()
            return mark

        leave = lambda mark, _: mark.__exit__(None, None, None)  # noqa: E731
        self._restore.append(around_module_calls(self._torch, enter, leave))

    def _giving_way(self, original: Any) -> Any:
        def start(*args: Any, **kwargs: Any) -> Any:
            if not self._is_starting:
                call_safely(self.fail, {"refused": OWN_PROFILER})
            return original(*args, **kwargs)

        return start

    def fail(self, answer: dict[str, Any]) -> None:
        profile, self._profile = self._profile, None
        self.restore()
        if profile is not None:
            call_safely(profile.stop)
        self._ended(answer, None)

    def restore(self) -> None:
        while self._restore:
            self._restore.pop()()


def _why_not(torch: Any) -> str | None:
    """Why steps cannot be profiled now; None if they can."""
    if not torch.autograd.kineto_available():
        return f"torch {torch.__version__} was built without Kineto, which records the events"
    if torch.cuda.is_initialized() and any(map(os.environ.get, NATIVE_TOOLS)):
        return "another profiler (nsys, ncu or rocprof) records the GPU's activity"
    if torch.autograd._profiler_enabled():
        return OWN_PROFILER
    return None


def _failure(torch: Any, error: Exception) -> dict[str, Any]:
    return {"refused": f"it cannot be done with torch {torch.__version__} ({type(error).__name__}: {error})"}


def _save(results: Any) -> int:
    """Write the trace to a file without a name, in memory where that is possible, and return its descriptor."""
    descriptor, path = tempfile.mkstemp(".json", "tuner-trace-", MEMORY if os.access(MEMORY, os.W_OK) else None)
    os.close(descriptor)
    try:
        results.save(path)  # takes the name, and replaces the file
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.unlink(path)
