"""How many processes train, and on how many cards each, as far as the job tells: by its launcher or its own command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from tuner_tui.settings.accelerate_file import ONE_PROCESS, PROGRAMS, TOOLS, AccelerateFile
from tuner_tui.settings.argv import long_options
from tuner_tui.settings.job import BuiltinJob, CommandJob

TORCHRUN = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch"})
ACCELERATE_SPREADS = frozenset({"multi_gpu", "tpu", "use_fsdp", "use_deepspeed", "use_megatron_lm"})
"""Options of `accelerate launch` that stand above the kind in its file."""
SPREADING = frozenset({"llamafactory-cli", "llamafactory"})
"""Tools that start a process a card by themselves where there are several."""
NUMBER = re.compile(r"[0-9]{1,6}")


def processes_of(
    job: BuiltinJob | CommandJob, cards: int | None = None, accelerate: AccelerateFile | None = None
) -> int:
    """The processes of the training, at least 1; `cards` are the GPUs that it can use, where that is known.

    The word of the command's own launcher counts: torchrun's `--nproc-per-node` and `--nnodes`, accelerate's
    `--num_processes` (trl and axolotl hand it on) and its file `accelerate`, deepspeed's `--num_gpus`, ms-swift's
    `NPROC_PER_NODE`.
    """
    if job.launcher != "plain":
        return job.processes
    if isinstance(job, BuiltinJob):
        return 1
    return max(1, _of_command(job.command, job.env, cards, accelerate))


def devices_of_one(job: BuiltinJob | CommandJob, processes: int, cards: int) -> int | None:
    """The cards among which one process shares a step, each with a micro batch of its own.

    The Trainer does that (`DataParallel`) where a single process sees several. None where nobody can tell yet: a
    command may hold a Trainer, a loop for one card, or a tool that starts further processes by itself.
    """
    if processes > 1 or cards <= 1:
        return 1
    of_trainer = isinstance(job, BuiltinJob) or job.apply == "hf-args"
    return cards if of_trainer else None


def _of_command(
    command: Sequence[str], env: Mapping[str, str], cards: int | None, accelerate: AccelerateFile | None
) -> int:
    for place, word in enumerate(command):
        name, options = PurePath(word).name, long_options(command[place + 1 :])
        if name in TORCHRUN:
            each = options.get("nproc_per_node") or env.get("PET_NPROC_PER_NODE", "1")
            return _count(each, cards) * _nodes(options.get("nnodes") or env.get("PET_NNODES", "1"))
        if name in PROGRAMS:
            return _accelerated(options, cards, accelerate)
        if name == "deepspeed":
            return _deepspeed(options, cards)
        if name in TOOLS:
            return _accelerated(long_options(command, whole=True), cards, accelerate)
        if name == "swift":
            return _count(env.get("NPROC_PER_NODE", "1"), cards)
        if name in SPREADING:
            return _count(env.get("NPROC_PER_NODE", "auto"), cards)
    return 1


def _accelerated(options: Mapping[str, str], cards: int | None, file: AccelerateFile | None) -> int:
    """As `accelerate launch` decides: the kind in its file, else the cards, tell whether it starts several."""
    kind = None if file is None else file.distributed_type
    if "cpu" in options:
        spreads = False
    elif ACCELERATE_SPREADS & options.keys():
        spreads = True
    elif kind is not None:
        spreads = kind not in ONE_PROCESS
    else:
        spreads = cards is None or cards > 1
    told = None if file is None or file.num_processes is None else str(file.num_processes)
    return _count(options.get("num_processes") or told or "auto", cards) if spreads else 1


def _deepspeed(options: Mapping[str, str], cards: int | None) -> int:
    """`--include host:0,2@other:1` names the cards; otherwise `--num_gpus` on each of `--num_nodes`."""
    included = options.get("include")
    if included:
        return sum(len(slots.split(",")) for _, _, slots in (one.partition(":") for one in included.split("@")))
    return _count(options.get("num_gpus", "auto"), cards) * _nodes(options.get("num_nodes", "1"))


def _count(word: str, cards: int | None) -> int:
    """A number, or `auto` and `gpu`: one a card."""
    if NUMBER.fullmatch(word):
        return int(word)
    return max(1, cards or 0) if word in {"auto", "gpu"} else 1


def _nodes(word: str) -> int:
    """torchrun's `2`, or `1:4` of an elastic training, which begins with the smaller."""
    first = word.partition(":")[0]
    return int(first) if NUMBER.fullmatch(first) and int(first) > 0 else 1
