"""Training commands inside the files of other programs: cluster jobs, containers, editors, continuous integration."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import reduce
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

from msgspec.structs import replace

from tuner_tui.core.files import read_data_file
from tuner_tui.settings.dialects.command_words import TRAINING_WORDS, says_to_train, script_of
from tuner_tui.settings.dialects.nested_values import flatten, with_references
from tuner_tui.settings.dialects.script_search import (
    FOLDERS_UP,
    TRAINING,
    files_in,
    find_program,
    names_other_work,
    pattern_of,
    read_source,
)
from tuner_tui.settings.dialects.shell_script import read_script
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.model import shorten_text
from tuner_tui.settings.yaml_reader import CONFIGURATIONS, INI, JSON_SUFFIXES, ToolFile, parse_tool_text

LONGEST_NAMES = 200
SUBMIT_FILE = "submit file of HTCondor"
KINDS = Path(__file__).with_name("job_files.yaml")
MAKE_VARIABLE = re.compile(r"(?m)^(?:export\s+)?(\w+)[ \t]*(?::{1,2}|\?)?=[ \t]*(.*?)[ \t]*(?:#.*)?$")
BLOCK = re.compile(r"(?ms)^#{1,6}[ \t]+([^\n]*)$|^[ \t]*(`{3,}|~{3,})[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*\2")
"""A heading of Markdown, or a block of code with its language."""
TARGET = re.compile(r"(?m)^([\w./-]+)[^:=\n]*:(?!=)[^\n]*\n((?:[ \t]*\n|\t.*\n?|#.*\n)*)")
"""A target of a Makefile, and its recipe."""


def parse_tool_file(text: str, source: str, suffix: str = ".yaml") -> ToolFile:
    """The values of a file of YAML, JSON or TOML, or the training command in it where it is one of `KINDS`.

    Raises `PresetError`, for a file of one of these kinds without a command that trains as well.
    """
    text, kind, refused = text.replace("\r\n", "\n"), kind_of_name(Path(source).name), None
    command = _command_of_kind(kind, text, source) if kind else None
    if command is not None:
        return replace(on_this_machine(command, Path(source)), kind=kind)
    is_yaml = suffix not in (*JSON_SUFFIXES, *INI, ".toml")
    documents = re.split(r"(?m)^---(?:[ \t].*)?$", text) if is_yaml else [text]
    for document in () if kind else documents:
        try:
            file = parse_tool_text(document, source, suffix)
        except PresetError as error:
            refused = refused or error
            continue
        rows: list[dict[str, Any]] = read_data_file(KINDS)["kinds"]
        fitting = (row for row in rows if {*row["keys"]} <= file.values.keys())
        row = next((row for row in fitting if isinstance(file.values.get(row.get("section", ""), {}), dict)), {})
        kind = kind or row.get("kind", "")
        command = _best_command(_started(file.values, Path(source)), source) if row else None
        if command is not None:
            fixed, open_ = dict[str, Any](), dict[str, None]()
            for key, value in flatten(file.values.get(row.get("arguments", ""), {})).items():
                choices = [value] if key.endswith(".value") else value if key.endswith(".values") else ()
                if isinstance(choices, list) and len(choices) == 1:
                    fixed[key.rpartition(".")[0].replace("-", "_")] = choices[0]
                else:
                    open_[key.partition(".")[0]] = None
            fixed |= flatten(with_references(file.values.get(row.get("file", ""), None) or {}))
            command = on_this_machine(command, Path(source))
            reasons = (*command.incomplete, *([f"the sweep gives it {', '.join(open_)}"] if open_ else ()))
            made = [word for word in command.words if "file" in row and word.endswith(CONFIGURATIONS)]
            reasons += tuple(f"{word} is made of its section {row['file']}" for word in made)
            words = tuple(word for word in command.words if word not in made)
            values = {**command.values, **fixed}
            return replace(command, kind=row["kind"], values=values, words=words, incomplete=reasons)
        if isinstance(file.values.get(row.get("file", "")), dict):
            return file  # Determined's, whose entrypoint is a class
    if kind:
        sentence = f"is a {kind} in which no training command was found"
        raise PresetError(f"{source}: {sentence}: open the configuration or the script that trains")
    if refused is not None and "{{" in text:
        raise PresetError(f"{source}: is a template, filled in by Helm or Jinja: open what it becomes") from refused
    return parse_tool_text(text, source, suffix)


def read_commands(text: str, source: str, depth: int = 2) -> ToolFile:
    """The training that a shell script starts, or that it has another program start by a file of it near the script.

    Raises `PresetError` if there is none.
    """
    plain = re.sub(read_data_file(KINDS)["submit_file"], r"./\1 \2", text)  # of HTCondor
    kind = SUBMIT_FILE if plain != text else ""
    try:
        return replace(read_script(plain, source), kind=kind)
    except PresetError:
        if kind:
            why = f"is a {kind} in which no training command was found: open the script that trains"
            raise PresetError(f"{source}: {why}") from None
        path, joined = Path(source).absolute(), re.sub(r"\\[ \t]*\n[ \t]*", " ", text)
        rows = [] if depth == 0 else read_data_file(KINDS)["hands_over"]
        starts = ((row["files"], match) for row in rows for match in re.finditer(row["command"], joined, re.VERBOSE))
        for names, match in starts:
            files = (above / name for above in path.parents[: FOLDERS_UP + 1] for name in names)
            file = next((file for file in files if file.is_file()), path)
            is_makefile, inner = kind_of_name(file.name) != "", read_source(file) if file != path else ""
            values = {} if is_makefile else parse_tool_text(inner, str(file), file.suffix).values
            texts = _recipes(inner) if is_makefile else _started(values, file)
            part = match.groupdict().get("name")
            texts = (row for row in texts if part is None or row[0].rpartition(" ")[2] == part)
            exported = "".join(re.findall(r"(?m)^export .*\n", joined))
            command = _best_command(((name, exported + started) for name, started in texts), str(file), depth=depth - 1)
            if command is not None:
                folder = str(file.parent) if command.folder in ("", ".") and command.command else command.folder
                return replace(on_this_machine(command, file), folder=folder, more=(match[0].strip(), *command.more))
        raise


def kind_of_name(name: str) -> str:
    """What a file of commands is by its name, where that says it; else empty."""
    kinds = read_data_file(KINDS)["names"].items()
    return next((kind for kind, pattern in kinds if re.fullmatch(pattern, name)), "")


def _command_of_kind(kind: str, text: str, source: str) -> ToolFile | None:
    match kind:
        case "Dockerfile":
            return _best_command(_started(_container_values(text), Path(source)), source)
        case "Makefile" | "justfile":
            for pattern, written in read_data_file(KINDS)["as_makefile"] if kind == "justfile" else ():
                text = re.sub(pattern, written, text)
            recipes, goal = [*_recipes(text)], re.search(r"(?m)^\.DEFAULT_GOAL\s*:?=\s*(\S+)", text)
            default = [recipe for recipe in recipes if goal and recipe[0] == goal[1]]
            return _best_command(default, source) or _best_command(recipes, source)
    return _best_command(_blocks(text), source, by_name=False)


def _recipes(text: str) -> Iterator[tuple[str, str]]:
    """Each target of a Makefile with its recipe as a script of a shell, which first sets the variables it uses."""
    joined = re.sub(r"\$\((\w+)\)", r"${\1}", re.sub(r"\\[ \t]*\n[ \t]*", " ", text))
    variables = dict(MAKE_VARIABLE.findall(joined))
    for target, body in TARGET.findall(joined):
        used, waiting = set[str](), [body]
        while waiting:
            names = {*re.findall(r"\$\{?(\w+)", waiting.pop())} & variables.keys() - used
            used |= names
            waiting += (variables[name] for name in names)
        head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items() if name in used)
        lines, of_shell = re.findall(r"(?m)^\t\s*[@+-]*(.*)$", body), pattern_of("only_of_its_shell")
        if "#!" not in body and ".ONESHELL:" not in text:  # each line has a shell of its own
            lines = [line for line in lines if not of_shell.search(line)]
        yield target, head + "\n".join(lines).replace("$$", "$")


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Each block of commands in a text of Markdown, with the heading that it stands under."""
    heading = ""
    for match in BLOCK.finditer(text):
        heading = match[1] or heading
        if match[4] and match[3].lower() in read_data_file(KINDS)["shells"]:
            yield f" {heading}", re.sub(r"(?m)^[ \t]*\$[ \t]+", "", match[4])


