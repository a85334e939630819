"""Reads the source of a command's training script, without running it: its options, whether it has a Trainer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.core.files import read_regular

MAX_SOURCE_BYTES = 1 << 20
MAX_FILES = 30
"""Modules of a script's own folder that are read with it."""
TRAINER = re.compile(
    r"\b(?:Seq2Seq|SFT|DPO|GRPO|PPO|ORPO|KTO|Reward|RLOO)?Trainer\b|TrainingArguments|\bSetFitTrainer\b"
)
TRAINER_PACKAGES = re.compile(r"^\s*(?:from|import)\s+(?:transformers|trl|sentence_transformers|peft)\b", re.MULTILINE)
LOADS = re.compile(
    r"load\w*(?:snapshot|checkpoint|ckpt|state)|(?:snapshot|checkpoint|ckpt)\w*\.load|load\(.*(?:snapshot|checkpoint|ckpt)",
    re.IGNORECASE,
)
TRAINER_PROGRAMS = frozenset({"trl", "llamafactory-cli", "lmf", "axolotl", "swift", "autotrain"})
"""Programs that train by a Trainer of Transformers."""


@dataclass(frozen=True, slots=True)
class TrainingScript:
    """What the source of a script says; nothing was run.

    `options` and `switches` are those of its parsers, each with its aliases: `-b --batch-size`; switches take no value.
    `configured`: names at the top of the file that `--name=value` replaces (nanoGPT's configurator). `has_trainer`: it
    uses a Trainer of Transformers. `loads_itself`: it loads a checkpoint where the file exists, without any option.
    """

    path: Path
    options: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    configured: tuple[str, ...] = ()
    has_trainer: bool = False
    loads_itself: bool = False


def read_training_script(command: Sequence[str], cwd: Path) -> TrainingScript | None:
    """The script that `command` runs in `cwd`; None where it names none that can be read."""
    path = _script_path(command, cwd)
    if path is None:
        return None
    options: list[str] = []
    switches: list[str] = []
    configured: tuple[str, ...] = ()
    has_trainer = loads_itself = False
    for file, text, tree in _own_files(path):
        for words, is_switch in _options(tree):
            known = switches if is_switch else options
            if words not in known:
                known.append(words)
        if file == path and "configurator" in text:
            configured = tuple(_assigned(tree))
        has_trainer = has_trainer or bool(TRAINER.search(text) and TRAINER_PACKAGES.search(text))
        loads_itself = loads_itself or any(map(_loads_existing, ast.walk(tree)))
    return TrainingScript(path, tuple(options), tuple(switches), configured, has_trainer, loads_itself)


def may_use_trainer(command: Sequence[str], cwd: Path) -> bool:
    """Whether the command trains by a Trainer of Transformers, as far as its words and its script say."""
    if any(Path(word).name in TRAINER_PROGRAMS for word in command[:4]):
        return True
    script = read_training_script(command, cwd)
    return script is not None and script.has_trainer


def _script_path(command: Sequence[str], cwd: Path) -> Path | None:
    """The first word that is a Python file, or the file of the module after `-m`."""
    for index, word in enumerate(command):
        if word.endswith(".py") and (cwd / word).is_file():
            return cwd / word
        if word in ("-m", "--module") and index + 1 < len(command):
            base = cwd / command[index + 1].replace(".", "/")
            found = next((path for path in (base.with_suffix(".py"), base / "__main__.py") if path.is_file()), None)
            if found is not None:
                return found
    return None


def _own_files(path: Path) -> Iterator[tuple[Path, str, ast.Module]]:
    """The script and the modules of its folder that it imports, and theirs, as far as they can be read."""
    waiting, seen = [path], {path}
    while waiting:
        file = waiting.pop(0)
        try:
            text = read_regular(file, MAX_SOURCE_BYTES, follow_links=True).decode("utf-8", "replace")
            tree = ast.parse(text)
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        yield file, text, tree
        for name in _imports(tree):
            base = path.parent / name.replace(".", "/")
            for one in (base.with_suffix(".py"), base / "__init__.py"):
                if one not in seen and len(seen) < MAX_FILES and one.is_file():
                    seen.add(one)
                    waiting.append(one)


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _options(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """The aliases of each option, and whether it is a switch: `add_argument` of argparse, `option` of click."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        if name not in ("add_argument", "option"):
            continue
        given = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        words = [word for one in given for word in one.split("/") if word.startswith("-") and " " not in word]
        values = {one.arg: ast.unparse(one.value).strip("'\"") for one in node.keywords}
        action = values.get("action", "")
        is_switch = action.startswith(("store_", "count", "version")) or action.endswith("BooleanOptionalAction")
        is_switch = is_switch or values.get("is_flag") == "True" or any("/" in one for one in given)
        if words:
            yield " ".join(words), is_switch


def _assigned(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _loads_existing(node: ast.AST) -> bool:
    """Whether `node` is `if os.path.exists(…)` around the loading of a checkpoint."""
    if not isinstance(node, ast.If):
        return False
    test = ast.unparse(node.test)
    if not re.search(r"\b(?:exists|isfile|is_file|isdir|is_dir)\(", test):
        return False
    body = "\n".join(map(ast.unparse, node.body))
    return LOADS.search(body) is not None
