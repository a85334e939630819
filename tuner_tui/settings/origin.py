"""Settings together with the origin of each value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tuner_tui.settings.fields import Value
from tuner_tui.settings.model import Settings


class OriginKind(StrEnum):
    """Kind of source, in order of increasing precedence. `SEEN` is a command's own value, observed in its run."""

    DEFAULT = "default"
    SEEN = "seen"
    RECOMMENDED = "recommended"
    PRESET = "preset"
    PROJECT = "project file"
    ENVIRONMENT = "environment"
    FLAG = "flag"
    EDITED = "edited"
    REMEDY = "remedy"
    TUNED = "tuned"


WEAK_ORIGINS = frozenset({OriginKind.DEFAULT, OriginKind.SEEN, OriginKind.RECOMMENDED})
"""Origins of values that no user chose."""


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
        """The values that a user chose, in field order: neither defaults nor seen nor recommended values."""
        names = [name for name in Settings.model_fields if self.origin(name).kind not in WEAK_ORIGINS]
        return {name: getattr(self.settings, name) for name in names}

    @property
    def chosen(self) -> frozenset[str]:
        """The names of all values that are neither defaults nor seen; recommended ones are included."""
        own = (OriginKind.DEFAULT, OriginKind.SEEN)
        return frozenset(name for name, origin in self.origins.items() if origin.kind not in own)

    def with_own(self, values: Mapping[str, Value]) -> Resolved:
        """These settings with a command's own `values` in place of defaults."""
        own = {name: value for name, value in values.items() if self.origin(name).kind in WEAK_ORIGINS}
        origins = dict.fromkeys(own, Origin(OriginKind.SEEN, "the command"))
        return Resolved(self.settings.changed(**own), {**self.origins, **origins})
