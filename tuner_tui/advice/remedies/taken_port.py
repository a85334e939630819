"""Remedies for a launcher whose port is taken: the command with a free one, or the end of the process that holds it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.settings.argv import remove_options
from tuner_tui.settings.job import CommandJob

# "held" and "may be looked at" are the words of older releases, in the folders of their runs.
HELD = re.compile(
    r"port (\d+) is (?:used|held) by (process \d+.*)|process (?:uses|that may be looked at holds) port (\d+)"
)
FREE = re.compile(r"port (\d+) is free")
TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
PORT_OPTIONS = ("master_port", "rdzv_endpoint")
NODE_OPTIONS = ("--nnodes", "--num_machines", "--num-machines")

FREE_PORT = Remedy(
    title="let the launcher choose a free port",
    why="`torchrun --standalone`, `accelerate launch --main_process_port 0`, or another `--master_port`",
    effect="both trainings run",
    source="PyTorch: torchrun, --standalone",
)
END_HOLDER = Remedy(
    title="end the process that uses the port",
    why="`ss -ltnp` lists the process of each port; a killed run may have left ranks behind",
    source="ss(8)",
)


def ladder(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """The command with a free port, ready to apply where it can be written; then the end of the holder."""
    said = "\n".join(situation.state.exited.evidence) if situation.state.exited is not None else ""
    held, free = HELD.search(said), FREE.search(said)
    taken = None if held is None else held[1] or held[3]
    holder = END_HOLDER if held is None or not held[2] else replace(END_HOLDER, why=f"{held[2]} uses port {taken}")
    command = None
    if isinstance(situation.job, CommandJob):
        command = command_with_free_port(situation.job.command, taken, None if free is None else free[1])
    if command is None:
        return (FREE_PORT, holder)
    return (replace(FREE_PORT, why=f"`tuner-tui run … -- {shlex.join(command)}`", command=command), holder)


def command_with_free_port(command: Sequence[str], taken: str | None, free: str | None) -> tuple[str, ...] | None:
    """`command` with the port `free` in place of `taken`, or with a launcher that chooses one.

    None where nothing in the command decides about the port, or several machines have to agree on it.
    """
    words = list(command)
    if any(_is_several(words, index) for index in range(len(words))):
        return None
    if taken is not None and free is not None:
        number = re.compile(rf"(?<!\d){taken}(?!\d)")
        if any(map(number.search, words)):
            return tuple(number.sub(free, word) for word in words)
    launcher = next((index for index, word in enumerate(words) if _is_torchrun(words, index)), None)
    if launcher is not None:
        kept = remove_options(words[launcher + 1 :], PORT_OPTIONS)
        return (*words[: launcher + 1], "--standalone", *kept)
    if any(PurePath(word).name == "accelerate" for word in words[:2]) and "launch" in words[:3]:
        at = words.index("launch") + 1
        return (*words[:at], "--main_process_port", "0", *remove_options(words[at:], ("main_process_port",)))
    return None


def _is_torchrun(words: Sequence[str], index: int) -> bool:
    return PurePath(words[index]).name == "torchrun" or (words[index] in TORCHRUN_MODULES and words[index - 1] == "-m")


def _is_several(words: Sequence[str], index: int) -> bool:
    """Whether the option at `index` asks for several machines."""
    name, equals, value = words[index].partition("=")
    value = value if equals else (words[index + 1] if index + 1 < len(words) else "")
    return name in NODE_OPTIONS and value not in ("1", "1:1")
