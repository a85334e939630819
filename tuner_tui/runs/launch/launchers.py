"""Starts a command as it is, or by torchrun, accelerate or deepspeed, and finds the Python that trains it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Literal

from msgspec import Struct

from tuner_tui.hardware.interpreter import default_interpreter
from tuner_tui.settings.argv import launcher_options
from tuner_tui.settings.dialects.script_search import words_of
from tuner_tui.settings.distributed import ACCELERATE_MULTI_PROCESS_OPTIONS, NUMBER, AccelerateConfig, launcher_in
from tuner_tui.settings.job import CommandJob, Job, Launcher

PYTHON = re.compile(r"python[\d.]*")
SWITCHES = re.compile(r"-[bBdEiIOPqsSuvVx]+")


class Program(Struct, frozen=True):
    """`words` are the script, module or program, and its arguments. A launcher brings its own Python switches."""

    kind: Literal["script", "module", "program"]
    words: tuple[str, ...]
    python: str


def parse_program(argv: Sequence[str], python: str) -> Program:
    """Take `python -u train.py …`, `python -m package …`, `train.py …` or `some-program …` apart."""
    words = tuple(argv)
    if not PYTHON.fullmatch(PurePath(words[0]).name):
        return Program("script" if words[0].endswith(".py") else "program", words, python)
    rest = list(words[1:])
    while rest and SWITCHES.fullmatch(rest[0]):
        rest.pop(0)
    if len(rest) > 1 and rest[0] == "-m":
        return Program("module", tuple(rest[1:]), words[0])
    if rest and not rest[0].startswith("-"):
        return Program("script", tuple(rest), words[0])
    return Program("program", words, words[0])  # python -c, -W, -X: started unchanged


MODULES = {
    "torchrun": "torch.distributed.run",
    "accelerate": "accelerate.commands.launch",
    "deepspeed": "deepspeed.launcher.runner",
}
PROGRAM_FLAGS = {"script": (), "module": ("--module",), "program": ("--no_python",)}
"""How torchrun, accelerate and deepspeed are told what to start: the three spell it alike."""


def launcher_command(
    launcher: Launcher,
    argv: Sequence[str],
    processes: int,
    python: str,
    nodes: int = 1,
    accelerate: AccelerateConfig | None = None,
) -> tuple[str, ...]:
    """`argv` as `launcher` starts it on this machine, or on all `nodes` of an allocation of Slurm.

    `python` runs the launcher where `argv` names no Python. `accelerate` is the configuration that accelerate will
    read; other options than the number of processes are left to it.
    """
    command = tuple(argv)
    if launcher != "plain":
        program = parse_program(argv, python)
        # torchrun on one machine with a free port, so that runs do not collide.
        meeting = "--standalone" if nodes == 1 else f"--nnodes={nodes}"
        options = {
            "torchrun": (meeting, f"--nproc-per-node={processes // nodes}"),
            "accelerate": (f"--num_processes={processes}",),
            "deepspeed": (f"--num_gpus={processes // nodes}",),
        }
        starter = (program.python, "-m", MODULES[launcher])
        command = (*starter, *options[launcher], *PROGRAM_FLAGS[program.kind], *program.words)
    return command if nodes == 1 else _on_each_node(command, nodes, accelerate)


SRUN = ("srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1")
"""Starts a command once on each node of the allocation; where one fails, Slurm ends the others."""


def _on_each_node(command: tuple[str, ...], nodes: int, accelerate: AccelerateConfig | None) -> tuple[str, ...]:
    """`command` started once on each node of an allocation, whose environment has the address of the first.

    torchrun reads that from its environment. accelerate and deepspeed take options only, of which the rank of the node
    is known on the node alone: a shell inserts them there.
    """
    name, end = launcher_in(command) or ("srun", 0)
    if name == "srun":
        return command
    starter, rest = command[:end], command[end:]
    options, before, texts = launcher_options(rest), "", words_of("on_each_node")
    match name:
        case "accelerate":
            inserted = texts[name].format(nodes=nodes)
            if accelerate is None and not ACCELERATE_MULTI_PROCESS_OPTIONS & options.keys():
                inserted += " --multi_gpu"  # it starts one process on a node with one GPU otherwise
            if "use_deepspeed" in options or (accelerate is not None and accelerate.distributed_type == "DEEPSPEED"):
                inserted += " --deepspeed_multinode_launcher=standard"  # else it goes to the other nodes by pdsh
        case "deepspeed":
            number = options.get("num_gpus", "")
            slots = number if NUMBER.fullmatch(number) else "${SLURM_GPUS_ON_NODE:-1}"
            before = f"{texts['hostfile'].format(slots=slots, numbers=' '.join(map(str, range(nodes))))} && "
            inserted = texts[name]
        case "torchrun":
            return (*SRUN, "sh", "-c", texts[name], "sh", *command)
        case _:
            return (*SRUN, *command)
    return (*SRUN, "sh", "-c", f'{before}exec {shlex.join(starter)} {inserted} "$@"', "sh", *rest)


LONGEST_SHEBANG = 512


def training_python(job: Job, environ: Mapping[str, str], cwd: Path) -> Path:
    """The interpreter whose packages train `job`, for a command run in `cwd` with `environ`.

    A command names it as its first word (`/env/bin/python train.py`) or in the shebang of its program: `torchrun`,
    `accelerate` and `trl` belong to one Python.
    """
    if job.interpreter is not None:
        return Path(job.interpreter)
    named = None
    if isinstance(job, CommandJob):
        path = job.environment(environ).get("PATH", environ.get("PATH", os.defpath))
        named = _python_of(_words(job.command), cwd, path)
    return default_interpreter(environ) if named is None else named


def _words(command: Sequence[str]) -> tuple[str, ...]:
    """The command without a leading `env NAME=value …`."""
    words = list(command)
    if words and PurePath(words[0]).name == "env":
        words.pop(0)
        while words and "=" in words[0]:
            words.pop(0)
    return tuple(words)


def _python_of(words: tuple[str, ...], cwd: Path, path: str) -> Path | None:
    program = _found(words[0], cwd, path) if words else None
    if program is None:
        return None
    if PYTHON.fullmatch(PurePath(words[0]).name):
        return program
    shebang = _words(_shebang(program))
    if not shebang or not PYTHON.fullmatch(PurePath(shebang[0]).name):
        return None
    return _found(shebang[0], cwd, path)


def _found(name: str, cwd: Path, path: str) -> Path | None:
    """The program as the kernel would find it. Links are not followed: the python of an environment is one."""
    if "/" in name:
        return cwd / name if os.path.exists(cwd / name) else None  # noqa: PTH110  Path.exists raises where it may not look
    program = shutil.which(name, path=path)
    return None if program is None else Path(program)


def _shebang(program: Path) -> list[str]:
    """The words of the `#!` line; none if the program is no script. pip writes `#!/bin/sh` where the path is too
    long."""
    try:
        with program.open("rb") as file:
            head = file.read(LONGEST_SHEBANG)
    except OSError:
        return []
    first, _, rest = head.partition(b"\n")
    if not first.startswith(b"#!"):
        return []
    if first == b"#!/bin/sh" and rest.startswith(b"'''exec' "):
        first = rest.partition(b"\n")[0].removeprefix(b"'''exec' ")
    try:
        return shlex.split(first.removeprefix(b"#!").decode("utf-8", "replace"))
    except ValueError:
        return []
