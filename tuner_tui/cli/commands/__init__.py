"""The commands, each in the module of its name. Importing the package imports none of them."""

from __future__ import annotations

from collections.abc import Iterable

PANELS = {
    "Start": ("demo", "run", "tune", "stop", "queue", "slurm"),
    "Look": ("watch", "ps", "logs", "diagnose", "stacks", "profile", "batches", "replay", "diff", "report"),
    "Plan": ("doctor", "recommend", "estimate"),
    "Manage": ("presets",),
}
"""The commands under the headings of `--help`."""
COMMANDS = {name: name for names in PANELS.values() for name in names} | {"demo": "screen", "screen": "screen"}
"""The module of each command: it has a function of that name, or `group` for commands below it."""
SYNONYMS = {
    "attach": "logs --follow --events", "bench": "tune", "check": "doctor", "compare": "diff",
    "continue": "run --resume", "detect": "doctor --hardware", "export": "presets export", "gpu": "watch",
    "gpus": "watch", "hardware": "doctor --hardware", "help": "--help", "history": "ps", "hosts": "watch",
    "import": "presets import", "info": "doctor --hardware", "jobs": "ps", "kill": "stop", "list": "ps", "ls": "ps",
    "monitor": "watch", "optimize": "tune", "plan": "estimate",
    "restart": "run --resume", "resume": "run --resume", "runs": "ps", "search": "tune", "show": "report",
    "start": "run", "status": "ps", "sweep": "tune", "tail": "logs", "top": "watch", "train": "run",
    "version": "--version", "why": "diagnose",
}  # fmt: skip
"""What other programs and earlier releases call a command: only a hint names it."""


def nearest_command(word: str, presets: Iterable[str] = ()) -> str | None:
    """Return the command that `word` most likely means; None if it is none, or rather one of `presets`."""
    from tuner_tui.settings.model import closest_match

    words = {name: name for name in (*COMMANDS, "--help")} | SYNONYMS
    return words.get(closest_match(word, (*words, *presets)) or "")
