"""torchrun, as the module that it is: the script of that name may belong to another Python."""

from __future__ import annotations

from tuner_tui.runs.launchers.program import Program

KINDS = {"script": (), "module": ("--module",), "program": ("--no-python",)}


def torchrun(program: Program, processes: int) -> tuple[str, ...]:
    """The program in `processes` processes on this machine; a free port is chosen, so that runs do not collide."""
    starter = (program.python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}")
    return (*starter, *KINDS[program.kind], *program.words)
