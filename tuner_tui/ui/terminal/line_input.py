"""Widgets that take the keys of a burst, as a fast typist or a slow line sends them, in the order typed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from textual.events import Key, Paste
from textual.widgets import Input

if TYPE_CHECKING:
    from textual.binding import Binding
    from textual.dom import DOMNode
    from textual.widget import Widget

    MixinBase = Widget
else:
    MixinBase = object  # a second base that is a widget would hide the component classes of the first

LINE_END = re.compile(r"[ \t]*\\\r?\n[ \t]*|\r?\n[ \t]*")


class OrderedKeys(MixinBase):
    """Runs the bindings of its keys at once.

    Textual inserts a character when the widget gets its key, but sends other keys up the tree first: backspaces and
    Enter are overtaken by the characters typed after them. `keys_go_to` is the widget that took the focus meanwhile:
    keys still queued here are for it.
    """

    keys_go_to: Widget | None = None

    async def _on_key(self, event: Key) -> None:
        found = (
            None if event.is_printable and self.check_consume_key(event.key, event.character) else self._bound(event)
        )
        if self.keys_go_to is None and found is None:
            return
        event.stop()
        event.prevent_default()
        if self.keys_go_to is not None:
            self.keys_go_to.post_message(Key(event.key, event.character))
        elif found is not None:
            node, binding = found
            await self.app.run_action(binding.action, node)

    def _bound(self, event: Key) -> tuple[DOMNode, Binding] | None:
        """The binding of the key here or in the panel around; those further up may be for a list that scrolls."""
        for node in self.ancestors_with_self[:2]:
            bindings = node._bindings.key_to_bindings.get(event.key)
            if bindings and not bindings[0].action.startswith("scroll_"):  # every widget has these, for nothing here
                return node, bindings[0]
        return None


class LineInput(OrderedKeys, Input):
    """One line of text. Pasted lines are joined, at a backslash as in a shell."""

    def __init__(self, value: str = "", *, select: bool = False, id: str | None = None, placeholder: str = "") -> None:
        super().__init__(value, compact=True, select_on_focus=select, id=id, placeholder=placeholder)
        self.cursor_blink = False

    def _on_paste(self, event: Paste) -> None:
        event.stop()
        event.prevent_default()
        self.replace(join_lines(event.text), *self.selection)


def join_lines(text: str) -> str:
    r"""Return `text` in one line: `python train.py \` and `  --lr 1` become `python train.py --lr 1`."""
    return LINE_END.sub(" ", text.strip())
