"""Rows and ladders of `remedies.yaml`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Remedy, speed_words
from tuner_tui.advice.findings.run_metrics import loading_is_idle
from tuner_tui.advice.situation import Situation
from tuner_tui.core.files import compiled, read_data_file
from tuner_tui.core.units import format_share
from tuner_tui.settings.job import SHAPES, BuiltinJob
from tuner_tui.settings.model import FIELDS, Settings, Value

Ladder = list[str] | dict[str, list[str]]

FILE = Path(__file__).with_name("remedies.yaml")
TEXTS = ("title", "why", "effect", "rests_on", "source")
PLACEHOLDER = re.compile(r"\{([\w-]+)\}")
SOURCES = {name: value for name, value in vars(thresholds).items() if name.startswith("NOTES_")}


def read_part(name: str) -> Mapping[str, Any]:
    """A part of `remedies.yaml`: remedies, ladders, arguments or distributions."""
    table: Mapping[str, Any] = read_data_file(FILE)[name]
    return table


def remedy(name: str, change: Mapping[str, Value] | None = None, /, **values: object) -> Remedy:
    """The remedy of a row, with `values` in its placeholders. `change` and `speed` are the row's if not given."""
    row = read_part("remedies")[name]
    words = {**SOURCES, **values}
    texts: dict[str, Any] = {field: filled(row[field], words) for field in TEXTS if field in row}
    speed: Any = values.get("speed", row.get("speed"))
    change = row.get("set", {}) if change is None else change
    env = {name: filled(value, words) for name, value in row.get("env", {}).items()}
    texts |= {"edits_line": "own-line" in row}
    return Remedy(change=change, name=name, speed=None if speed is None else tuple(speed), env=env, **texts)


def filled(text: str, words: Mapping[str, object]) -> str:
    """`text` with words in its placeholders; those that are not known stay."""
    return PLACEHOLDER.sub(lambda word: str(words.get(word[1], word[0])), text)


def has_ladder(name: str) -> bool:
    """Whether a ladder, or a row as the only one of its ladder, has this name."""
    return name in read_part("ladders") or name in read_part("remedies")


def names_of(name: str, situation: Situation, where: str | None = None, role: str | None = None) -> list[str]:
    """The names in a ladder for what is known: `role`, `no-settings` where there are none, else `where`, else `any`."""
    ladder: Ladder = read_part("ladders").get(name, [name])
    if isinstance(ladder, list):
        return ladder
    unset = "no-settings" if situation.settings is None else None
    return next(ladder[key] for key in (role, unset, where, "any") if key in ladder)


def remedy_if_it_applies(name: str, situation: Situation, where: str | None, **given: object) -> Remedy | None:
    """The remedy of a row whose conditions hold. Without settings those on settings are not checked."""
    row = read_part("remedies")[name]
    words = _Words(situation)
    if not all(_holds(words, word, wanted) for word, wanted in row.get("if", {}).items()):
        return None
    computed = {name: value for name, value in row.get("set", {}).items() if isinstance(value, dict)}
    if situation.settings is None and computed:
        return None
    change = {**row.get("set", {}), **{name: words.compute(value) for name, value in computed.items()}}
    placeholders = {word for field in TEXTS for word in PLACEHOLDER.findall(row.get(field, ""))}
    values = {word: words[word] for word in placeholders if words.knows(word)}
    new = {f"new_{name}": value for name, value in change.items()}
    place_value = {} if where is None else {"where": where}
    return remedy(name, change, **{**place_value, **values, **new, **given})