def on_this_machine(command: ToolFile, source: Path) -> ToolFile:
    """The command with paths of a container or another machine as those that end so in this checkout."""
    folders = source.absolute().parents[: FOLDERS_UP + 1]

    def local(name: str) -> str | None:
        parts = Path(name).parts
        ends = (Path(*parts[start:]) for start in range(1, len(parts)))
        paths = (above / end for end in ends if len(end.parts) > 1 or end.suffix for above in folders)
        return next((str(path) for path in paths if path.exists()), None)

    def here(word: str) -> str:
        begin, equals, name = word.rpartition("=")
        is_away = name.startswith("/") and not (name.startswith("//") or Path(name).exists())
        program = find_program(source, [Path(name)]) if is_away and name.endswith(".py") else None
        return f"{begin}{equals}{local(name) or program or name}" if is_away else word

    folder = command.folder
    if folder.startswith(("/", "~", "$")) and not Path(folder).is_dir():
        folder = local(folder) or ""
    words, started = (tuple(map(here, parts)) for parts in (command.words, command.command))
    environment = {name: ":".join(map(here, value.split(":"))) for name, value in command.environment.items()}
    return replace(command, words=words, command=started, folder=folder, environment=environment)


def _started(values: Mapping[str, Any], source: Path) -> Iterator[tuple[str, str]]:
    """The names around each command that the file starts, and its text with the defaults of inputs."""
    defaults = {key: value for key, value in flatten({"on": values.get("on")}).items() if key.endswith(".default")}
    inputs = {key.split(".")[-2]: str(value) for key, value in defaults.items()}
    table = read_data_file(KINDS)
    flat = flatten(values)
    # What the platform sets by other values of the file: `accelerators: A100:8`, or `{A100: 8}`.
    for variable, pattern in table["platform"].items():
        matches = (re.fullmatch(pattern, f"{key}={value}") for key, value in flat.items())
        inputs |= next(({variable: match["number"] or "1"} for match in matches if match), {})
    many = [value for key, value in flat.items() if key in ("num_nodes", "nodes") and str(value) not in ("1", "None")]
    inputs = {**({} if many else table["one_node"]), **inputs}
    inputs |= dict.fromkeys(("workspaceFolder", "workspaceRoot"), str(source.absolute().parent.parent))
    for name, text in _scripts(values, {}, "", source):
        for pattern, written in table["variables_as"].items():
            text = re.sub(pattern, written, text)
        text = pattern_of("expression").sub(lambda match: inputs.get(match[1], f"${match[1]}"), text)
        yield name, re.sub(r"\$\{?(\w+)\}?", lambda match: inputs.get(match[1], match[0]), text)


