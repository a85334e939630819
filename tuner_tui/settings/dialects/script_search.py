"""Finds the script of a checkout that reads a configuration file, by what its source says."""

from __future__ import annotations

import ast
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from glob import glob
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, TypeVar

from tuner_tui.core.files import open_regular, read_data_file
from tuner_tui.core.python_syntax import parse_python

TABLES = Path(__file__).with_name("tools.yaml")
FOLDERS_UP, MOST_SCRIPTS, MOST_SOURCE_BYTES = 5, 400, 2**18
"""How far a file's script is searched."""
INNER = ("*.py", "*/*.py", "*/*/*.py", "*/*/*/*.py")
TRAINING = re.compile(r"train(?!ed)|fine[-_]?tun(?!ed)|(?<![a-z])(?:fit|sft|dpo|grpo|ppo)(?![a-z])", re.IGNORECASE)
MOST_MODULES = 40
MOST_MISSING = 0.2
"""The share of a file's keys that its script may lack: what it hands over as a whole."""
WORD = re.compile(r"[A-Za-z_]\w*")
MODULE = ("-m", "--module")
IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*)[ \t]*([\w.]*)[ \t]+)?import[ \t]+([\w., \t]+|\*|\([^)]*\))", re.MULTILINE
)
ARGUMENT_CLASSES = re.compile(r"\bTrainingArguments\b|\b(?:Trl|H4Argument)Parser\b")


def words_of(name: str) -> Any:
    """A list, mapping or pattern of words of tools and their users in `tools.yaml`."""
    return read_data_file(TABLES)["words"][name]


@cache
def pattern_of(name: str) -> re.Pattern[str]:
    """A pattern of `tools.yaml`, in which spaces do not count."""
    return re.compile(words_of(name), re.VERBOSE)


AnyPath = TypeVar("AnyPath", bound=PurePath)
Shown = Callable[[Path, str], bool]
"""Whether a script with its source is shown to read the file."""


def find_scripts(path: Path, marker: str, shown: Shown | None = None) -> dict[Path, str]:
    """The scripts nearest to the file whose source has `marker`, with their sources; else those of the whole checkout.

    Only those that are `shown` to read the file, where that is given.
    """
    pattern = re.compile(marker)
    for folder in _folders_above(path):
        inner = (folder, *(folder / name for name in ("src", "scripts", "tools")))
        near = [script for part in inner for script in files_in(part, "*.py")]
        for candidates in (near[:MOST_SCRIPTS], _whole_checkout(folder)):
            scripts = {
                script: source
                for script in candidates
                if not names_other_work(script) and pattern.search(source := read_source(script))
                if shown is None or shown(script, source)
            }
            if scripts:
                return scripts
    return {}


def find_script(path: Path, marker: str, shown: Shown) -> Path | None:
    """The script near the file whose source has `marker` and that is `shown` to read the file.

    Of several in a folder, the one that names the file counts, then the only one with a word of training in its name,
    then the only one that the first text with such a command starts. None if several are as likely.
    """
    scripts, text = find_scripts(path, marker, shown), read_source(path)
    named = [script for script in scripts if re.search(rf"\b{re.escape(script.name)}\b", text)]  # in its comments
    named = named or [script for script, source in scripts.items() if names_file(source, path)]
    likely = named_for_training(scripts)
    for certain in (named, scripts, likely):
        if len(certain) == 1:
            return next(iter(certain))
    texts = (read_source(text_file) for text_file in (texts_above(path, whole=False) if scripts else ()))
    starts = r"python[\d.]*[ ]+(?:[\w./-]*/)?"
    for commands in (pattern_of("comment_line").sub("", text) for text in texts):
        started = [part for part in likely or scripts if re.search(rf"{starts}{re.escape(part.name)}\b", commands)]
        if started:
            return started[0] if len(started) == 1 else None
    return None


