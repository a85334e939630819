"""A note to the person behind a terminal: the bell, and OSC 9, which many terminals show as a desktop notification.

Sequences by iTerm2's documentation of OSC 9 and tmux(1), passthrough: tmux lets it pass wrapped, each escape doubled,
and where `allow-passthrough` is on; the bell reaches everybody.
"""

from __future__ import annotations

from collections.abc import Mapping

BELL = "\a"
MAX_CHARACTERS = 200


def terminal_notification(text: str, environ: Mapping[str, str]) -> str:
    """What to write to the terminal for `text`; the bell alone on terminals that know nothing more."""
    if environ.get("TERM", "") in ("", "dumb", "linux") or environ.get("TERM", "").startswith("vt"):
        return BELL
    clean = "".join(character for character in text if character.isprintable())[:MAX_CHARACTERS]
    note = f"\x1b]9;{clean}\a"
    if environ.get("TMUX"):
        note = "\x1bPtmux;" + note.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    elif environ.get("STY"):
        note = f"\x1bP{note}\x1b\\"
    return note + BELL