def _best_command(
    texts: Iterable[tuple[str, str]], source: str, by_name: bool = True, depth: int = 2
) -> ToolFile | None:
    """The command that trains by its name, which counts first, its script's or its options; None where nothing says so.

    Of several that train none is taken: what is returned names them, with the values that they share.
    """
    named, sure = list[tuple[str, ToolFile]](), list[tuple[str, ToolFile]]()
    for name, text in texts:
        if name.count(" ") >= 2 and names_other_work(PurePath(name.strip().rpartition(" ")[2])):
            continue
        with suppress(PresetError):
            file = read_commands(text, source, depth)
            is_training = says_to_train(file.words, file.folder, Path(source))
            named += [(name, file)] if is_training is not False and TRAINING.search(name) else []
            sure += [(name, file)] if is_training else []
    trains = (named or sure) if by_name else [*sure, *named]
    trains = [(name, file) for name, file in trains if not pattern_of("trials").search(name)] or trains
    trains = [(name, file) for name, file in trains if re.fullmatch(r"[\w\s.-]*\btrain", name)] or trains
    # Of a program with subcommands those that say so train.
    programs = {script_of(file.words) for _, file in trains if not TRAINING_WORDS.isdisjoint(file.words)}
    by_words = {
        file.words: (name, file)
        for name, file in reversed(trains)
        if script_of(file.words) not in programs or not TRAINING_WORDS.isdisjoint(file.words)
    }
    also = [name.strip() for name, file in sure if file.words not in by_words]
    if len(by_words) < 2:
        return next((replace(file, more=(*file.more, *also)) for _, file in by_words.values()), None)
    names = ", ".join(dict.fromkeys((*(name.strip() for name, _ in reversed(by_words.values())), *also)))
    several = f"it has {len(by_words) + len(also)} parts that train: {shorten_text(names, LONGEST_NAMES)}"
    first, *others = (file for _, file in reversed(by_words.values()))
    shared = dict(item for item in first.values.items() if all(item in file.values.items() for file in others))
    # A file that commands of several programs name has no one use.
    is_same = {script_of(file.words) for file in others} == {script_of(first.words)}
    kept = [word if all(word in file.words for file in others) else "" for word in first.words if is_same]
    words = tuple(word or "$" for before, word in pairwise(("", *kept)) if word or before[:1] == "-")
    return replace(first, values=shared, words=words or first.words[:1], command=(), incomplete=(several,))


