"""What a command prints and how it ends: results on standard output, messages on standard error, exit codes."""

from __future__ import annotations

import codecs
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from io import TextIOWrapper
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from tuner_tui.core.text import escape_control, wrap_text

if TYPE_CHECKING:
    from tuner_tui.runs.store.folder import RunFolder
    from tuner_tui.tuning.store import TuningFolder
    from tuner_tui.view.cells import Line


class ExitCode(IntEnum):
    DONE, FAILED, USAGE, OUT_OF_MEMORY, ALREADY_RUNNING, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 130, 143


def fail(sentence: str, code: int = ExitCode.USAGE) -> NoReturn:
    """Print `sentence` to standard error and exit with `code`."""
    print_note(sentence)
    raise SystemExit(code)


def find_run_or_exit(name: str | None) -> RunFolder:
    """Return the folder of the run `name`, None for the newest, or exit with a sentence."""
    from tuner_tui.core.numbered_folders import FolderNotFoundError
    from tuner_tui.runs.store.folder import find_run, list_runs, runs_dir

    if name is None:
        return next(iter(list_runs(runs_dir())), None) or fail("There are no runs yet.")
    try:
        return find_run(name, runs_dir())
    except FolderNotFoundError as error:
        fail(str(error))


def exit_on_interrupt() -> None:
    """Let Ctrl-C end the process at once, until the screen installs its own handlers.

    `KeyboardInterrupt` can be lost in a callback of the interpreter or cancel a task of Textual's start; before the
    first frame there is nothing to clean up.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the terminal has to be restored
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(ExitCode.INTERRUPTED))


def print_note(sentence: str) -> None:
    """Print a message to standard error, on a terminal in lines that end between words."""
    sys.stderr.write(wrapped(sentence, sys.stderr) + "\n")


def wrapped(text: str, stream: TextIO) -> str:
    """Return `text` in lines that end between words if `stream` is a terminal; paths stay whole to be copied."""
    if not stream.isatty():
        return text
    lines = (wrap_text(line, _columns(), break_long_words=False) or [""] for line in text.split("\n"))
    return "\n".join(chain.from_iterable(lines))


def control_terminal(sequence: str) -> None:
    """Send control characters of the program's own to standard error; the stream itself shows them as text."""
    sys.stderr.flush()
    os.write(sys.stderr.fileno(), sequence.encode())


def print_json(data: Any) -> None:
    """Print the JSON document of a command: of structs all fields."""
    print_line(json_text(data))


def json_text(data: Any, indent: int | None = 2) -> str:
    """Return a JSON document, on one line without an `indent`."""
    import json

    from tuner_tui.core.json_struct import to_json  # the first frame does without

    separators = (",", ":") if indent is None else None
    return json.dumps(to_json(data, whole=True), indent=indent, separators=separators, allow_nan=False)


def print_folder(kind: str, folder: RunFolder | TuningFolder, as_json: bool, **more: Any) -> None:
    """Print the name of a new folder or, as JSON, also its path."""
    if as_json:
        print_line(json_text({kind: folder.id, "path": str(folder.path), **more}, indent=None))
    else:
        print_line(folder.id if folder.argument == folder.id else str(folder.path))


def print_line(text: str) -> None:
    """Print one line and flush it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


PIPE_WIDTH = 120


def report_width() -> int:
    """Return the columns of a report: those of the terminal, or `PIPE_WIDTH` in a pipe or a file."""
    return _columns() if sys.stdout.isatty() else PIPE_WIDTH


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size((PIPE_WIDTH, 24)).columns


def print_result(document: Any, as_json: bool, draw: Callable[[int], Iterable[Line]]) -> None:
    """Print the JSON document of a command, or the rows that `draw` returns for the width of a report."""
    print_json(document) if as_json else print_line("\n".join(row_lines(draw(report_width()))))


def print_report(document: Any, as_json: bool, lines: Iterable[str]) -> None:
    """Print the JSON document of a command, or the lines of its report."""
    print_json(document) if as_json else print_line("\n".join(lines))


def row_lines(rows: Iterable[Line]) -> list[str]:
    from tuner_tui.view.cells import plain_text

    return [plain_text(row).rstrip() for row in rows]


ASCII_FALLBACK = str.maketrans(
    {"·": "-", "–": "-", "—": "-", "−": "-", "…": "...", "×": "x", "→": "->", "≥": ">=", "≤": "<=", "━": "=", "╸": "=",
     "╍": "~", "─": "-", "┤": "|", "│": "|", "●": "*", "▸": ">", "▾": "v", "✓": "+", "✗": "x", "⠒": "-", "⠁": "."}
)  # fmt: skip
ERROR_HANDLER = "tuner_tui.plain"
WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def reopen_closed_streams() -> None:
    """Open standard streams that are closed (`>&-`, daemons) on the null device.

    Otherwise the next file opened would get their descriptor, and child processes would write into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))


class SafeWriter(TextIOWrapper):
    """A standard stream that escapes control characters: commands, presets, names of GPUs, messages of libraries may
    hold sequences that control the terminal. It shares its buffer with the stream it replaces.
    """

    replaced: TextIOWrapper | None = None
    """Kept, because a stream closes its buffer when nothing refers to it."""

    def write(self, text: str) -> int:
        """Write `text`, with everything escaped that controls a terminal."""
        return super().write(escape_control(text))

    def close(self) -> None:
        """Flush only: the buffer belongs to the stream that was replaced."""
        if not self.buffer.closed:
            self.flush()


def protect_streams() -> None:
    """Let everything be written by `SafeWriter`; characters that the encoding lacks are replaced instead of raising.

    The screen is drawn on `sys.__stdout__`, where each cell is cleaned instead (`ui.terminal.cell_writer.SafeCells`).
    """
    # The new stream writes into the buffer of the old one, so what either of them holds back comes out in order. The
    # error handler degrades characters instead of raising UnicodeEncodeError in an ASCII locale in the middle of a
    # table.
    codecs.register_error(ERROR_HANDLER, _encode_fallback)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper) and not isinstance(stream, SafeWriter):
            stream.reconfigure(errors=ERROR_HANDLER)
            safe = SafeWriter(
                stream.buffer, stream.encoding, ERROR_HANDLER, "\n", stream.line_buffering, stream.write_through
            )
            safe.replaced = stream
            setattr(sys, name, safe)


@contextmanager
def report_io_errors() -> Iterator[None]:
    """Exit with one sentence on a closed pipe, a full disk or a file without permission."""
    try:
        yield
    except BrokenPipeError:
        _discard_stdout()
        raise SystemExit(ExitCode.FAILED) from None
    except OSError as error:
        if error.filename is not None:
            fail(f"{error.filename}: {error.strerror}.")
        if isinstance(error, FileNotFoundError):  # of `getcwd`, the only call of a path without a name
            fail("The current folder no longer exists; change to another one.")
        if error.errno not in WRITE_ERRORS:
            raise
        _discard_stdout()
        sys.stderr.write(f"Standard output cannot be written: {error.strerror}.\n")
        raise SystemExit(ExitCode.FAILED) from None


def _discard_stdout() -> None:
    """Discard what is still buffered, which Python would otherwise fail to write at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _encode_fallback(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(ASCII_FALLBACK)
    return text.encode("ascii", "replace").decode("ascii"), error.end
