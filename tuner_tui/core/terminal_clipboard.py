"""The escape sequence that puts text on the clipboard of the user's terminal, over SSH too: OSC 52.

See xterm's documentation of control sequences. tmux takes the sequence itself where `set-clipboard` is on, and passes a
wrapped one to its terminal where `allow-passthrough` is; screen passes wrapped pieces of at most 768 bytes.
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