def _scripts(node: Any, environment: Mapping[str, str], name: str, source: Path) -> Iterator[tuple[str, str]]:
    """The names around each command in a document, and its text as a script that first sets the variables there."""
    if isinstance(node, list):
        for inner in node:
            yield from _scripts(inner, environment, name, source)
    if not isinstance(node, Mapping):
        return
    node = {**node["options"], **node} if isinstance(node.get("options"), Mapping) else node  # of an editor's task
    title = node.get("name", node.get("label"))
    name = f"{name} {title}" if isinstance(title, str) else name
    table = read_data_file(KINDS)
    for key in table["variables"]:
        environment = {**environment, **_variables(node.get(key))}
    given = {key: node[key] for key in table["words"] if node.get(key)}
    if isinstance(given.get("command"), str) and isinstance(node.get("parameters"), Mapping):  # MLflow's
        for parameter, value in node["parameters"].items():
            default = value.get("default") if isinstance(value, Mapping) else None  # else it is the name of a type
            text = f"${parameter}" if default is None else str(default)
            given["command"] = given["command"].replace(f"{{{parameter}}}", text)
    image = _of_image(node, source)
    given = {key: image[key] for key in table["words"] if key in image} | given if "entrypoint" not in node else given
    if "command" in given and pattern_of("wrappers").search(_text(given.get("entrypoint", ""))):
        del given["entrypoint"]  # it starts what it is given
    node, environment = {**image, **node}, {**image.get("environment", {}), **environment}
    parts = [_text(given[key]) for key in table["words"] if key in given]
    if name.startswith(" services "):  # Compose splits a text at white space, without a shell
        parts = [re.sub(r"\s*\n\s*", " ", part) for part in parts]
    scripts = [node[key] for key in table["scripts"] if isinstance(node.get(key), str | list)]
    texts = [script if isinstance(script, str) else "\n".join(map(str, script)) for script in scripts]
    if isinstance(node.get("program") or node.get("module"), str):
        start = shlex.quote(node["program"]) if node.get("program") else f"-m {shlex.quote(node['module'])}"
        words = re.sub(r"\$\{(?:env|args\w*)\}", "", " ".join(parts).replace("${interpreter}", "python"))
        is_called = "${program}" in words
        parts = [words.replace("${program}", str(node.get("program")))] if is_called else [f"python {start}", *parts]
    with suppress(ValueError):  # a text with a quote that does not end
        *_, shell, option, inner = ["", "", "", *shlex.split(re.sub(r"(\s-\w*c) --(?=\s)", r"\1", " ".join(parts)))]
        if PurePath(shell).name in ("bash", "sh") and re.fullmatch(r"-\w*c", option):
            parts = [inner]
    mounts = [mount for mount in node.get("volumes") or () if isinstance(mount, str) and mount[:1] in "./~"]
    for text in (" ".join(parts), *texts):
        if text.strip():
            text = reduce(lambda text, mount: _with_mount(text, mount, source), mounts, text)
            exported = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in environment.items())
            exported = pattern_of("only_in_containers").sub("", exported)
            folder = next((f"cd {node[key]}\n" for key in table["folders"] if str(node.get(key, ".")) != "."), "")
            yield name, exported + folder + text
    for key, inner in node.items():
        for task, text in inner.items() if key in table["of_tasks"] and isinstance(inner, Mapping) else ():
            yield f"{name} {key} {task}", str(text if isinstance(text, str) else "")
        yield from _scripts(inner, environment, f"{name} {key}", source)


