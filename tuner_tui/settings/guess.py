"""How settings can reach a command, told by the command alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner_tui.settings.apply import CONFIG, config_word
from tuner_tui.settings.dialects.tools import HF, tool_of_command
from tuner_tui.settings.fieldspec import FIELDS
from tuner_tui.settings.job import ApplyMode

_MARK = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def guess_apply(command: Sequence[str]) -> ApplyMode:
    """By the marks in its words; a tool that reads a YAML file gets one; any other is set from within (inject)."""
    marks = {name for word in command for name in _MARK.findall(word)}
    if CONFIG.strip("{}") in marks:
        return "yaml"
    if marks & FIELDS.keys():
        return "placeholders"
    reads_file = tool_of_command(command) is not HF and config_word(command) is not None
    return "yaml" if reads_file else "inject"