def reads_keys(path: Path, values: Mapping[str, Any], of_trainer: Collection[str]) -> Shown:
    """Whether a script has the name of the file at `path`, says it, or nearly all keys of its `values` in its modules.

    The names `of_trainer` belong to every script that has `TrainingArguments` or a class of theirs.
    """
    names = {name for name in _keys(values) if isinstance(name, str) and name.isidentifier()}  # YAML has other keys too

    def shown(script: Path, source: str) -> bool:
        if names_file(source, path) or script.stem == path.stem:
            return True
        methods = {method[:3].lower() for method in pattern_of("methods_of_scripts").findall(f"{script.stem} {source}")}
        if not methods >= {method[:3].lower() for method in pattern_of("methods_of_scripts").findall(path.stem)}:
            return False
        text = source_of(script)
        missing = names - {*WORD.findall(text), *(of_trainer if ARGUMENT_CLASSES.search(text) else ())}
        return bool(names) and len(missing) <= MOST_MISSING * len(names)

    return shown


def _keys(values: Mapping[Any, Any]) -> Iterator[Any]:
    for key, value in values.items():
        yield key
        if isinstance(value, Mapping):
            yield from _keys(value)


def find_program(file: Path, names: Collection[PurePath], folder: str = "") -> Path | None:
    """The script of one of the `names`, seen from a folder above the file, or the only one of its checkout so named.

    `folder` is where the command has changed to. A path of another machine counts by its end.
    """
    away = [name for name in names if name.parts and name.parts[0][0] in "/$"]
    names = [*names, *(PurePath(*name.parts[start:]) for name in away for start in range(1, len(name.parts)))]
    above = file.absolute().parents[: FOLDERS_UP + 1]
    near = (path for top in above for name in names if (path := top / folder / name).is_file())
    inner = ([p for p in _whole_checkout(top) for name in names if p.match(str(name))] for top in _folders_above(file))
    ends = next(filter(None, inner), [])
    return next(near, ends[0] if len(ends) == 1 else None)


def own_modules(script: Path, certain: bool = False) -> Iterator[tuple[Path, str]]:
    """The script and the modules of its checkout that it imports, and theirs, each with its source.

    With `certain`, only what each imports whatever happens, and that instead of the whole source.
    """
    # Breadth first: options are often declared in `config.py` or `args.py`. Installed packages are not followed.
    roots = [script.parent, *(folder for folder in _folders_above(script) if folder != script.parent)]
    waiting, seen = [script], {script}
    while waiting:
        file = waiting.pop(0)
        source = _certain_imports(read_source(file)) if certain else read_source(file)
        yield file, source
        for dots, name, imported in IMPORT.findall(source):
            bases = [file.parents[min(len(dots), len(file.parents)) - 1]] if dots else roots
            names = re.findall(r"(?<!\bas )\b(?!as\b)[\w.]+", imported)
            of_package = [f"{name}.{inner}".strip(".") for inner in names]
            parts = [part.replace(".", "/") for part in ([name, *of_package] if name or dots else names) if part]
            files = (base / f"{part}{end}" for base in bases for part in parts for end in (".py", "/__init__.py"))
            for module in files:
                if module not in seen and len(seen) < MOST_MODULES and module.is_file():
                    seen.add(module)
                    waiting.append(module)


def _certain_imports(source: str) -> str:
    """The imports at the top of a source: neither those that it tries nor those of a branch or a function."""
    with suppress(SyntaxError):
        nodes = (node for node in parse_python(source).body if isinstance(node, ast.Import | ast.ImportFrom))
        return "\n".join(map(ast.unparse, nodes))
    return ""