def _with_mount(text: str, mount: str, source: Path) -> str:
    """The text of a command with the file or folder of this machine that is mounted where the command names it."""
    here, there = mount.split(":")[0], PurePath(*mount.split(":")[1:2])
    path = (source.absolute().parent / here).resolve()
    ends = [str(PurePath(*there.parts[start:])) for start in range(1, len(there.parts))] if path.is_file() else []
    names = "|".join(map(re.escape, (str(there), *ends)))
    return re.sub(rf"(?<![\w./-])(?:{names})(?=[/\s\"']|$)", str(path), text) if path.exists() else text


def _of_image(node: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """The words of the Dockerfile that a service of Compose is built by, or of the only one near Kubernetes' `args`."""
    build, files = node.get("build"), list[Path]()
    if build is not None:
        named = build if isinstance(build, Mapping) else {"context": build}
        files = [source.parent / str(named.get("context", ".")) / str(named.get("dockerfile", "Dockerfile"))]
    elif "image" in node and "args" in node and "command" not in node:
        files = [file for above in source.absolute().parents[:2] for file in files_in(above, "Dockerfile*")]
    values = (_container_values(read_source(file)) for file in files)
    image = next((image for image in values if build is not None or image.keys() & {"entrypoint", "command"}), {})
    return {key: value for key, value in image.items() if key != "run"}


def _container_values(text: str) -> dict[str, Any]:
    """What a Dockerfile starts when its image is built and run, by the names that Compose has for it."""
    joined = re.sub(r"\\[ \t]*\n(?:[ \t]*#.*\n)*", " ", text)
    values: dict[str, Any] = {"run": [], "environment": {}}
    for keyword, rest in re.findall(r"(?mi)^[ \t]*(FROM|RUN|CMD|ENTRYPOINT|WORKDIR|ENV|ARG)[ \t]+(.+?)[ \t]*$", joined):
        words = re.findall(r"\"([^\"]*)\"", rest) if rest.startswith("[") else rest
        match keyword.upper():
            case "FROM" | "ENTRYPOINT" as name:
                values = {key: value for key, value in values.items() if key not in ("entrypoint", "command")}
                values |= {"entrypoint": words} if name == "ENTRYPOINT" else {"working_dir": ""}
            case "CMD":
                values["command"] = words
            case "RUN":
                values["run"].append(re.sub(r"^(?:--\S+\s+)+", "", rest))
            case "WORKDIR":
                values["working_dir"] = str(PurePath(values.get("working_dir", ""), rest))
            case _:
                pairs = re.findall(r"(\w+)=(\"[^\"]*\"|\S+)", rest) or [rest.partition(" ")[::2]]
                of_image = pattern_of("of_image")
                given = ((name, value.strip('"')) for name, value in pairs if value)
                values["environment"] |= {name: text for name, text in given if not of_image.search(f"{name}={text}")}
    return values


def _variables(entries: Any) -> dict[str, str]:
    """`{NAME: value}`, `[NAME=value]` or `[{name: NAME, value: value}]`."""
    if isinstance(entries, Mapping):
        if not entries.keys().isdisjoint(("image", "conda_file")):
            return {}  # Azure ML's environment of Python
        return {str(name): str(value) for name, value in entries.items() if isinstance(value, str | int | float)}
    named: dict[str, str] = {}
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, str) and "=" in entry:
            named |= dict([entry.split("=", 1)])
        elif isinstance(entry, Mapping) and "name" in entry and isinstance(entry.get("value"), str | int | float):
            named[str(entry["name"])] = str(entry["value"])
    return {name: value for name, value in named.items() if name.isidentifier()}


def _text(words: Any) -> str:
    """The words of a command as a shell reads them; a text is a line of a shell already."""
    if isinstance(words, list):
        return " ".join(text if re.fullmatch(r"\$\{?\w+\}?", text) else shlex.quote(text) for text in map(str, words))
    return str(words)
