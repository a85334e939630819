"""The settings that a trial's training really used, and those that do not reach it."""

from __future__ import annotations

from tuner_tui.advice.situation import Situation
from tuner_tui.advice.verification import verify_settings
from tuner_tui.settings.fields import FIELDS
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.knobs import PERSISTENT, PIN, PREFETCH, WORKERS
from tuner_tui.tuning.search.space import ACCUMULATION, MICRO
from tuner_tui.tuning.search.space_builder import TUNED_FIELDS

LOADER_FIELDS = frozenset({MICRO, WORKERS, PREFETCH, PIN, PERSISTENT})
"""What is put into a DataLoader that a script builds itself."""


def settings_in_trial(situation: Situation, given: Settings) -> Settings:
    """`given`, with what was seen in effect of the settings that were left to the training itself.

    The built-in job takes all settings. Of another command's, those that a tuning may change are read where they were
    seen and are of the right kind.
    """
    if isinstance(situation.job, BuiltinJob) or situation.chosen is None:
        return given
    seen = {
        mark.name: mark.seen
        for mark in verify_settings(situation)
        if mark.name in TUNED_FIELDS and mark.seen is not None
    }
    own = {name: value for name, value in seen.items() if name not in situation.chosen and _is_valid(name, value)}
    if own.get(WORKERS, given.dataloader_num_workers) == 0:
        own |= {PREFETCH: None, PERSISTENT: False}
    return given.changed(**own)


def _is_valid(name: str, value: object) -> bool:
    """Whether a value that was seen is one that the setting can have: the optimizer is told by its class's name."""
    choices = FIELDS[name].choices
    kinds: dict[str, type] = {"int": int, "bool": bool}
    if choices:
        return value in choices
    return type(value) is kinds.get(FIELDS[name].kind)


def unreachable_in_trial(situation: Situation) -> frozenset[str]:
    """The settings that cannot be put into this training from within, as its process showed: all but a loader's, where
    it has no Trainer. Empty for every other way of handing settings over."""
    job, state = situation.job, situation.state
    if not isinstance(job, CommandJob) or job.apply != "inject" or not state.in_effect:
        return frozenset()
    if ACCUMULATION in state.in_effect:  # only a Trainer's arguments tell it
        return frozenset(state.not_injected) & frozenset(TUNED_FIELDS)
    return frozenset(TUNED_FIELDS) - LOADER_FIELDS
