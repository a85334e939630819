"""Reports how the process ends: an uncaught exception, out of memory, or a normal exit."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would be an import too many for a process without torch
    from collections.abc import Callable

    from .counters.step_counters import StepCounters
    from .session import Session

OUT_OF_MEMORY_TYPES = ("OutOfMemoryError", "MemoryError", "_ArrayMemoryError")
OUT_OF_MEMORY_MESSAGES = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "unable to allocate",
    "std::bad_alloc",
)
OTHER_MEMORY_MESSAGES = ("out of resource: shared memory", "more than 1eb memory", "bus error")
LAUNCHER_ERRORS = ("ChildFailedError",)
MAX_MESSAGE_LENGTH = 4000
OPTIMIZER_FILE = "torch/optim/optimizer.py"
"""Every optimizer's `step` passes through torch's wrapper there."""
MODEL_FILES = ("torch/nn/modules/module.py", "torch/_tensor.py", "torch/autograd/__init__.py")
PHASE_LOCATIONS = {"starting": "loading", "skipping": "loading", "compiling": "training", "ending": "saving"}


def is_out_of_memory(kind: str, message: str) -> bool:
    """Whether an exception says that memory ran out, by its type's name or its words."""
    text = message.lower()
    if any(words in text for words in OTHER_MEMORY_MESSAGES):
        return False
    return kind in OUT_OF_MEMORY_TYPES or any(words in text for words in OUT_OF_MEMORY_MESSAGES)


class ExitReporter:
    """Tells the end of a session once: from `sys.excepthook` where that is still ours, else at exit."""

    def __init__(self, session: Session, counters_of: Callable[[], StepCounters | None]) -> None:
        """`counters_of` gives the counters, or None while torch was not imported."""
        self._session = session
        self._counters_of = counters_of
        self._told: BaseException | None = None
        self._over = False

    def at_exit(self) -> None:
        """The last counters, and how it ended if that was not told yet."""
        self.tell(_pending_exception() or getattr(sys, "last_value", None))
        session = self._session
        if session.opened and self._told is None and not self._over:
            self._over = True
            self.last_counters()
            session.enter("ending")
            session.tell("ended", step=session.step)

    def tell(self, error: BaseException | None) -> None:
        """This error ends the process, if any does."""
        if error is None or self._told is not None:
            return
        session, kind = self._session, type(error).__name__
        if kind in LAUNCHER_ERRORS or not (session.launched or session.opened):
            return
        self._told = error
        session.open()
        self.last_counters()
        message = str(error)[:MAX_MESSAGE_LENGTH]
        where = self._where(error)
        if is_out_of_memory(kind, message):
            session.tell("out-of-memory", message=message or kind, where=where, step=session.step)
        else:
            session.tell("raised", type=kind, message=message, where=where, step=session.step)

    def _where(self, error: BaseException) -> str:
        session = self._session
        if _raised_in_optimizer(error):
            return "optimizer-step"
        if session.failed_in is not None and session.failed_in[0] == id(error):
            return session.failed_in[1]
        return PHASE_LOCATIONS.get(session.phase, session.phase)

    def last_counters(self) -> None:
        """Write the counters if steps were made since they were written last."""
        counters = self._counters_of()
        if counters is None:
            return
        counters.read()
        if counters.own_steps > counters.written_steps:
            counters.flush()


def _pending_exception() -> BaseException | None:
    """The exception that ends a `multiprocessing` child: it is still in the air, or behind torch's `sys.exit`."""
    error = sys.exc_info()[1]
    return error.__context__ if isinstance(error, SystemExit) else error


def _raised_in_optimizer(error: BaseException) -> bool:
    """Whether the error came out of an optimizer's own work, and not out of a closure that it called."""
    files = []
    traceback = error.__traceback__
    while traceback is not None:
        files.append(traceback.tb_frame.f_code.co_filename)
        traceback = traceback.tb_next
    inside = [file.endswith(OPTIMIZER_FILE) for file in files]
    return True in inside and not any(file.endswith(MODEL_FILES) for file in files[inside.index(True) :])