class _Words:
    """What the words of `if`, of computed values and of placeholders stand for."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._settings = situation.settings

    def knows(self, word: str) -> bool:
        is_setting = word in WORDS or word in FIELDS
        is_fact = word in FACTS or word in read_part("log-signs") or bool(_rows_of_programs(word))
        return is_fact or (is_setting and self._settings is not None)

    def __getitem__(self, word: str) -> Any:
        if word in FACTS:
            return FACTS[word](self._situation)
        if sign := read_part("log-signs").get(word):
            return _is_in_log(sign, self._situation)
        rows = _rows_of_programs(word)
        if shown := [row for row in rows if "log" not in row or _is_in_log(row["log"], self._situation)]:
            return shown[0][word]
        assert self._settings is not None
        return WORDS[word](self._settings) if word in WORDS else getattr(self._settings, word)

    def compute(self, value: Mapping[str, Any]) -> Value:
        """The value of `{word: W}`, or of `{product: [...]}` of numbers and settings."""
        if "word" in value:
            result: Value = self[value["word"]]
        else:
            result = math.prod(self[factor] if isinstance(factor, str) else factor for factor in value["product"])
        return result


def _holds(words: _Words, word: str, wanted: Any) -> bool:
    if not words.knows(word):
        return True
    value = words[word]
    if isinstance(wanted, dict):
        return value is not None and wanted.get("above", -math.inf) < value < wanted.get("below", math.inf)
    return value in wanted if isinstance(wanted, list) else bool(value == wanted)


def runs_bitsandbytes(situation: Situation) -> bool:
    """Whether bitsandbytes may run here: on a GPU of Volta or newer, unless it is known to be missing.

    It has no kernels for MPS; on other makers' GPUs few releases have, so that it counts only where it is installed.
    """
    installed, backend = situation.has_package("bitsandbytes"), situation.backend or "cuda"
    if backend != "cuda":
        return backend != "mps" and installed is True
    return situation.may_run("4-bit") and installed is not False


def _rows_of_programs(word: str) -> list[Mapping[str, str]]:
    return [row for row in read_data_file(FILE)["programs"] if word in row]


def _is_in_log(pattern: str, situation: Situation) -> bool:
    return any(map(compiled(pattern).search, situation.log))


def _padding_saved(situation: Situation) -> str:
    share = situation.state.rates.padding_share
    return "" if share is None else f"saves at most {format_share(share)} of the computation"


def _saved_by_8_bit_states(situation: Situation) -> str:
    parameters = situation.state.trainable_parameters
    return "6 bytes per parameter" if parameters is None else f"{parameters * 6 / 1e9:.1f} GB"


def _gain_without_own_code(situation: Situation) -> str:
    profiled, share = situation.state.profiled, situation.state.rates.between_share
    if profiled is not None and profiled.bound == "host":
        share = profiled.share
    return f"at most {speed_words(1 / (1 - min(share, 0.99)))}" if share else ""


FACTS: Mapping[str, Callable[[Situation], object]] = {
    "gpu": lambda situation: situation.has_gpu,
    "backend": lambda situation: situation.backend,
    "triton": lambda situation: situation.may_run("triton"),
    "bitsandbytes": runs_bitsandbytes,
    "best-precision": lambda situation: situation.best_precision,
    "runs-tf32": lambda situation: situation.supports("tf32"),
    "runs-fused": lambda situation: situation.supports("fused"),
    "peft-installed": lambda situation: situation.has_package("peft"),
    "launch-blocking": lambda situation: read_part("launch-blocking")[situation.backend or "cuda"],
    "followed-run": lambda situation: situation.run is not None,
    "built-in-job": lambda situation: isinstance(situation.job, BuiltinJob),
    # On random weights LoRA learns next to nothing.
    "random-weights": lambda situation: isinstance(situation.job, BuiltinJob) and situation.job.model in SHAPES,
    "checkpoint": lambda situation: bool(situation.state.checkpoint or situation.state.saved or situation.resumed_from),
    "loads-checkpoint": lambda situation: situation.loads_checkpoint,
    "workers-sleep": lambda run: loading_is_idle(run, (run.settings or Settings()).dataloader_num_workers),
    "padding-saved": _padding_saved,
    "gain-without-own-code": _gain_without_own_code,
    "saved-by-8-bit-states": _saved_by_8_bit_states,
}
"""Words about the machine, the run and the job; null in a row stands for unknown."""
WORDS: Mapping[str, Callable[[Settings], object]] = {
    "workers": lambda settings: settings.dataloader_num_workers > 0,
    "prefetch": lambda settings: settings.dataloader_prefetch_factor or 2,
    "several-checkpoints": lambda settings: settings.save_total_limit is None or settings.save_total_limit > 1,
    "unclipped": lambda settings: settings.max_grad_norm == 0 or settings.max_grad_norm > 1,
    "adapted": lambda settings: settings.peft_method != "none",
    "eval-batch-doubled": lambda tried: tried.per_device_eval_batch_size >= 2 * tried.per_device_train_batch_size,
}
"""Words about settings. Any other word is the name of a setting."""
