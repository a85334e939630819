"""The role of this process: the launched one, a rank of a launcher, or a helper process that stays silent."""

from __future__ import annotations

import os
import sys

MARKER = "_TUNER_OBSERVED"
"""Environment variable set by the first observed process; children that inherit it are not the launched process."""

LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "trl", "axolotl",
             "torch.distributed.run", "torch.distributed.launch",
             "accelerate.commands.launch", "accelerate.commands.accelerate_cli")  # fmt: skip
"""Programs that only start the ranks. The ranks count as launched."""


RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
"""Rank and world size as torchrun, Lightning (of one machine) and MPI's launchers set them."""


def is_launched(run_dir: str) -> bool:
    """Whether this is the launched process or a rank of it. Sets `MARKER`, so that child processes are not."""
    if _is_launcher():
        return False
    rank = os.environ.get("RANK", "")
    identity = f"{rank}:{run_dir}"
    # The environment is inherited: whoever finds the marker of another process is a child of an observed one, such as a
    # loader worker. Ranks are children of their launcher, which sets none; the rank is a part of the marker, since a
    # rank may start helpers but no process of its own rank.
    pid, _, taken = os.environ.get(MARKER, "").partition(":")
    if taken == identity and pid != str(os.getpid()):
        return False
    os.environ[MARKER] = f"{os.getpid()}:{identity}"
    return True


def _is_launcher() -> bool:
    arguments = list(getattr(sys, "orig_argv", None) or getattr(sys, "argv", []))[1:]
    while arguments and arguments[0].startswith("-") and arguments[0] != "-m":
        arguments = arguments[1:]
    if arguments[:1] == ["-m"]:
        return arguments[1:2] != [] and arguments[1] in LAUNCHERS
    return bool(arguments) and os.path.basename(arguments[0]) in LAUNCHERS


def rank_and_world() -> tuple[int, int]:
    """`(rank, world size)` from torch.distributed if it is initialised, else from the environment."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    except (AttributeError, RuntimeError, ValueError):
        pass
    for rank, world in RANK_VARIABLES:
        if rank in os.environ and _number(world, 1) > 1:
            return _number(rank, 0), _number(world, 1)
    return _number("RANK", 0), max(1, _number("WORLD_SIZE", 1))


def is_distributed() -> bool:
    """Whether torch.distributed is initialised with several ranks."""
    distributed = sys.modules.get("torch.distributed")
    try:
        return distributed is not None and distributed.is_initialized() and distributed.get_world_size() > 1
    except (AttributeError, RuntimeError, ValueError):
        return False


OTHER_EXCHANGES = ("horovod", "torch_xla", "byteps", "smdistributed", "mpi4py")
"""Packages by which processes exchange gradients without torch.distributed."""


def is_alone() -> bool:
    """Whether the process was started as one of several, and no package but torch could connect it with the others."""
    return rank_and_world()[1] > 1 and not any(name in sys.modules for name in OTHER_EXCHANGES)


def _number(name: str, default: int) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return default
