"""Finds the script of a checkout that reads a configuration file, by what its source says."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

from tuner_tui.core.files import open_regular

FOLDERS_UP, MOST_SCRIPTS, MOST_SOURCE_BYTES = 5, 400, 2**18
"""How far a file's script is searched."""
ROOT_MARKS = (
    ".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "environment.yaml", "environment.yml",
)  # fmt: skip
"""What the top of a checkout has; only there is the whole checkout searched."""
INNER = ("*.py", "*/*.py", "*/*/*.py", "*/*/*/*.py")
TRAINS = ("train", "finetune", "fine-tune", "fine_tune")
EVALUATES = ("eval", "predict", "infer", "generate", "test", "bench")
ENTRIES = frozenset({"main", "run"})
"""Names of the script that a project is started by, where none is named after training."""
CONFIG_OPTION = re.compile(
    r"[\"'](--(?![\w-]*(?:data|model|tokenizer|deepspeed|ds_|accelerate|fsdp|wandb|lora|peft|quant|generation|eval|sweep))"
    r"(?:[\w-]+[_-])?(?:config|cfg|conf|yaml|params|hparams)(?:[_-]?(?:file|path|yaml|filename))?)[\"']"
)
"""The option for a script's file of settings; not that of a part of the training or of another program."""
SKIPPED = frozenset({"tests", "test", "docs", "build", "dist", "node_modules", "site-packages", "venv"})


def find_scripts(path: Path, marker: str) -> dict[Path, str]:
    """The scripts nearest to the file whose source has `marker`, with their sources."""
    return next(_matches(path, marker), {})


def _matches(path: Path, marker: str) -> Iterator[dict[Path, str]]:
    """The scripts with `marker`, by the folders above the file, the nearest first; then those of the whole checkout."""
    pattern = re.compile(marker)
    for folder in _folders_above(path):
        near = [
            script for inner in (folder, folder / "src", folder / "scripts") for script in sorted(inner.glob("*.py"))
        ]
        for candidates in (near[:MOST_SCRIPTS], _whole_checkout(folder)):
            if scripts := {script: source for script in candidates if pattern.search(source := read_source(script))}:
                yield scripts


def find_script(path: Path, marker: str, wanted: str | None = None) -> Path | None:
    """The script near the file whose source has `marker`; None if there is none, or several are as likely.

    Of several in a folder, the one that names the file counts, then the only one with a word of training in its name,
    then the one whose path shares most words with the file's: an evaluation reads the same file. A script with the
    word `wanted` in its name counts before nearer ones without.
    """
    if wanted is not None:
        for scripts in _matches(path, marker):
            named = {
                script: source for script, source in scripts.items() if wanted in re.split(r"[^a-z0-9]+", script.stem)
            }
            if named and (script := _likeliest(path, named)):
                return script
    scripts = find_scripts(path, marker)
    return _likeliest(path, scripts) if scripts else None


def find_shell_scripts(path: Path) -> Iterator[Path]:
    """The shell scripts above the file that name it, the nearest first."""
    for folder in _folders_above(path):
        near = [
            script for inner in (folder, folder / "scripts", folder / "shell") for script in sorted(inner.glob("*.sh"))
        ]
        yield from (script for script in near[:MOST_SCRIPTS] if path.name in read_source(script))


def names_file(source: str, path: Path) -> bool:
    """Whether a text in the source is the name of the file, with its suffix or without."""
    return re.search(rf"[\"']{re.escape(path.stem)}(\.ya?ml)?[\"']", source) is not None


def read_source(path: Path) -> str:
    """The source of a script; empty if it cannot be read."""
    try:
        with os.fdopen(open_regular(path, follow_links=True), "rb") as file:
            return file.read(MOST_SOURCE_BYTES).decode(errors="replace")
    except OSError:
        return ""


def console_script(scripts: Collection[Path]) -> str | None:
    """The program that a project installs from the package of these scripts, if it is its only one: `terratorch`."""
    first = min(scripts, default=Path("/"))
    for root in first.parents[1 : FOLDERS_UP + 1]:
        try:
            project = tomllib.loads(read_source(root / "pyproject.toml"))
        except (ValueError, RecursionError):
            continue
        section = project.get("project")
        programs = section.get("scripts") if isinstance(section, dict) else None
        if not isinstance(programs, dict) or len(programs) != 1:
            return None
        ((name, target),) = programs.items()
        package = str(target).partition(".")[0]
        return str(name) if all(package in script.relative_to(root).parts[:2] for script in scripts) else None
    return None


def _folders_above(path: Path) -> Iterator[Path]:
    for folder in islice(path.absolute().parents, FOLDERS_UP):
        yield folder
        if any((folder / mark).exists() for mark in ROOT_MARKS):
            return


def _whole_checkout(folder: Path) -> list[Path]:
    if not any((folder / mark).exists() for mark in ROOT_MARKS):
        return []
    inner = (script for pattern in INNER for script in sorted(folder.glob(pattern)))
    kept = (
        script for script in inner if not any(p in SKIPPED or p[0] == "." for p in script.relative_to(folder).parts)
    )
    return list(islice(kept, MOST_SCRIPTS))


def _likeliest(path: Path, scripts: dict[Path, str]) -> Path | None:
    training = {script: source for script, source in scripts.items() if not script.stem.lower().startswith(EVALUATES)}
    scripts = training or scripts
    named = [script for script, source in scripts.items() if names_file(source, path)]
    if len(named) == 1 or len(scripts) == 1:
        return next(iter(named or scripts))
    trains = [script for script in scripts if any(word in script.stem for word in TRAINS)]
    trains = trains or [script for script in scripts if script.stem in ENTRIES]
    if len(trains) == 1:
        return trains[0]
    wanted = _words(path.stem) | _words(path.absolute().parent.name)
    scores: dict[tuple[int, int], list[Path]] = {}
    for likely in named or trains or scripts:
        words = _words(f"{likely.parent.name} {likely.stem}")
        scores.setdefault((len(wanted & words), -len(words - wanted)), []).append(likely)
    shared, best = max(scores.items())
    return best[0] if len(best) == 1 and shared[0] else None


def _words(text: str) -> set[str]:
    return {word for word in re.split(r"[^a-z]+", text.lower()) if word}
