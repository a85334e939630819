"""The user's own YAML, JSON or TOML file, read by the user's own script: keys are found by what they end with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner_tui.settings.dialects.script_search import CONFIG_OPTION, find_script, names_file, read_source

READS = (
    r"\b(?:(?:safe|full)_load|yaml\.load|OmegaConf\.load|YAML|json\.loads?|toml(?:lib)?\.loads?"
    r"|\w*(?:load|read|from|get|parse)_(?:yaml|json|toml|config|cfg|hparams)\w*)\("
)
TRAINS = r"\.backward\(|\b\w*Trainer\(|\.fit\(|\.train\(\w|\bdef train(?:_(?:one_)?epoch|_loop|_model|_step|ing)?\("
READS_AND_TRAINS = rf"(?s)\A(?=.*(?:{READS}|{CONFIG_OPTION.pattern}))(?=.*(?:{TRAINS}|\bimport train\w*\b)).*\w"
"""The source of a script that reads a file of settings, or has an option for one, and trains."""
FROM_WORDS = re.compile(r"OmegaConf\.from_cli\((?=(?s:.*)\.config\b)")
"""A script that takes `config=FILE`, as OmegaConf reads a command line."""
TAKES_WORDS = re.compile(
    r"sys\.argv|parse_args|parse_known_args|@click\.|@app\.command|typer\.run|fire\.Fire|tyro\.cli"
)


def find_command(path: Path) -> str | None:
    """The command of the script near the file that reads settings and trains; None without such a script.

    The file is the value of the script's option for it, or an argument. A script without a command line opens the file
    by a path of its own: the file is no argument then. A module of a package that is not run as a script is none.
    """
    script = find_script(path, READS_AND_TRAINS)
    if script is None or script.name == "__main__.py":  # a program with commands of its own
        return None
    source = read_source(script)
    if (script.parent / "__init__.py").exists() and "__main__" not in source:
        return None
    words = f"python {shlex.quote(str(script))}"
    if (option := CONFIG_OPTION.search(source)) is not None:
        return f"{words} {option[1]} {{config}}"
    if FROM_WORDS.search(source):
        return f"{words} config={{config}}"
    if TAKES_WORDS.search(source):
        return f"{words} {{config}}"
    return words if names_file(source, path) else None


def choose_command(_values: Mapping[str, Any], path: Path) -> str | None:
    return find_command(path)


def takes_no_more(_file: Mapping[str, Any], _section: str) -> bool:
    return False
