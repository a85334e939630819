"""Key bindings and glossaries, each written once in `keys.txt`: footer, help screen and command palette show them."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from textual.binding import Binding

KEY_LABELS = {
    "question_mark": "?", "slash": "/", "plus": "+", "equals_sign": "=", "minus": "-",
    "pageup": "pgup", "pagedown": "pgdn", "escape": "esc", "backspace": "bksp", "delete": "del",
}  # fmt: skip


def key_label(key: str) -> str:
    """Return the label of a key, such as `ctrl+s` or `?`."""
    return "+".join(KEY_LABELS.get(part, part) for part in key.split("+"))


def read_keys(text: str) -> tuple[dict[str, list[Binding]], dict[str, list[tuple[str, str]]]]:
    """Return the keys and the glossary of each table in `text`; the file says how they are written."""
    keys, glossaries = defaultdict[str, list[Binding]](list), defaultdict[str, list[tuple[str, str]]](list)
    table, group = "", Binding.Group("")
    for line in text.splitlines():
        match re.split(r" {2,}", line.strip()):
            case [pressed, action, label, id, tip]:
                keys[table].append(
                    Binding(
                        pressed, action, label, id=id.strip("()"), tooltip=tip, group=group,
                        show=not id.startswith("("), key_display=key_label(pressed.split(",")[0]),
                    )
                )  # fmt: skip
            case [term, meaning]:
                glossaries[table].append((term, meaning))
            case [heading] if heading.startswith("["):
                table = heading.strip("[]")
            case [heading] if heading and not heading.startswith("#"):
                group = Binding.Group(heading)
    return keys, glossaries


KEYS, GLOSSARIES = read_keys(Path(__file__).with_suffix(".txt").read_text("utf-8"))
