"""Rows and ladders of `remedies.yaml`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.core.files import read_data_file
from tuner_tui.settings.job import SHAPES, BuiltinJob
from tuner_tui.settings.model import Settings, Value

Ladder = list[str] | dict[str, list[str]]

FILE = Path(__file__).with_name("remedies.yaml")
TEXTS = ("title", "why", "effect", "rests_on", "source")
PLACEHOLDER = re.compile(r"\{(\w+)\}")
SOURCES = {name: value for name, value in vars(thresholds).items() if name.startswith("NOTES_")}


def _document() -> Mapping[str, Mapping[str, Any]]:
    document: Mapping[str, Mapping[str, Any]] = read_data_file(FILE)
    return document


def remedy(name: str, change: Mapping[str, Value] | None = None, /, **values: object) -> Remedy:
    """The remedy of a row, with `values` in its placeholders. `change` is the row's `set` if not given."""
    row = _document()["remedies"][name]
    known = {**SOURCES, **values}
    texts: dict[str, Any] = {
        field: PLACEHOLDER.sub(lambda word: str(known.get(word[1], word[0])), row[field])
        for field in TEXTS
        if field in row
    }
    return Remedy(change=row.get("set", {}) if change is None else change, **texts)


def ladders() -> Mapping[str, Ladder]:
    """The ladders, by cause or topic."""
    return _document()["ladders"]


def has_ladder(name: str) -> bool:
    """Whether a ladder, or a row as the only one of its ladder, has this name."""
    return name in ladders() or name in _document()["remedies"]


def names_of(name: str, situation: Situation, where: str | None = None) -> list[str]:
    """The names in a ladder for what is known: `no-settings` where there are none, else `where`, else `any`."""
    ladder = ladders().get(name, [name])
    if isinstance(ladder, list):
        return ladder
    if situation.settings is None and "no-settings" in ladder:
        return ladder["no-settings"]
    return ladder.get(where or "any", ladder["any"])


def applies(name: str, situation: Situation, settings: Settings | None) -> bool:
    """Whether the conditions of a row hold. Without settings those on settings are not checked."""
    conditions = _document()["remedies"][name].get("if", {})
    return all(_holds(word, wanted, situation, settings) for word, wanted in conditions.items())


def _holds(word: str, wanted: object, situation: Situation, settings: Settings | None) -> bool:
    if word in FACTS:
        value = FACTS[word](situation)
    elif settings is None:
        return True
    else:
        value = WORDS[word](settings) if word in WORDS else getattr(settings, word)
    return value in wanted if isinstance(wanted, list) else value == wanted


def runs_bitsandbytes(situation: Situation) -> bool:
    """Whether bitsandbytes may run here: on a GPU of Volta or newer, unless it is known to be missing."""
    return situation.may_run("4-bit") and situation.has_package("bitsandbytes") is not False


FACTS: Mapping[str, Callable[[Situation], object]] = {
    "gpu": lambda situation: situation.has_gpu,
    "triton": lambda situation: situation.may_run("triton"),
    "bitsandbytes": runs_bitsandbytes,
    "best-precision": lambda situation: situation.best_precision,
    "runs-tf32": lambda situation: situation.supports("tf32"),
    "runs-fused": lambda situation: situation.supports("fused"),
    "peft-installed": lambda situation: situation.has_package("peft"),
    "built-in-job": lambda situation: isinstance(situation.job, BuiltinJob),
    # On random weights LoRA learns next to nothing.
    "random-weights": lambda situation: isinstance(situation.job, BuiltinJob) and situation.job.model in SHAPES,
}
"""Words of `if` about the machine and the job; null in a row stands for unknown."""
WORDS: Mapping[str, Callable[[Settings], object]] = {
    "workers": lambda settings: settings.dataloader_num_workers > 0,
    "deep-prefetch": lambda settings: (settings.dataloader_prefetch_factor or 2) > 2,
    "several-checkpoints": lambda settings: settings.save_total_limit is None or settings.save_total_limit > 1,
    "unclipped": lambda settings: settings.max_grad_norm == 0 or settings.max_grad_norm > 1,
    "adapted": lambda settings: settings.peft_method != "none",
}
"""Words of `if` about settings. Any other word is the name of a setting."""
