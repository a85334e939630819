"""A recommendation under construction: values with their reasons, rejected values and notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner_tui.advice.recommend.target import TrainingTarget
from tuner_tui.settings.dialects.hf import to_hf
from tuner_tui.settings.dialects.hf_names import SCRIPT_FIELDS
from tuner_tui.settings.fields import Value
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings


@dataclass(frozen=True, slots=True)
class RecommendedValue:
    """One recommended value, with its reason and the source of the reason."""

    name: str
    value: Value
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class RejectedValue:
    """A value that was considered and rejected, with the reason."""

    name: str
    value: Value
    reason: str
    source: str


class RecommendationDraft:
    """Collects recommendations. `given` values stay, and everything else is fitted to them."""

    def __init__(self, target: TrainingTarget, given: Mapping[str, Value]) -> None:
        self.target = target
        self.given = dict(given)
        self.advised: dict[str, RecommendedValue] = {}
        self.rejected: list[RejectedValue] = []
        self.notes: list[str] = []

    @property
    def settings(self) -> Settings:
        """The current settings: defaults, recommendations so far, given values."""
        return Settings.model_validate({**{name: one.value for name, one in self.advised.items()}, **self.given})

    def advise(self, name: str, value: Value, reason: str, source: str) -> None:
        """Recommends a value, unless one is given or the installed transformers has no such argument."""
        if name in self.given:
            return
        if not self._carried(name, value):
            self.reject(name, value, "the installed transformers has no such argument", "transformers")
            return
        self.advised[name] = RecommendedValue(name, value, reason, source)

    def reject(self, name: str, value: Value, reason: str, source: str) -> None:
        """Records a value that was considered and rejected."""
        if name not in self.given:
            self.rejected.append(RejectedValue(name, value, reason, source))

    def note(self, sentence: str) -> None:
        """Adds a note for the person."""
        self.notes.append(sentence)

    def _carried(self, name: str, value: Value) -> bool:
        interpreter = self.target.interpreter
        names = None if interpreter is None else interpreter.training_arguments
        script = SCRIPT_FIELDS if isinstance(self.target.job, BuiltinJob) else frozenset()
        if names is None or name in SCRIPT_FIELDS - script:
            return True
        settings = Settings.model_validate({name: value})
        return not to_hf(settings, names, only=(name,), extra=script).unsupported
