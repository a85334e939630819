"""How long the samples of local or cached data are, and what follows: what is cut, how much is padding."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from tuner_tui.memory.trace import ask_trainer
from tuner_tui.settings.job import BuiltinJob, CommandJob

MOST_SAMPLES, MOST_SECONDS = 2_000, 20.0
"""How many samples are measured, and for how long."""
TIMEOUT_S = 240.0
MEGABATCHES = 50
"""Transformers sorts at most as many batches at a time by length, and fewer than a quarter of all."""
SEED = 7
PACKING_KEYS = ("packing", "sample_packing", "neat_packing", "dataset.packed")
"""How the tools say that samples are put end to end."""
BUILT_IN_DATA = ("stdlib", "")


@dataclass(frozen=True, slots=True)
class PaddedBatches:
    """The share of padding in batches of samples drawn at random, and in those grouped by length."""

    random: float
    grouped: float


@dataclass(frozen=True)
class SampleLengths:
    """The lengths of measured samples, in `unit`, of `total` samples that the data has; `packed` are put end to end."""

    lengths: tuple[int, ...]
    total: int
    unit: str = "tokens"
    packed: bool = False

    @cached_property
    def ordered(self) -> tuple[int, ...]:
        """The lengths, the shortest first."""
        return tuple(sorted(self.lengths))

    @property
    def longest(self) -> int:
        """The longest length measured."""
        return self.ordered[-1]

    def percentile(self, share: float) -> int:
        """The least length that `share` of the samples, from 0 to 1, do not exceed."""
        index = -int(-share * len(self.ordered) // 1) - 1
        return self.ordered[min(max(index, 0), len(self.ordered) - 1)]

    def cut_share(self, max_length: int) -> float:
        """The share of samples that are longer than `max_length`."""
        return sum(one > max_length for one in self.ordered) / len(self.ordered)

    def padding(self, batch: int, max_length: int) -> PaddedBatches:
        """The padding of batches of `batch` samples, cut at `max_length` and padded to their longest one.

        At random: 1 - mean / E[longest of a batch]; with F(x) the share of samples of at most length x, the longest of
        B samples is x with probability F(x)^B - F(x-)^B. Grouped: the same order as transformers makes, of one shuffle.
        """
        cut = [min(one, max_length) for one in self.ordered]
        count = len(cut)
        longest = sum(one * (((i + 1) / count) ** batch - (i / count) ** batch) for i, one in enumerate(cut))
        shuffled = random.Random(SEED).sample(cut, count)  # noqa: S311  reproducible
        size = batch * max(1, min(count // (batch * 4), MEGABATCHES))
        sorted_parts = (sorted(shuffled[i : i + size], reverse=True) for i in range(0, count, size))
        ordered = [one for part in sorted_parts for one in part]
        bounds = [*range(0, count, batch), count]
        padded = sum((end - start) * max(ordered[start:end]) for start, end in pairwise(bounds) if end > start)
        return PaddedBatches(1 - sum(cut) / count / longest, 1 - sum(cut) / padded)


def measure_lengths(job: BuiltinJob | CommandJob, python: Path, folder: Path) -> SampleLengths | None:
    """The lengths of the samples of the job's data, a random part of them, counted by the Python that trains.

    None where the data is not here. Raises `TraceError` where it cannot be read.
    """
    names = [name for part in (job.data or "").split(",") if (name := part.strip()) not in BUILT_IN_DATA]
    here = [name for name in names if is_here(name, folder)]
    if not here:
        return None
    limits = {"most": MOST_SAMPLES, "seconds": MOST_SECONDS}
    request = {"data": here, "model": job.model, "folder": str(folder.absolute()), **limits}
    answer = ask_trainer(python, request, TIMEOUT_S, "measure-data")
    return SampleLengths(tuple(answer["lengths"]), answer["total"], answer["unit"])


def is_here(name: str, folder: Path) -> bool:
    """Whether data is a local file, in LLaMA-Factory's list of data sets, or in the cache of those of the Hub."""
    lists = [place / "dataset_info.json" for place in (folder / "data", folder)]
    cache = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cached = (
        cache / "datasets" / name.replace("/", "___").lower(),
        cache / "hub" / f"datasets--{name.replace('/', '--')}",
    )
    try:
        if any(f'"{name}"' in one.read_text(errors="replace") for one in lists if one.is_file()):
            return True
        return any(one.exists() for one in (folder / Path(name).expanduser(), *cached))
    except OSError:
        return False
