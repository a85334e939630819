"""Edited settings with undo and redo: an immutable value, each change gives a new one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.settings.model import FIELDS, Origin, OriginKind, Resolved, Value, check_value

EDITED = Origin(OriginKind.EDITED)
# A state is one object with some 40 references: 500 of them take about a megabyte.
UNDO_LIMIT = 500


class EditHistory(Struct, frozen=True):
    """The settings being edited. `saved` is the state on disk; `past` and `future` are newest last."""

    current: Resolved
    saved: Resolved
    past: tuple[Resolved, ...] = ()
    future: tuple[Resolved, ...] = ()

    @classmethod
    def of(cls, resolved: Resolved) -> EditHistory:
        return cls(resolved, resolved)

    @property
    def can_undo(self) -> bool:
        return bool(self.past)

    @property
    def can_redo(self) -> bool:
        return bool(self.future)

    @property
    def changed(self) -> tuple[str, ...]:
        """The names of the fields that differ from the saved preset."""
        now, then = self.current.settings, self.saved.settings
        return tuple(name for name in FIELDS if getattr(now, name) != getattr(then, name))

    @property
    def dirty(self) -> bool:
        now, then = self.current, self.saved
        return (now.settings, now.given) != (then.settings, then.given)

    def edit(self, name: str, value: Value, unknown: Collection[str] = frozenset()) -> EditHistory:
        """Change one field. Raises `FieldError` for a bad name or value."""
        return self.apply({name: value}, EDITED, unknown)

    def apply(
        self, change: Mapping[str, Value], origin: Origin | Mapping[str, Origin], unknown: Collection[str] = frozenset()
    ) -> EditHistory:
        """Change several fields as one step. A field that keeps its value keeps its origin. Raises `FieldError`.

        The values of `unknown` fields are not those of the training: any new one changes them.
        """
        checked = {name: check_value(name, value) for name, value in change.items()}
        settings = self.current.settings
        new = {name: value for name, value in checked.items() if name in unknown or getattr(settings, name) != value}
        if not new:
            return self
        given = {name: origin if isinstance(origin, Origin) else origin[name] for name in new}
        past = (*self.past, self.current)[-UNDO_LIMIT:]
        current = replace(self.current, settings=settings.changed(**new), origins={**self.current.origins, **given})
        return replace(self, current=current, past=past, future=())

    def undo(self) -> EditHistory:
        if not self.past:
            return self
        future = (*self.future, self.current)
        return replace(self, current=self.past[-1], past=self.past[:-1], future=future)

    def redo(self) -> EditHistory:
        if not self.future:
            return self
        past = (*self.past, self.current)
        return replace(self, current=self.future[-1], past=past, future=self.future[:-1])

    def map(self, change: Callable[[Resolved], Resolved]) -> EditHistory:
        """The history with `change` applied to all of its settings: current, saved, past and future ones."""
        past, future = tuple(map(change, self.past)), tuple(map(change, self.future))
        return EditHistory(change(self.current), change(self.saved), past, future)

    def saved_now(self) -> EditHistory:
        """Mark the current settings as saved; earlier changes can still be undone."""
        return replace(self, saved=self.current)
