"""How many processes train, told by the job alone: its launcher, or the launcher in its own command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import PurePath

from tuner_tui.settings.job import BuiltinJob, CommandJob

TORCHRUN = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch"})
ACCELERATE = frozenset({"accelerate", "accelerate-launch", "accelerate.commands.launch"})
SPREADING = frozenset({"llamafactory-cli", "llamafactory"})
"""Tools that start a process a card by themselves where there are several."""


def processes_of(job: BuiltinJob | CommandJob, cards: int | None = None) -> int:
    """The processes of the training, at least 1; `cards` are the GPUs that it can use, where that is known.

    The word of the command's own launcher counts: torchrun's `--nproc-per-node` and `--nnodes`, accelerate's
    `--num_processes` (trl and axolotl hand it on), deepspeed's `--num_gpus`, ms-swift's `NPROC_PER_NODE`.
    """
    if job.launcher != "plain":
        return job.processes
    if isinstance(job, BuiltinJob):
        return 1
    return max(1, _of_command(job.command, job.env, cards))


def _of_command(command: Sequence[str], env: Mapping[str, str], cards: int | None) -> int:
    for place, word in enumerate(command):
        name, options = PurePath(word).name, _options(command[place + 1 :])
        if name in TORCHRUN:
            each = options.get("nproc_per_node") or env.get("PET_NPROC_PER_NODE", "1")
            return _count(each, cards) * _nodes(options.get("nnodes") or env.get("PET_NNODES", "1"))
        if name in ACCELERATE:
            return _accelerated(options, cards)
        if name == "deepspeed":
            return _deepspeed(options, cards)
        if name in {"trl", "axolotl"}:
            return _accelerated(_options(command, whole=True), cards)
        if name == "swift":
            return _count(env.get("NPROC_PER_NODE", "1"), cards)
        if name in SPREADING:
            return _count(env.get("NPROC_PER_NODE", "auto"), cards)
    return 1


def _options(words: Sequence[str], whole: bool = False) -> dict[str, str]:
    """`--name value` and `--name=value` up to the script, or in all the words (`whole`); `-` in names becomes `_`."""
    found: dict[str, str] = {}
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if not whole and (word.endswith(".py") or word in {"-m", "--module", "--no-python", "--no_python"}):
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name.replace("-", "_")] = value if equals else following
    return found


def _accelerated(options: Mapping[str, str], cards: int | None) -> int:
    """accelerate starts several processes only on accelerators, whatever it is told."""
    return 1 if cards == 0 else _count(options.get("num_processes", "auto"), cards)


def _deepspeed(options: Mapping[str, str], cards: int | None) -> int:
    """`--include host:0,2@other:1` names the cards; otherwise `--num_gpus` on each of `--num_nodes`."""
    included = options.get("include")
    if included:
        return sum(len(slots.split(",")) for _, _, slots in (one.partition(":") for one in included.split("@")))
    return _count(options.get("num_gpus", "auto"), cards) * _nodes(options.get("num_nodes", "1"))


def _count(word: str, cards: int | None) -> int:
    """A number, or `auto` and `gpu`: one a card."""
    if word.isdigit():
        return int(word)
    return max(1, cards or 0) if word in {"auto", "gpu"} else 1


def _nodes(word: str) -> int:
    """torchrun's `2`, or `1:4` of an elastic training, which begins with the smaller."""
    first = word.partition(":")[0]
    return int(first) if first.isdigit() and int(first) > 0 else 1
