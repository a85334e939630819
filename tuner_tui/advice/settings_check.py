"""Compares the settings requested for a run with those observed in its training process.

Used by the screen, the command line and the live finding. A value that was not observed is unknown, never different.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from msgspec import structs

from tuner_tui.advice.situation import Situation, observed_precision
from tuner_tui.settings.dialects.hf import setting_of_argument
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import FIELDS

CheckResult = Literal["agrees", "differs", "unknown", "not asked"]
OPTIMIZERS = {
    "adamw_torch": ("AdamW", False),
    "adamw_torch_fused": ("AdamW", True),
    "sgd": ("SGD", None),
    "adafactor": ("Adafactor", None),
}
"""Observed class and fused flag of optimizers; 8-bit variants are called AdamW, too, and cannot be recognised."""
CHECKED = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "precision", "tf32", "optim", "attn_implementation",
    "gradient_checkpointing", "torch_compile", "dataloader_num_workers", "dataloader_prefetch_factor",
    "dataloader_pin_memory", "dataloader_persistent_workers",
)  # fmt: skip
"""The settings that speed and memory depend on; listed even if nothing was observed."""
UNOBSERVED = "the training was not observed"
FLASH = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_3"}


@dataclass(frozen=True, slots=True)
class SettingCheck:
    """One setting: requested value (`asked`) and observed value (`seen`), None if unknown."""

    name: str
    asked: Any
    seen: Any
    verdict: CheckResult
    why: str = ""


def verify_settings(situation: Situation) -> tuple[SettingCheck, ...]:
    """Checks all requested settings and lists everything else that the observer reported.

    Differing settings come first, then by name. Empty before the training has reported anything.
    """
    if not situation.state.in_effect and not _refused(situation):
        return ()
    marks = [*_refused(situation), *_settings(situation), *_facts(situation)]
    return tuple(sorted(marks, key=lambda mark: (mark.verdict != "differs", mark.name)))


def differing_settings(situation: Situation) -> tuple[SettingCheck, ...]:
    """The checks whose requested and observed values differ."""
    return tuple(mark for mark in verify_settings(situation) if mark.verdict == "differs")


def _asked(situation: Situation) -> Mapping[str, Any]:
    """The requested values: of a command only the chosen ones, since its own defaults are its own."""
    if situation.settings is None:
        return {}
    values = structs.asdict(situation.settings)
    return values if situation.chosen is None else {name: values[name] for name in situation.chosen if name in values}


def _refused(situation: Situation) -> list[SettingCheck]:
    """Settings that never reached the training."""
    asked, state = _asked(situation), situation.state
    marks = {
        name: SettingCheck(name, asked.get(name), None, "differs", "cannot be passed this way")
        for name in situation.not_applied
    }
    for name in map(setting_of_argument, state.not_injected):
        marks[name] = SettingCheck(name, asked.get(name), None, "differs", "the process has no place to set it")
    for name in _unobserved(situation):
        why = f"the training is not observed, because {state.unobserved}" if state.unobserved else UNOBSERVED
        marks[name] = SettingCheck(name, asked.get(name), None, "differs", why)
    return list(marks.values())


def _unobserved(situation: Situation) -> frozenset[str]:
    """All requested settings, if they are set by the observer and it never reported from the training."""
    job, state = situation.job, situation.state
    injects = isinstance(job, CommandJob) and job.apply == "inject"
    ended = state.outcome in ("completed", "stopped")
    if not injects or state.ranks or not (ended or state.unobserved):
        return frozenset()
    return situation.chosen or frozenset()


def unreachable_settings(situation: Situation) -> frozenset[str]:
    """The requested settings that never reached the training."""
    return frozenset(mark.name for mark in _refused(situation))


def _settings(situation: Situation) -> list[SettingCheck]:
    asked, refused = _asked(situation), {mark.name for mark in _refused(situation)}
    wanted = [name for name in FIELDS if name not in refused]
    marks = [_mark(name, asked.get(name), situation) for name in wanted]
    return [mark for mark in marks if mark.seen is not None or (mark.name in CHECKED and mark.asked is not None)]


def _facts(situation: Situation) -> list[SettingCheck]:
    """Observed values that are no settings."""
    used = {*FIELDS, "autocast_dtype", "optimizer", "fused"}
    return [
        SettingCheck(name, None, value, "not asked")
        for name, value in situation.state.in_effect.items()
        if name not in used
    ]


def _mark(name: str, asked: Any, situation: Situation) -> SettingCheck:
    special = SPECIAL.get(name)
    if special is not None:
        return special(asked, situation)
    check = _plain(name, asked, situation.state.in_effect.get(name))
    limit = situation.state.injection_limits.get(name)
    return replace(check, why=limit) if limit and check.verdict == "differs" else check


def _plain(name: str, asked: Any, seen: Any) -> SettingCheck:
    if asked is None or asked == "auto":
        return SettingCheck(name, asked, seen, "not asked")
    if seen is None:
        return SettingCheck(name, asked, None, "unknown", "the training has not reported it")
    return SettingCheck(name, asked, seen, "agrees" if _same(asked, seen) else "differs")


def _same(asked: Any, seen: Any) -> bool:
    numbers = (int, float)
    if isinstance(asked, numbers) and isinstance(seen, numbers) and not isinstance(asked, bool):
        return math.isclose(asked, seen, rel_tol=1e-6)
    return bool(asked == seen)


def _precision(asked: Any, situation: Situation) -> SettingCheck:
    check = _plain("precision", asked, observed_precision(situation.state.in_effect))
    if check.verdict == "differs" and check.seen == "fp32":
        return replace(check, why="no autocast was observed")
    return check


def _optimizer(asked: Any, situation: Situation) -> SettingCheck:
    seen = situation.state.in_effect
    kind, fused = seen.get("optimizer"), seen.get("fused")
    if kind is None:
        return _plain("optim", asked, None)
    word = f"{kind}, fused" if fused else str(kind)
    optimizer = OPTIMIZERS.get(str(asked))
    if asked is None or optimizer is None:
        return SettingCheck(
            "optim", asked, word, "not asked" if asked is None else "unknown", "not visible from its class"
        )
    wrong = kind != optimizer[0] or (optimizer[1] is not None and bool(fused) != optimizer[1])
    why = "torch has no fused kernel here" if wrong and kind == optimizer[0] and optimizer[1] else ""
    return SettingCheck("optim", asked, word, "differs" if wrong else "agrees", why)


def _tf32(asked: Any, situation: Situation) -> SettingCheck:
    seen = situation.state.in_effect.get("tf32")
    if asked and situation.supports("tf32") is False:
        return SettingCheck("tf32", asked, seen, "unknown", "no GPU here supports TF32")
    return _plain("tf32", asked, seen)


def _attention(asked: Any, situation: Situation) -> SettingCheck:
    mark = _plain("attn_implementation", asked, situation.state.in_effect.get("attn_implementation"))
    package = FLASH.get(str(asked))
    if mark.verdict == "differs" and package and situation.has_package(package) is False:
        return SettingCheck(mark.name, asked, mark.seen, "differs", f"{package} is not installed")
    return mark


def _checkpointing(asked: Any, situation: Situation) -> SettingCheck:
    mark = _plain("gradient_checkpointing", asked, situation.state.in_effect.get("gradient_checkpointing"))
    if mark.verdict == "unknown" and "gradient_checkpointing" in situation.state.in_effect:
        return SettingCheck(mark.name, asked, None, "unknown", "this model does not report it")
    return mark


def _prefetch(asked: Any, situation: Situation) -> SettingCheck:
    """Prefetch has no meaning without workers."""
    workers = situation.state.in_effect.get("dataloader_num_workers")
    if asked is not None and workers == 0:
        return SettingCheck("dataloader_prefetch_factor", asked, None, "unknown", "there are no workers")
    return _plain("dataloader_prefetch_factor", asked, situation.state.in_effect.get("dataloader_prefetch_factor"))


SPECIAL: Mapping[str, Callable[[Any, Situation], SettingCheck]] = {
    "precision": _precision,
    "optim": _optimizer,
    "tf32": _tf32,
    "attn_implementation": _attention,
    "gradient_checkpointing": _checkpointing,
    "dataloader_prefetch_factor": _prefetch,
}
