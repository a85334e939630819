"""The other ranks of this training, where there are any."""

from __future__ import annotations

import gc

import torch.distributed as distributed


def has_peers() -> bool:
    """Whether this process is one rank of several."""
    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


def leave_peers() -> None:
    """Leave the process groups while Python is still alive; nothing where there are none.

    gloo's threads hold what they last worked on, Python objects too. One that lets go of them while Python ends is
    ended in the middle of it, and aborts the process of a finished training (seen with torch 2.13 in 5 of 75 short
    trainings of two ranks). The groups' threads end with the last object that holds a group, such as the model
    that DDP wraps: callers have let go of it, but for reference cycles.
    """
    if has_peers():
        gc.collect()
        distributed.destroy_process_group()
