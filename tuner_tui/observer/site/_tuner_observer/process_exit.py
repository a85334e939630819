"""Reports how the process ends: an uncaught exception, out of memory, or a normal exit."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # a process without torch should not import `typing`
    from collections.abc import Callable

    from .counters.step_counters import StepCounters
    from .session import Session

OUT_OF_MEMORY_TYPES = ("OutOfMemoryError", "MemoryError", "_ArrayMemoryError")
OUT_OF_MEMORY_MESSAGES = (
    "out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory",
    "cublas_status_alloc_failed", "cudnn_status_alloc_failed", "unable to allocate", "std::bad_alloc",
)  # fmt: skip
OTHER_MEMORY_MESSAGES = ("out of resource: shared memory", "more than 1eb memory", "bus error")
LAUNCHER_ERRORS = ("ChildFailedError",)
MAX_MESSAGE_LENGTH = 4000
OPTIMIZER_FILE = "torch/optim/optimizer.py"
"""The call of every optimizer's `step` passes through a wrapper in this file."""
MODEL_FILES = ("torch/nn/modules/module.py", "torch/_tensor.py", "torch/autograd/__init__.py")
PHASE_LOCATIONS = {
    "starting": "loading", "loading-model": "loading", "loading-data": "loading", "skipping": "loading",
    "compiling": "training", "ending": "saving",
}  # fmt: skip


REDACTION = os.path.join(os.path.dirname(__file__), "..", "..", "..", "core", "redaction.py")
"""Loaded from its file: the training's interpreter need not have tuner-tui installed."""
HIDDEN = "[hidden]"


def is_out_of_memory(kind: str, message: str) -> bool:
    """Whether an exception of this type name and message means that memory ran out."""
    text = message.lower()
    if any(phrase in text for phrase in OTHER_MEMORY_MESSAGES):
        return False
    return kind in OUT_OF_MEMORY_TYPES or any(phrase in text for phrase in OUT_OF_MEMORY_MESSAGES)


def redact(text: str) -> str:
    """`text` without secrets and escape sequences.

    Nothing of it if the rules cannot be loaded, as in a process without memory.
    """
    try:
        import re
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location("_tuner_redaction", REDACTION)
        module = module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        return str(module.redact_text(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)))
    except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
        return HIDDEN


class ExitReporter:
    """Reports the end of a session once: in `sys.excepthook` if the script did not replace it, else at exit."""

    def __init__(self, session: Session, counters_of: Callable[[], StepCounters | None]) -> None:
        """`counters_of` returns the counters, or None before torch is imported."""
        self._session = session
        self._counters_of = counters_of
        self._reported: BaseException | None = None
        self._ended = False
        self._exit: tuple[int, int] | None = None

    def exits(self, status: object) -> None:
        """Note the status given to `sys.exit`, and the step: training on means that it was caught."""
        # As the operating system sees it: a message instead of a number means 1.
        code = status & 0xFF if isinstance(status, int) else int(status is not None)
        self._exit = (code, self._session.step or 0)

    def at_exit(self) -> None:
        """Write the last counters, and how the process ended unless that was already reported."""
        pending = sys.exc_info()[1]  # of a `multiprocessing` child: being handled, or the context of torch's `sys.exit`
        pending = pending.__context__ if isinstance(pending, SystemExit) else pending
        self.report(pending or getattr(sys, "last_value", None))
        session = self._session
        if session.is_open and self._reported is None and not self._ended:
            self._ended = True
            self.write_last_counters()
            counters = self._counters_of()
            if counters is not None:
                counters.clock.report_last_evaluation(time.perf_counter())
            session.enter_phase("ending")
            code, at_step = self._exit or (None, None)
            session.report("ended", step=session.step, exit_code=code if at_step == (session.step or 0) else None)

    def report(self, error: BaseException | None) -> None:
        """Report the error that ends the process, if there is one."""
        if error is None or self._reported is not None:
            return
        session, kind = self._session, type(error).__name__
        if kind in LAUNCHER_ERRORS or not (session.launched or session.is_open):
            return
        self._reported = error
        session.open()
        self.write_last_counters()
        message = str(error)[:MAX_MESSAGE_LENGTH]
        where = self._where(error)
        if is_out_of_memory(kind, message):
            session.report("out-of-memory", message=redact(message) or kind, where=where, step=session.step)
        else:
            session.report("raised", type=kind, message=redact(message), where=where, step=session.step)

    def _where(self, error: BaseException) -> str:
        session = self._session
        if _raised_in_optimizer(error):
            return "optimizer-step"
        if session.failure is not None and session.failure[0] == id(error):
            return session.failure[1]
        return PHASE_LOCATIONS.get(session.phase, session.phase)

    def write_last_counters(self) -> None:
        """Write the counters if they changed since the last `steps` event, or if an evaluation ends the run."""
        counters = self._counters_of()
        if counters is None:
            return
        counters.read()
        counters.end_evaluation()
        if counters.own_steps > counters.written_steps or (counters.own_steps and counters.clock.has_paused_since()):
            counters.flush()


def _raised_in_optimizer(error: BaseException) -> bool:
    """Whether the error was raised by an optimizer itself, not by a closure that it called."""
    files = []
    traceback = error.__traceback__
    while traceback is not None:
        files.append(traceback.tb_frame.f_code.co_filename)
        traceback = traceback.tb_next
    # Below the optimizer's wrapper, but not in a model: a closure passed to `step` runs the forward pass inside it.
    inside = [file.endswith(OPTIMIZER_FILE) for file in files]
    return True in inside and not any(file.endswith(MODEL_FILES) for file in files[inside.index(True) :])
