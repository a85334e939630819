"""How long the samples of local or cached data are, and what follows: what is cut, how much is padding."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.hardware.interpreter import probe_cache_entry
from tuner_tui.memory.trace import ask_trainer
from tuner_tui.settings.command_training import own_options
from tuner_tui.settings.dialects.script_search import words_of
from tuner_tui.settings.job import CommandJob, Job
from tuner_tui.settings.model import FIELDS, Origin, OriginKind, Resolved, Settings

MOST_SAMPLES, MOST_SECONDS = 2_000, 10.0
"""How many samples are measured, and for how long."""
MEGABATCHES = 50
"""Transformers sorts at most as many batches at a time by length, and fewer than a quarter of all."""
SEED = 7
FORMAT = 2
MOST_FILES = 200
"""Files of a folder of which the time of change is kept."""
BUILT_IN_DATA = ("stdlib", "")


class PaddedBatches(Struct, frozen=True):
    """The share of padding in batches of samples drawn at random, and in those grouped by length."""

    random: float
    grouped: float


class SampleLengths(Struct, frozen=True, dict=True):
    """The lengths of measured samples, in `unit`, of `total` samples that the data has.

    `packed` samples are put end to end, `padded` ones are filled to `max_length`.
    """

    lengths: tuple[int, ...]
    total: int
    unit: str = "tokens"
    packed: bool = False
    padded: bool = False

    @cached_property
    def ordered(self) -> tuple[int, ...]:
        """The lengths, the shortest first."""
        return tuple(sorted(self.lengths))

    @property
    def longest(self) -> int:
        return self.ordered[-1]

    def percentile(self, share: float) -> int:
        """The least length that `share` of the samples, from 0 to 1, do not exceed."""
        index = -int(-share * len(self.ordered) // 1) - 1
        return self.ordered[min(max(index, 0), len(self.ordered) - 1)]

    def cut_share(self, max_length: int) -> float:
        """The share of samples that are longer than `max_length`."""
        return sum(length > max_length for length in self.ordered) / len(self.ordered)

    def mean(self, max_length: int) -> float:
        return sum(min(length, max_length) for length in self.lengths) / len(self.lengths)

    def padding_share(self, settings: Settings) -> float:
        """The share of a batch that is padding, with the sampling of `settings`."""
        shares = self.padding(settings.per_device_train_batch_size, settings.max_length)
        return shares.grouped if settings.train_sampling_strategy == "group_by_length" else shares.random

    def padding(self, batch: int, max_length: int) -> PaddedBatches:
        """The padding of batches of `batch` samples, cut at `max_length` and padded to their longest one.

        At random: 1 - mean / E[longest of a batch]; with F(x) the share of samples of at most length x, the longest of
        B samples is x with probability F(x)^B - F(x-)^B. Grouped: the same order as transformers makes, of one shuffle.
        """
        if self.packed or self.padded:
            share = 0.0 if self.packed else 1 - self.mean(max_length) / max_length
            return PaddedBatches(share, share)
        cut = [min(length, max_length) for length in self.ordered]
        count = len(cut)
        longest = sum(length * (((i + 1) / count) ** batch - (i / count) ** batch) for i, length in enumerate(cut))
        # transformers/trainer_pt_utils.py, get_length_grouped_indices: shuffled, cut into megabatches, each sorted.
        shuffled = random.Random(SEED).sample(cut, count)  # noqa: S311  reproducible
        size = batch * max(1, min(count // (batch * 4), MEGABATCHES))
        sorted_parts = (sorted(shuffled[i : i + size], reverse=True) for i in range(0, count, size))
        ordered = [length for part in sorted_parts for length in part]
        bounds = [*range(0, count, batch), count]
        padded = sum((end - start) * max(ordered[start:end]) for start, end in pairwise(bounds) if end > start)
        return PaddedBatches(max(0.0, 1 - sum(cut) / count / longest), 1 - sum(cut) / padded)


def assumes_length(job: Job, given: Collection[str]) -> bool:
    """Whether the settings' `max_length` is no more than an assumption on a command, by which nothing is cut."""
    return isinstance(job, CommandJob) and "max_length" not in given


def with_measured_length(resolved: Resolved, job: Job, lengths: SampleLengths | None) -> Resolved:
    """The settings with the longest measured sample where nothing says how long one may be."""
    if lengths is None or not assumes_length(job, resolved.origins):
        return resolved
    origin = Origin(OriginKind.ASSUMED, f"the longest of {len(lengths.lengths):,} samples ({lengths.unit})")
    bounds = FIELDS["max_length"]
    longest = int(min(max(lengths.longest, bounds.minimum or 0), bounds.maximum or lengths.longest))
    settings = resolved.settings.changed(max_length=longest)
    return replace(resolved, settings=settings, origins={**resolved.origins, "max_length": origin})


def measure_lengths(
    job: Job, python: Path, *, cached_only: bool = False, before: Callable[[], None] = lambda: None
) -> SampleLengths | None:
    """The lengths of the samples of the job's data, a random part of them, counted by the Python that trains.

    Relative names start from the folder of the job. The answer is kept until a file changes; with `cached_only` nothing
    is started, and `before` is called if anything is. None where the data is not here. Raises `TraceError` where it
    cannot be read.
    """
    if isinstance(job, CommandJob) and job.model is None and job.task is None:
        return None  # nothing says that it trains on text
    folder = Path((job.cwd if isinstance(job, CommandJob) else None) or "")
    names = [name for part in (job.data or "").split(",") if (name := part.strip()) not in BUILT_IN_DATA]
    # A tool's own description of its data has no samples itself.
    here = [name for name in names if not name.endswith((".toml", ".yaml", ".yml")) and is_here(name, folder)]
    if not here:
        return None
    limits = {"most": MOST_SAMPLES, "seconds": MOST_SECONDS}
    request = {"data": here, "model": job.model, "folder": str(folder.absolute()), **limits}
    entry = probe_cache_entry("lengths", [FORMAT, str(python), request])
    answer = entry.read()
    if answer is None:
        if cached_only:
            return None
        files = [str(path) for name in here for path in _files_of(name, folder)]
        before()
        answer = ask_trainer(python, request, verb="measure-data")
        entry.write(answer, files)
    on = {key for key, value in own_options(job).items() if str(value).lower() == "true"}
    packed, padded = not on.isdisjoint(words_of("packs")), not on.isdisjoint(words_of("pads"))
    return SampleLengths(tuple(answer["lengths"]), answer["total"], answer["unit"], packed, padded)


def _files_of(name: str, folder: Path) -> list[Path]:
    """The files by which a change of the data is noticed: its own, and those next to LLaMA-Factory's list."""
    path = folder / Path(name).expanduser()
    folders = [root for root in (path, folder / "data") if root.is_dir()]
    return [path, *_cached(name), *(file for root in folders for file in sorted(root.iterdir())[:MOST_FILES])]


def _cached(name: str) -> list[Path]:
    cache = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    of_hub = f"datasets--{name.replace('/', '--')}"
    return [cache / "datasets" / name.replace("/", "___").lower(), cache / "hub" / of_hub]


def is_here(name: str, folder: Path) -> bool:
    """Whether data is a local file, in LLaMA-Factory's list of data sets, or in the cache of those of the Hub."""
    try:
        lists = (root / "dataset_info.json" for root in (folder / "data", folder))
        if any(f'"{name}"' in listing.read_text(errors="replace") for listing in lists if listing.is_file()):
            return True
        return any(path.exists() for path in (folder / Path(name).expanduser(), *_cached(name)))
    except OSError:
        return False
