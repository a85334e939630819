"""`tuner-tui detect`: what the machine is and what its cards can do, as text or as one JSON document."""

from __future__ import annotations

import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tuner_tui.cli.console import print_json

if TYPE_CHECKING:
    from tuner_tui.hardware.inventory import Inventory


def register(app: typer.Typer) -> None:
    """Add the command `detect`."""
    app.command("detect")(detect)


def detect(
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    interpreter: Path | None = typer.Option(  # noqa: B008  typer's way of declaring an option
        None,
        "--interpreter",
        help="Python of the training environment; default: the one in your shell.",
        metavar="PATH",
    ),
) -> None:
    """Show GPUs, CPU, memory, disk and the training Python."""
    from tuner_tui.cli.machine import start_reading_inventory
    from tuner_tui.hardware.detect import BRIEF_TIMEOUT_S

    reading = start_reading_inventory(BRIEF_TIMEOUT_S)  # while the rest is imported and the Python is asked
    from tuner_tui.cli.render.detect import detect_report
    from tuner_tui.hardware.interpreter.probe import default_interpreter, find_incompatibilities, probe_versions

    python = probe_versions(interpreter or default_interpreter())
    inventory = reading.result(threading.TIMEOUT_MAX)
    problems = find_incompatibilities(inventory, python)
    if as_json:
        print_json(
            {
                "inventory": asdict(inventory),
                "usable": usable(inventory),
                "interpreter": asdict(python),
                "misfits": [asdict(problem) for problem in problems],
            }
        )
        return
    typer.echo("\n".join(detect_report(inventory, python, problems)))


def usable(inventory: Inventory) -> dict[str, Any]:
    """Return the cores, bytes of RAM and GPU indices a training started here may use, with all limits applied."""
    from tuner_tui.hardware.environment import visible_gpus

    return {
        "cores": inventory.cpu.usable_cores,
        "memory_bytes": inventory.memory.usable_bytes,
        "gpus": visible_gpus(inventory.gpus, inventory.cuda_visible_devices),
    }
