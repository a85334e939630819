"""The command palette: everything a key does, found by typing. Rendered from the same keys as footer and help."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider

from tuner_tui.ui.keys import MAIN_KEYS, PAGE_KEYS, spelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.types import IgnoreReturnCallbackType


class KeyCommands(Provider):
    """One command for each key of the main screen."""

    async def discover(self) -> Hits:
        for title, call, tip in self._commands():
            yield DiscoveryHit(title, call, help=tip)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, call, tip in self._commands():
            score = max(matcher.match(title), matcher.match(tip))
            if score > 0:
                yield Hit(score, matcher.highlight(title), call, help=tip)

    def _commands(self) -> Iterator[tuple[str, IgnoreReturnCallbackType, str]]:
        for key in (*MAIN_KEYS, *PAGE_KEYS):
            title = f"{key.description} ({spelled(key.key.split(',')[0])})"
            yield title, partial(self.screen.run_action, key.action), key.tooltip
