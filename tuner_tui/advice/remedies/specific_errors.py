"""Remedies for errors with one clear cause: a taken port, a renamed argument, a missing package, a precision that does
not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath

from msgspec.structs import replace

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.computed import climb
from tuner_tui.advice.remedies.table import read_part, remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.settings.argv import remove_options
from tuner_tui.settings.dialects.command_words import read_options
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Precision

HELD = re.compile(r"port (\d+) is used by (process \d+.*)|process uses port (\d+)")
FREE = re.compile(r"port (\d+) is free")
TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
PORT_OPTIONS = ("master_port", "rdzv_endpoint")
NODE_OPTIONS = ("nnodes", "num_machines")


def port_ladder(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """The command with a free port, ready to apply where it can be written; then the end of the holder."""
    evidence = "\n".join(situation.state.exited.evidence) if situation.state.exited is not None else ""
    held, free = HELD.search(evidence), FREE.search(evidence)
    taken = None if held is None else held[1] or held[3]
    free_port, holder = climb("taken-port", situation)
    if held is not None and held[2]:
        holder = replace(holder, why=f"{held[2]} uses port {taken}")
    command = None
    if isinstance(situation.job, CommandJob) and free_port.name == "free-port":
        command = command_with_free_port(situation.job.command, taken, None if free is None else free[1])
    if command is None:
        return (free_port, holder)
    return (replace(free_port, why=f"`tuner-tui run -- {shlex.join(command)}`", command=command), holder)


def command_with_free_port(command: Sequence[str], taken: str | None, free: str | None) -> tuple[str, ...] | None:
    """`command` with the port `free` in place of `taken`, or with a launcher that chooses one.

    None where nothing in the command decides about the port, or several machines have to agree on it.
    """
    words, given = list(command), read_options(tuple(command))
    if any(given.get(name, "1") not in ("1", "1:1") for name in NODE_OPTIONS):
        return None
    if taken is not None and free is not None:
        number = re.compile(rf"(?<!\d){taken}(?!\d)")
        if any(map(number.search, words)):
            return tuple(number.sub(free, word) for word in words)
    before = zip(("", *words), words, strict=False)
    starts = (PurePath(word).name == "torchrun" or (flag == "-m" and word in TORCHRUN_MODULES) for flag, word in before)
    if launcher := next((end for end, is_start in enumerate(starts, 1) if is_start), None):
        return (*words[:launcher], "--standalone", *remove_options(words[launcher:], PORT_OPTIONS))
    if any(PurePath(word).name == "accelerate" for word in words[:2]) and "launch" in words[:3]:
        at = words.index("launch") + 1
        return (*words[:at], "--main_process_port", "0", *remove_options(words[at:], ("main_process_port",)))
    return None


def is_renamed_or_removed(name: str | None) -> bool:
    """Whether the argument is known to have another name in other releases, or none."""
    return any(name in names for names in read_part("arguments").values())


def argument_ladder(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """The remedies for wrong arguments; `where` is the argument that the program does not know."""
    for kind, names in read_part("arguments").items():
        if where in names:
            return (remedy(f"{kind}-argument", name=where, instead=names[where]),)
    return (remedy("correct-argument"),)


def matching_releases(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """How to bring releases together; `where` is a renamed argument, or the packages that take part."""
    if is_renamed_or_removed(where):
        return (*argument_ladder(situation, where), *matching_releases(situation, None))
    if _may_be_of_program(situation, where):
        return (remedy("submodule", package=where),)
    names = [] if where is None else [read_part("distributions").get(name, name) for name in where.split(", ")]
    update = f"; where they name none, the newest (`pip install -U {' '.join(names)}`)" if names else ""
    return climb("matching-releases", situation, packages=where or "the packages of the traceback", update=update)


def precision(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """What takes the place of the precision named by `where`, one of `precisions` in `crash_words.yaml`."""
    if where == "tf32":
        settings = situation.settings
        return (remedy("tf32-off", {"tf32": None} if settings is None or settings.tf32 else {}),)
    if where in ("scaler", "mixed"):
        return climb(f"precision-{where}", situation)
    return (_other_precision(situation, where),)


def _other_precision(situation: Situation, where: str | None) -> Remedy:
    settings = situation.settings
    wanted: Precision = situation.best_precision if situation.inventory is not None else "fp32"
    refused_bf16 = where == "bf16" or (settings is not None and settings.precision == "bf16")
    if situation.has_gpu is not False and refused_bf16 and (situation.inventory is None or wanted == "bf16"):
        wanted = "fp32" if situation.overflows_fp16 else "fp16"
    if where == "both" and situation.inventory is None:
        wanted = "bf16"
    tf32 = settings is not None and bool(settings.tf32) and situation.supports("tf32") is not True
    change: dict[str, str | None] = {"precision": wanted, **({"tf32": None} if tf32 else {})}
    unknown = situation.inventory is None and wanted == "fp16"
    return remedy(
        "other-precision",
        change,
        wanted=wanted,
        where=" where the GPU has it (Volta, Turing), else fp32" if unknown else "",
        tf32=", TF32 left to PyTorch" if tf32 else "",
        cost="; more memory and slower than 16 bits" if wanted == "fp32" else "",
    )


def package(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """How to install the package that `where` names, and what works without it."""
    name = read_part("distributions").get(where or "", where)
    if not name:
        return (remedy("install-some-package"),)
    python = situation.interpreter.path if situation.interpreter is not None else "python"
    install = (
        remedy("install-package", package=where if "/" in name else name, distribution=name, python=python),
        *climb("without-package", situation, name),
    )
    # A folder of this name within an installed package (torch/utils/tensorboard) is not the missing one.
    shown = "\n".join(line for line in situation.log if not re.search("-packages|://", line))
    if ends := re.findall(rf"[/\\]{re.escape(name)}([/\\]__init__\.py|\.py\b|[/\\])", shown):
        return (remedy("own-module"), *(() if max(map(len, ends)) > 1 else install))
    if name != where or not _may_be_of_program(situation, name):
        return install
    return (remedy("package-or-module", package=name, python=python), *install[1:])


def _may_be_of_program(situation: Situation, name: str | None) -> bool:
    """Whether a module that the program's own code does not find may be a file of the program as well as a package."""
    of_program = rf"File \"(?!.*(?:-packages|<frozen)).*(?:\n(?!.*File \").*)*\n.*No module named '{name}[.']"
    distributions = (*read_part("distributions"), *read_part("packages")["names"])
    return name not in distributions and re.search(of_program, "\n".join(situation.log)) is not None


def broken_package(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """A build of the package that `where` names for the installed torch, and what works without it."""
    name = read_part("distributions").get(where or "", where)
    if name == "torch":
        return (remedy("reinstall-torch"),)
    package = (where if "/" in (name or "") else name) or "the package that fails"
    return (remedy("reinstall-package", package=package), *climb("without-broken-package", situation, name))
