"""The least memory under which a training can start at all; below it, libraries wait for ever instead of failing."""

from __future__ import annotations

from collections.abc import Mapping

from tuner_tui.runs.command import has_gpu

FLOOR_BYTES = 512 * 2**20
"""With 512 MiB of private memory torch 2.13 and the Trainer of transformers 5.23 were imported; with 448 MiB the import
did not end within a minute (Linux, one thread: more threads take more)."""


def below_floor(limit_bytes: int | None, env: Mapping[str, str]) -> str | None:
    """What is wrong with a memory limit, in a sentence; None where it is large enough or caps a GPU."""
    if limit_bytes is None or limit_bytes >= FLOOR_BYTES or has_gpu(env):
        return None
    floor = FLOOR_BYTES // 2**20
    return (
        f"The memory limit of {limit_bytes / 2**20:.0f} MiB is too small for a training: "
        f"importing torch and transformers takes about {floor} MiB and may never end with less."
    )
