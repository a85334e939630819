"""One-line bars: the footer with the keys that work now, and the names of panels that share a place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.events import Click
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget

from tuner_tui.ui.panels.arrangement import PANEL_TITLES
from tuner_tui.view.finding_rows import MARKS

Key = tuple[str, str, str]
"""Key label, description and action."""
RIGHT = ("app.leave", "app.command_palette", "help")
"""Actions at the right end, which are always shown."""
FIRST = (
    "back", *(f"app.do('{name}')" for name in ("train", "restart", "stop")), "app.remedy('apply')", "error",
    *(f"app.do('{name}')" for name in ("checkpoint", "profile", "share", "compare", "runs", "job")),
    "app.remedy('retry')", *(f"app.do('{name}')" for name in ("presets", "tune", "fit", "gpus")),
)  # fmt: skip
"""Actions shown first, whatever has the focus, before those of the focused panel and the rest; `LAST` at the end."""
LAST = ("find", "search")


class LabelBar(Widget):
    """A row of texts, each with its style and with the action of the screen that a click on it runs; empty: none."""

    def parts(self) -> Sequence[tuple[str, str | Style, str]]:
        raise NotImplementedError

    def render(self) -> Text:
        return Text.assemble(*((text, style) for text, style, _ in self.parts()), no_wrap=True, end="")

    def on_click(self, event: Click) -> None:
        x = 0
        for text, _, action in self.parts():
            x += cell_len(text)
            if event.x < x:
                if action:
                    self.call_later(self.screen.run_action, action)
                return


class KeyFooter(LabelBar):
    """Shows as many keys as fit; those that lead to all others are always at the right end."""

    COMPONENT_CLASSES = {"keys--key", "keys--what", "keys--sign"}  # noqa: RUF012

    shown: reactive[tuple[Key, ...]] = reactive(())
    idle: reactive[frozenset[str]] = reactive(frozenset())
    """Actions without an object now; their keys are hidden."""
    signs: reactive[Mapping[str, str]] = reactive({})
    """Actions with news, and the text shown first in place of their description."""
    labels: reactive[Mapping[str, str]] = reactive({})
    """Actions whose description depends on what they do now."""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._read_keys)
        self._read_keys(self.screen)

    def _read_keys(self, screen: Screen[object]) -> None:
        if not screen.is_active:
            return
        keys: dict[str, Key] = {}
        for active in screen.active_bindings.values():
            binding = active.binding
            if binding.show and active.enabled and not _typed(screen, binding.key_display or ""):
                key = self.app.get_key_display(binding), binding.description, binding.action
                keys.setdefault(binding.action, key)
        self.shown = tuple(sorted(keys.values(), key=_rank))

    def parts(self) -> Sequence[tuple[str, str | Style, str]]:
        key, plain, sign = (self.get_component_rich_style(f"keys--{name}") for name in ("key", "what", "sign"))
        right = [entry for action in RIGHT for entry in self.shown if entry[2] == action]
        news = [(key_text, self.signs[action], action) for key_text, _, action in self.shown if action in self.signs]
        named = ((key_text, self.labels.get(action, label), action) for key_text, label, action in self.shown)
        left: list[Key] = []
        for entry in (*news, *(entry for entry in named if entry[2] not in {*self.signs, *self.idle})):
            if entry[2] not in RIGHT and _width([*left, entry, *right]) <= self.size.width:
                left.append(entry)
        parts: list[tuple[str, str | Style, str]] = []
        for key_text, label, action in (*left, *right):
            parts += [(f" {key_text}", key, action), (f" {label} ", sign if action in self.signs else plain, action)]
        gap = " " * max(0, self.size.width - _width(left) - _width(right))
        parts.insert(2 * len(left), (gap, plain, ""))
        return parts


def _rank(key: Key) -> int:
    return FIRST.index(key[2]) if key[2] in FIRST else len(FIRST) + (key[2] in LAST)


def _typed(screen: Screen[object], key_text: str) -> bool:
    """True if the focused widget takes the key as text."""
    return len(key_text) == 1 and screen.focused is not None and screen.focused.check_consume_key(key_text, key_text)


def _width(entries: list[Key]) -> int:
    return sum(cell_len(key_text) + cell_len(label) + 3 for key_text, label, _ in entries)


NAMES = {**PANEL_TITLES, "troubles": "Trouble", "trials": "Trials", "skipped": "Not tried"}


class PageTabs(LabelBar):
    """Shows the names of `pages` with their number keys; `shown` is highlighted."""

    COMPONENT_CLASSES = {"strip--quiet", "strip--shown", "strip--failed", "strip--warning", "strip--hint"}  # noqa: RUF012

    pages: reactive[tuple[str, ...]] = reactive(())
    numbers: reactive[tuple[str, ...]] = reactive(())
    shown: reactive[str] = reactive("")
    trouble: reactive[tuple[int, str]] = reactive((0, ""))
    ended: reactive[bool] = reactive(False)
    """Whether the live panel shows how a run ended."""

    def parts(self) -> Sequence[tuple[str, str | Style, str]]:
        all_names = NAMES | ({"live": "Result"} if self.ended else {})
        for names, gap in ((all_names, " "), (all_names, "")):
            parts = [self._part(page, names, gap) for page in self.pages]
            if sum(cell_len(text) for text, _, _ in parts) <= self.size.width:
                return parts
        return [self._part(page, {}, "") for page in self.pages]

    def _part(self, page: str, names: dict[str, str], gap: str) -> tuple[str, str, str]:
        count, severity = self.trouble
        mark = f" {MARKS[severity][0].strip()}{count}" if page == "troubles" and count else ""
        number = self.numbers.index(page) + 1
        label = f"{number}{' ' if page in names else ''}{names.get(page, '')}{mark}"
        style = "shown" if page == self.shown else severity if mark else "quiet"
        rich_style = self.get_component_rich_style(f"strip--{style}", partial=True)
        return f"{gap} {label} {gap}" if names else f" {label} ", str(rich_style), f"page({number})"