def imported_packages(script: Path) -> tuple[str, ...]:
    """The packages that a script and its modules import whatever happens and of which its checkout has no module."""
    lines = [line for _, source in own_modules(script, certain=True) for line in IMPORT.findall(source)]
    names = {top for dots, name, words in lines if not dots for top in ([name] if name else re.split(r",\s*", words))}
    tops = {re.split(r"[. ]", name)[0] for name in names}
    *_, top = folders = [script.parent, *_folders_above(script)]
    in_checkout = {part for file in _whole_checkout(top) for part in (file.stem, *file.relative_to(top).parts)}
    roots = [*folders, *(folder / "src" for folder in folders)]
    near = {name for name in tops for root in roots if (root / name).is_dir() or (root / f"{name}.py").is_file()}
    return tuple(sorted(tops - in_checkout - near))


def folder_of_imports(script: Path, path: Path) -> Path | None:
    """The folder above script and file from which the script imports a module that is not in its own folder."""
    source = read_source(script)
    imports = () if pattern_of("extends_path").search(source) else IMPORT.findall(_certain_imports(source))
    names = {re.split(r"[. ]", name or words)[0] for dots, name, words in imports if not dots}
    own_folder, *above = script.parents
    away = [name for name in names if not (own_folder / f"{name}.py").is_file() and not (own_folder / name).is_dir()]
    files = [f"{name}{end}" for name in away for end in (".py", "/__init__.py")]
    shared = (up for up in path.absolute().parents[:FOLDERS_UP] if up in above)
    roots = (root for up in shared for root in (up, up / "src"))
    return next((root for root in roots if any((root / file).is_file() for file in files)), None)


def source_of(script: Path) -> str:
    """The source of the script and of the modules of its checkout that it imports."""
    return "\n".join(source for _, source in own_modules(script))


def trains(script: Path) -> bool:
    """Whether the script, or a module of its checkout, trains by its source."""
    return any(re.search(words_of("trains"), source) for _, source in own_modules(script))


def texts_above(path: Path, whole: bool = True) -> Iterator[Path]:
    """The texts near the file in which a command line may name it, the nearest first: READMEs, scripts and docstrings.

    At the top of a checkout also those in deeper folders, where `whole`.
    """
    folders = [*_folders_above(path)]
    of_checkout = any((folders[-1] / mark).exists() for mark in words_of("tops"))
    texts = words_of("texts")
    for folder in folders:
        for inner in (folder, folder / "scripts", folder / "script", folder / "shell"):
            deeper = texts["deeper"] if of_checkout and whole and inner == folders[-1] else ()
            for pattern in (*texts["first"], *(texts["of_checkout"] if of_checkout else ()), *texts["then"], *deeper):
                yield from files_in(inner, pattern)[:MOST_SCRIPTS]


def named_for_training(scripts: Iterable[AnyPath]) -> list[AnyPath]:
    """The scripts with a word of training in their names; where none has one, those that a project is started by."""
    paths = list(scripts)
    starts = pattern_of("entry").fullmatch
    return [path for path in paths if TRAINING.search(path.stem)] or [path for path in paths if starts(path.stem)]


def names_other_work(script: PurePath) -> bool:
    """Whether the name of the script says that it does not train, or says so first."""
    match = pattern_of("names_of_other_work").search(script.stem)
    makes_data = pattern_of("makes_data").search(f"{script.parent.name}/{script.stem}")
    return bool(makes_data) or (match is not None and (match.start() == 0 or not TRAINING.search(script.stem)))


def names_file(source: str, path: Path) -> bool:
    """Whether a text in the source is the name of the file, with its suffix or without, or a path that ends so.

    What is commented out, written or resumed does not count; a name without its suffix does where it is opened.
    """
    source = pattern_of("names_no_input").sub("", source)
    before = pattern_of("opens_by_name").pattern
    of_model = before if path.name in words_of("written_by_any") else ""
    name = rf"{before}[\"']{re.escape(path.stem)}[\"']|{of_model}[\"'/]{re.escape(path.name)}[\"']"
    return re.search(name, source) is not None


def written_files(source: str) -> set[str]:
    """The names of the files that a variable of the source holds and that it writes."""
    names = re.findall(r"(?m)^\s*(\w+)\s*=.*[\"'/]([\w-]+\.\w+)[\"']", source)
    return {file for name, file in names if re.search(rf"\bopen\({name}, *[\"']w|\b{name}\.write_text\(", source)}


