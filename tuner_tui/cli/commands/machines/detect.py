"""`tuner-tui detect`: what the machine is and what its GPUs can do, as text or as one JSON document."""

from __future__ import annotations

import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from tuner_tui.cli.console import print_json, print_line, print_rows, report_width
from tuner_tui.hardware.environment import visible_gpus
from tuner_tui.hardware.interpreter.probe import default_interpreter, find_incompatibilities, probe_versions
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.view.hardware_rows import hardware_rows


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

    reading = start_reading_inventory(BRIEF_TIMEOUT_S)  # while the Python is asked
    python = probe_versions(interpreter or default_interpreter())
    inventory = reading.result(threading.TIMEOUT_MAX)
    if as_json:
        print_json(
            {
                "inventory": asdict(inventory),
                "usable": usable(inventory),
                "interpreter": asdict(python),
                "misfits": [asdict(problem) for problem in find_incompatibilities(inventory, python)],
            }
        )
        return
    print_line(" · ".join(filter(None, (inventory.hostname, inventory.container, inventory.multiplexer))))
    print_rows(hardware_rows(inventory, python, report_width()))


def usable(inventory: Inventory) -> dict[str, Any]:
    """Return the cores, bytes of RAM and GPU indices a training started here may use, with all limits applied."""
    return {
        "cores": inventory.cpu.usable_cores,
        "memory_bytes": inventory.memory.usable_bytes,
        "gpus": visible_gpus(inventory.gpus, inventory.cuda_visible_devices),
    }
