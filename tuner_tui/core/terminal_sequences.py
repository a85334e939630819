"""Escape sequences that ask the terminal to fill its clipboard or to notify the user.

See xterm's documentation of control sequences. tmux takes the sequence itself where `set-clipboard` is on, and passes a
wrapped one to its terminal where `allow-passthrough` is; screen passes wrapped pieces of at most 768 bytes.

See iTerm2's documentation of OSC 9 and tmux(1), passthrough: tmux forwards the sequence where `allow-passthrough` is
on, if it is wrapped and each escape is doubled. The bell always works.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

SCREEN_PIECE = 700
MOST_BYTES = 74_994
"""What xterm, and most terminals after it, take at once: 100,000 characters of base64."""


def clipboard_sequence(text: str, environ: Mapping[str, str]) -> str | None:
    """The characters to write to the terminal; None for one without a clipboard, or for text that is too long."""
    terminal = environ.get("TERM", "")
    data = text.encode()
    if terminal in ("", "dumb", "linux") or terminal.startswith("vt") or len(data) > MOST_BYTES:
        return None
    sequence = f"\x1b]52;c;{b64encode(data).decode()}\a"
    if environ.get("TMUX"):
        return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if environ.get("STY"):
        pieces = (sequence[start : start + SCREEN_PIECE] for start in range(0, len(sequence), SCREEN_PIECE))
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    return sequence


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
