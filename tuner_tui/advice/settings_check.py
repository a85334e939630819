"""Compares the settings requested for a run with those observed in its training process.

Used by the screen, the command line and the live finding. A value that was not observed is unknown, never different.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, structs

from tuner_tui.advice.situation import Situation, observed_precision
from tuner_tui.runs.read.comparison import same_value
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


class SettingCheck(Struct, frozen=True):
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
    refused, in_effect = _refused(situation), situation.state.in_effect
    if not in_effect and not refused:
        return ()
    asked = _asked(situation)
    reaching = [name for name in FIELDS if name not in {mark.name for mark in refused}]
    marks = [_mark(name, asked.get(name), situation) for name in reaching]
    listed = [mark for mark in marks if mark.seen is not None or (mark.name in CHECKED and mark.asked is not None)]
    others = [
        SettingCheck(name, None, value, "not asked")
        for name, value in in_effect.items()
        if name not in {*FIELDS, "autocast_dtype", "optimizer", "fused"}
    ]
    return tuple(sorted([*refused, *listed, *others], key=lambda mark: (mark.verdict != "differs", mark.name)))


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
    unobserved = f"the training is not observed, because {state.unobserved.reason}" if state.unobserved else UNOBSERVED
    reasons = dict.fromkeys(situation.not_applied, "cannot be passed this way")
    reasons |= dict.fromkeys(map(setting_of_argument, state.not_injected), "the process has no place to set it")
    reasons |= dict.fromkeys(_unobserved(situation), unobserved)
    return [SettingCheck(name, asked.get(name), None, "differs", reason) for name, reason in reasons.items()]


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


def _mark(name: str, asked: Any, situation: Situation) -> SettingCheck:
    in_effect = situation.state.in_effect
    if name == "optim":
        return _optimizer(asked, in_effect)
    seen = observed_precision(in_effect) if name == "precision" else in_effect.get(name)
    if name == "tf32" and asked and situation.supports("tf32") is False:
        return SettingCheck(name, asked, seen, "unknown", "no GPU here supports TF32")
    if name == "dataloader_prefetch_factor" and asked is not None and in_effect.get("dataloader_num_workers") == 0:
        return SettingCheck(name, asked, None, "unknown", "there are no workers")
    if asked is None or asked == "auto":
        return SettingCheck(name, asked, seen, "not asked")
    if seen is None:
        models_own = name == "gradient_checkpointing" and name in in_effect
        why = "this model does not report it" if models_own else "the training has not reported it"
        return SettingCheck(name, asked, None, "unknown", why)
    if same_value(asked, seen):
        return SettingCheck(name, asked, seen, "agrees")
    package = FLASH.get(str(asked))
    missing = name == "attn_implementation" and package and situation.has_package(package) is False
    why = f"{package} is not installed" if missing else ""
    if name == "precision" and seen == "fp32":
        why = "no autocast was observed"
    return SettingCheck(name, asked, seen, "differs", situation.state.injection_limits.get(name) or why)


def _optimizer(asked: Any, in_effect: Mapping[str, Any]) -> SettingCheck:
    kind, fused = in_effect.get("optimizer"), in_effect.get("fused")
    if kind is None:
        asks = asked not in (None, "auto")
        why = "the training has not reported it" if asks else ""
        return SettingCheck("optim", asked, None, "unknown" if asks else "not asked", why)
    label = f"{kind}, fused" if fused else str(kind)
    optimizer = OPTIMIZERS.get(str(asked))
    if optimizer is None:
        verdict: CheckResult = "not asked" if asked is None else "unknown"
        return SettingCheck("optim", asked, label, verdict, "not visible from its class")
    wanted_kind, wanted_fused = optimizer
    wrong = kind != wanted_kind or (wanted_fused is not None and bool(fused) != wanted_fused)
    why = "torch has no fused kernel here" if wrong and kind == wanted_kind and wanted_fused else ""
    return SettingCheck("optim", asked, label, "differs" if wrong else "agrees", why)