def needs_launcher(script: Path) -> bool:
    """Whether the script, or a module of its checkout, needs what a launcher sets."""
    text = source_of(script)
    return bool(pattern_of("needs_launcher").search(text)) and not pattern_of("looks_for_launcher").search(text)


def package_import(script: Path) -> str:
    """The beginning of an import from the script's own package, with which its path does not start it; else empty."""
    package, source = script.absolute().parent, read_source(script)
    marks = ("pyproject.toml", "setup.py", "setup.cfg")
    names = [
        re.escape(folder.name)
        for folder in _folders_above(script)
        if not ((package / folder.name).exists() or any((folder.parent / mark).exists() for mark in marks))
    ]
    absolute = "" if "sys.path" in source else "".join(rf"|(?:from|import) {name}\." for name in names)
    match = re.search(rf"^(?:from \.{absolute})", source, re.MULTILINE)
    return "" if match is None else match[0]


def read_source(path: Path) -> str:
    """The source of a script; empty if it cannot be read."""
    try:
        with os.fdopen(open_regular(path, follow_links=True), "rb") as file:
            return file.read(MOST_SOURCE_BYTES).decode(errors="replace")
    except OSError:
        return ""


def console_script(scripts: Collection[Path]) -> str | None:
    """The program that a project installs from the package of these scripts, if it is its only one: `terratorch`."""
    root, programs = next(_installed(min(scripts, default=Path("/x"))), (Path(), {}))
    if len(programs) != 1:
        return None
    ((name, target),) = programs.items()
    package = str(target).partition(".")[0]
    return str(name) if all(package in script.relative_to(root).parts[:2] for script in scripts) else None


def project_programs(path: Path) -> dict[str, str]:
    """The programs that the project around `path` installs, each with its function: `package.train:main`."""
    return {name: str(target) for _, programs in _installed(path.absolute()) for name, target in programs.items()}


def _installed(path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The folders above with a project, and the programs that it says to install."""
    import tomllib  # most commands have no such folder

    for root in path.parents[: FOLDERS_UP + 1]:
        setup = "".join(read_source(root / name) for name in ("setup.py", "setup.cfg")).partition("console_scripts")[2]
        installed = dict(re.findall(r"(?m)^[^#\n]*?[\"'\s]([\w-]+)\s*=\s*([\w.]+):\w+", setup))
        if installed:
            yield root, installed
        try:
            project = tomllib.loads(read_source(root / "pyproject.toml"))
        except (ValueError, RecursionError):
            continue
        for section in (project.get("project"), project.get("tool", {}).get("poetry")):
            programs = section.get("scripts") if isinstance(section, dict) else None
            if isinstance(programs, dict):
                yield root, programs


def files_in(folder: Path, pattern: str) -> list[Path]:
    """The files that fit the pattern, sorted; `Path.glob` raises where a folder goes away while it is listed."""
    return sorted(folder / name for name in glob(pattern, root_dir=folder))  # noqa: PTH207


def _folders_above(path: Path) -> Iterator[Path]:
    """The folders of the file up to the top of its checkout; none above it that is for everybody's files, as /tmp."""
    for folder in islice(path.absolute().parents, FOLDERS_UP):
        if folder != path.absolute().parent and folder.stat().st_mode & stat.S_ISVTX:
            return
        yield folder
        if any((folder / mark).exists() for mark in words_of("root_marks")):
            return


def _whole_checkout(folder: Path) -> list[Path]:
    if not any((folder / mark).exists() for mark in words_of("tops")):
        return []
    inner = (script for pattern in INNER for script in files_in(folder, pattern))
    skipped = pattern_of("skipped")
    kept = (script for script in inner if not any(map(skipped.match, script.relative_to(folder).parts)))
    return list(islice(kept, MOST_SCRIPTS))
