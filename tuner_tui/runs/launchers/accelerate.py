"""`accelerate launch`, as the module that it is: the script of that name may belong to another Python."""

from __future__ import annotations

from tuner_tui.runs.launchers.program import Program

KINDS = {"script": (), "module": ("--module",), "program": ("--no_python",)}


def accelerate(program: Program, processes: int) -> tuple[str, ...]:
    """The program in `processes` processes; everything else is left to the user's own accelerate configuration."""
    starter = (program.python, "-m", "accelerate.commands.launch", f"--num_processes={processes}")
    return (*starter, *KINDS[program.kind], *program.words)
