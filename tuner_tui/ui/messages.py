"""Messages of panels and screens to the app: requests of the user that carry more than a key."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

# Without `eq` and `repr`, which nothing uses: generating them takes time before the first frame.


@dataclass(eq=False, repr=False)
class SettingEdited(Message):
    """The user gave the field `name` a new value, as typed; the app parses and checks it."""

    name: str
    text: str


@dataclass(eq=False, repr=False)
class ChoiceWanted(Message):
    """Show the choices of the field `name` as a list."""

    name: str


@dataclass(eq=False, repr=False)
class ValueTyped(Message):
    """A value is being typed for the field `name`; `text` is None while it is not valid, and at the end."""

    name: str
    text: str | None


@dataclass(eq=False, repr=False)
class LogWindowWanted(Message):
    """Show `count` lines of the log from byte `anchor` on, or with `before` those that end there.

    With the anchor None the last lines are shown, also as the file grows.
    """

    anchor: int | None
    count: int
    before: bool = False


@dataclass(eq=False, repr=False)
class LogSearchWanted(Message):
    """Find `text` in the log from byte `start` on or, `backwards`, before it."""

    text: str
    backwards: bool
    start: int
