"""Escape sequences that notify the user of a terminal: the bell, and OSC 9, shown as a desktop notification by many
terminals.

See iTerm2's documentation of OSC 9 and tmux(1), passthrough: tmux forwards the sequence where `allow-passthrough` is
on, if it is wrapped and each escape is doubled. The bell always works.
"""

from __future__ import annotations

from collections.abc import Mapping

BELL = "\a"
MAX_CHARACTERS = 200


def terminal_notification(text: str, environ: Mapping[str, str]) -> str:
    """The characters to write to the terminal for `text`; only the bell on terminals without OSC 9."""
    if environ.get("TERM", "") in ("", "dumb", "linux") or environ.get("TERM", "").startswith("vt"):
        return BELL
    clean = "".join(character for character in text if character.isprintable())[:MAX_CHARACTERS]
    note = f"\x1b]9;{clean}\a"
    if environ.get("TMUX"):
        note = "\x1bPtmux;" + note.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    elif environ.get("STY"):
        note = f"\x1bP{note}\x1b\\"
    return note + BELL
