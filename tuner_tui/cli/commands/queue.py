"""`tuner-tui queue`: the runs that wait for a free GPU, why each waits, and their order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tuner_tui.cli.console import DONE, FAILED, fail, print_json, print_line, print_note
from tuner_tui.cli.options import AsJson

if TYPE_CHECKING:
    from tuner_tui.scheduling.queue_store import Queue
    from tuner_tui.scheduling.queueing import QueuedRun

Changed = TypeVar("Changed")
HEADINGS = ("ENTRY", "STATE", "RUN", "WAITING", "WHAT")
MAX_TITLE = 60

EntryName = Annotated[str, typer.Argument(metavar="ENTRY", help="Name of the entry, such as q003.")]


def register(app: typer.Typer) -> None:
    """Add the group `queue`; without a command it lists the queue."""
    group = typer.Typer(
        help="List, move, remove and hold runs that wait for a free GPU.",
        invoke_without_command=True,
        rich_markup_mode=None,
    )
    group.callback()(list_by_default)
    group.command("ls")(list_queue)
    group.command("move")(move)
    group.command("rm")(remove)
    group.command("hold")(hold)
    group.command("release")(release)
    group.command("at-boot")(at_boot)
    app.add_typer(group, name="queue")


def list_by_default(context: typer.Context, as_json: AsJson = False) -> None:
    """The runs that wait for a free GPU: list, move, remove, hold. `tuner-tui run --when-free` adds one."""
    if context.invoked_subcommand is None:
        list_queue(as_json)


def list_queue(as_json: AsJson = False) -> None:
    """List the queue in its order, with the reason why each entry waits."""
    from tuner_tui.scheduling.queue_store import open_queue
    from tuner_tui.scheduling.queueing import view_queue

    queue = open_queue()
    _wake(queue)
    lines = view_queue(queue)
    if as_json:
        print_json([asdict(line) for line in lines])
    elif lines:
        typer.echo("\n".join(queue_report(lines, time.time())))
    else:
        typer.echo("The queue is empty. `tuner-tui run --when-free ...` adds a run.")


def queue_report(lines: tuple[QueuedRun, ...], now: float) -> list[str]:
    """Return a table of the entries; below each one that waits, why."""
    from tuner_tui.cli.render.text import format_table, hanging_lines, shorten
    from tuner_tui.core.units import format_rough_duration

    def age(line: QueuedRun) -> str:
        waits = line.queued_t is not None and line.state != "running"
        return format_rough_duration(max(0.0, now - (line.queued_t or now))) if waits else ""

    rows = [(line.entry, line.state, line.run or "", age(line), shorten(line.title, MAX_TITLE)) for line in lines]
    table = format_table([HEADINGS, *rows], indent="")
    report = table[:1]
    for text, line in zip(table[1:], lines, strict=True):
        report.append(text)
        if line.reason:
            report += hanging_lines("      ", line.reason)
    return report


def move(
    entry: EntryName,
    place: Annotated[
        int, typer.Argument(metavar="PLACE", min=1, help="New place; 1 is the first of the waiting entries.")
    ],
) -> None:
    """Move an entry to another place in the queue."""
    moved = _change(lambda queue: queue.move(entry, place))
    print_line(f"{moved.id} is now at place {place}, or at the end.")


def remove(entry: EntryName) -> None:
    """Remove a waiting entry. `tuner-tui stop` ends one that runs."""
    print_line(f"{_change(lambda queue: queue.withdraw(entry))} was removed from the queue.")


def hold(entry: EntryName) -> None:
    """Keep an entry from starting until it is released. Later entries may pass it."""
    print_line(f"{_change(lambda queue: queue.hold(entry)).id} is held.")


def release(entry: EntryName) -> None:
    """Release an entry that you held, or that could not be started."""
    print_line(f"{_change(lambda queue: queue.release(entry)).id} waits for its turn.")


def at_boot(
    yes: Annotated[bool, typer.Option("--yes", help="Write it without asking.")] = False,
    remove_it: Annotated[bool, typer.Option("--remove", help="Remove it again.")] = False,
) -> None:
    """Continue the queue after a reboot, with a systemd user unit that is shown first."""
    from tuner_tui.core.files import make_private, write_atomic
    from tuner_tui.runs.store.folder import state_dir
    from tuner_tui.scheduling.queueing import UNIT, unit_path, unit_text

    path = unit_path(os.environ)
    if remove_it:
        print_note(f"Run this first: systemctl --user disable {UNIT}")
        path.unlink(missing_ok=True)
        print_line(f"Removed {path}.")
        return
    text = unit_text(os.environ, state_dir())
    print_line(f"{path}:\n\n{text}")
    if not yes and not typer.confirm("Write it?"):
        raise typer.Exit(FAILED)
    make_private(path.parent)
    write_atomic(path, text)
    print_note(f"Written. It works once you run: systemctl --user enable {UNIT}; loginctl enable-linger")
    raise typer.Exit(DONE)


def _change(order: Callable[[Queue], Changed]) -> Changed:
    """Carry out an order; exit with 2 and a sentence if that is impossible."""
    from tuner_tui.scheduling.queue_store import QueueError, open_queue

    queue = open_queue()
    try:
        changed = order(queue)
    except QueueError as error:
        fail(str(error))
    _wake(queue)
    return changed


def _wake(queue: Queue) -> None:
    """Restart the dispatcher if it was killed."""
    from tuner_tui.scheduling.queueing import wake_dispatcher

    try:
        wake_dispatcher(queue)
    except OSError as error:
        print_note(f"The dispatcher cannot be started: {error.strerror} ({error.filename}).")
