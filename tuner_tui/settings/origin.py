"""Where a value came from. Each setting remembers its origin, so that the screen can say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tuner_tui.settings.fields import Value
from tuner_tui.settings.model import Settings


class OriginKind(StrEnum):
    """Weakest first; a later kind wins over an earlier one."""

    DEFAULT = "default"
    RECOMMENDED = "recommended"
    PRESET = "preset"
    PROJECT = "project file"
    ENVIRONMENT = "environment"
    FLAG = "flag"
    EDITED = "edited"
    REMEDY = "remedy"
    TUNED = "tuned"


@dataclass(frozen=True, slots=True)
class Origin:
    """The kind of source and its name: a preset's name, an environment variable, a rule."""

    kind: OriginKind
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings with the origin of every value. A field without an entry is at its default."""

    settings: Settings
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def origin(self, name: str) -> Origin:
        """The origin of the field `name`."""
        return self.origins.get(name, Origin(OriginKind.DEFAULT))

    @property
    def given(self) -> dict[str, Value]:
        """The values that somebody chose, in the order of the settings, without what is recommended for the box."""
        weak = (OriginKind.DEFAULT, OriginKind.RECOMMENDED)
        names = [name for name in Settings.model_fields if self.origin(name).kind not in weak]
        return {name: getattr(self.settings, name) for name in names}

    @property
    def chosen(self) -> frozenset[str]:
        """The names of the values that somebody or something chose: all that are not mere defaults."""
        return frozenset(name for name, origin in self.origins.items() if origin.kind is not OriginKind.DEFAULT)
