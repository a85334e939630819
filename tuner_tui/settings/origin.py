"""Settings together with the origin of each value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tuner_tui.settings.fields import Value
from tuner_tui.settings.model import Settings


class OriginKind(StrEnum):
    """Kind of source, in order of increasing precedence."""

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
    """Where a value comes from: the kind of source and its name, such as that of a preset or a variable."""

    kind: OriginKind
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings with the origin of each value. A field without an entry has its default."""

    settings: Settings
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def origin(self, name: str) -> Origin:
        """The origin of the field `name`."""
        return self.origins.get(name, Origin(OriginKind.DEFAULT))

    @property
    def given(self) -> dict[str, Value]:
        """The values that a user chose, in field order: neither defaults nor recommended values."""
        weak = (OriginKind.DEFAULT, OriginKind.RECOMMENDED)
        names = [name for name in Settings.model_fields if self.origin(name).kind not in weak]
        return {name: getattr(self.settings, name) for name in names}

    @property
    def chosen(self) -> frozenset[str]:
        """The names of all values that are not defaults, recommended ones included."""
        return frozenset(name for name, origin in self.origins.items() if origin.kind is not OriginKind.DEFAULT)
