"""Opens the screen on a preset, a run or the last one used. Imports no Typer: the first frame does not wait for it."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from functools import partial
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tuner_tui.cli.console import exit_on_interrupt, fail
from tuner_tui.core.procfs import started_with
from tuner_tui.ui.app import TunerApp
from tuner_tui.ui.palette import theme_for, wants_ascii, wants_colour

if TYPE_CHECKING:
    from tuner_tui.ui.backend import Backend
    from tuner_tui.ui.records import TrainingConfig

FIRST_PRESET = "demo"


def open_named(
    name: str | None,
    flags: Mapping[str, str] | None = None,
    interpreter: Path | None = None,
    theme: str = "dark",
    ascii_only: bool = False,
    fallback: int | None = None,
) -> NoReturn:
    """Open the screen on the preset or run `name`; without one, on the newest live run or the last preset.

    It runs until it is closed, and the program exits with its code.
    """
    exit_on_interrupt()

    def open_backend() -> Backend:
        from tuner_tui.ui.backend import Backend

        return Backend(interpreter, flags, dict(os.environ), fallback)

    preset, folder = resolve_name(name)
    if not sys.stdout.isatty() or not sys.stdin.isatty():
        fail("The screen needs a terminal; `tuner-tui run` works without one.")
    gc.disable()  # until the first frame is there: all that is made for it stays

    start = partial(read_start, preset=preset, folder=folder)
    app = TunerApp(
        open_backend,
        start,
        theme=theme_for(theme, os.environ),
        colour=wants_colour(os.environ),
        ascii_only=ascii_only or wants_ascii(started_with("self")),
    )
    app.run()
    # Without the interpreter's cleanup, which would remove modules under threads that still import them or hang in a
    # driver. The terminal is restored already.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(app.return_code or 0)


def read_start(backend: Backend, preset: str | None, folder: Path | None) -> tuple[TrainingConfig, Path | None]:
    """Return what the settings form shows first, and the run to follow; reads files.

    Without a preset and a run: of the newest live run, else of the newest run if it has to be looked at, else of the
    preset used last.
    """
    named = preset is not None
    if preset is None and folder is None:
        folder = run_to_open(backend)
        preset = last_preset() if folder is None else None
    from msgspec.structs import replace

    config = backend.load_preset(preset or FIRST_PRESET) if folder is None else backend.open_run(folder)
    return replace(config, named=named or folder is not None), folder


def run_to_open(backend: Backend) -> Path | None:
    """Return the newest live run; else the newest run if it failed, or ended since a screen was opened the last time.

    Settings that are passed are for another training than one that has ended. The runs of a tuning are on its screen.
    """
    from tuner_tui.runs.read.status import live_runs, read_status
    from tuner_tui.runs.store.folder import RunFolder, list_runs, runs_dir
    from tuner_tui.runs.store.record import readable_record
    from tuner_tui.ui.backend import was_opened_since

    def is_trial(run: RunFolder) -> bool:
        return getattr(readable_record(run), "tuning", None) is not None

    live = next(filterfalse(is_trial, live_runs(runs_dir())), None)
    newest = next(filterfalse(is_trial, list_runs(runs_dir())), None)
    if live is not None or newest is None or backend.flags:
        return None if live is None else live.path
    status = read_status(newest)
    seen = status.outcome in ("completed", "stopped") and was_opened_since(newest.state)
    return newest.path if status.kind in ("ended", "lost") and not seen else None


def last_preset() -> str | None:
    """Return the preset of the newest run, if it still exists."""
    from tuner_tui.runs.store.folder import list_runs, runs_dir
    from tuner_tui.runs.store.record import RecordError, read_record
    from tuner_tui.settings.errors import PresetError
    from tuner_tui.settings.presets import find_preset

    newest = next(iter(list_runs(runs_dir())), None)
    try:
        preset = None if newest is None else read_record(newest).preset
        if preset is not None:
            find_preset(preset)
    except (RecordError, PresetError):
        return None
    return preset


def resolve_name(name: str | None) -> tuple[str | None, Path | None]:
    """Return the preset or the run folder that `name` means; exit with 2 if it is neither."""
    if name is None or name == FIRST_PRESET:  # which is there: no preset is read before the first frame
        return name, None
    from tuner_tui.core.numbered_folders import FolderNotFoundError
    from tuner_tui.runs.store.folder import find_run, runs_dir
    from tuner_tui.settings.errors import PresetError
    from tuner_tui.settings.presets import find_preset, preset_names

    try:
        return None, find_run(name, runs_dir()).path
    except FolderNotFoundError as missing:
        no_run = str(missing)
    try:
        find_preset(name)
    except PresetError as error:
        from tuner_tui.cli.commands import nearest_command

        command = nearest_command(name, preset_names())
        near = "".join(str(error).partition("; ")[1:])
        hint = f"; did you mean the command `tuner-tui {command}`?" if command else near
        is_run = name[:1] == "r" and name[1:].isdecimal()
        absent = str(error) if Path(name).is_file() else f"{name} is not a command, run, preset or file{hint}"
        fail(no_run if is_run else absent)
    return name, None
