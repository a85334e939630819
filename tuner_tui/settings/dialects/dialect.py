"""Describes a tool's names and values for the settings as data, and reads and writes settings by such a description.

`dialects` reads the descriptions in `tools.yaml`; `dialect_of_command` and `dialect_of_file` choose one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path, PurePath
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from tuner_tui.core.files import read_data_file
from tuner_tui.settings.dialects import hf, hooks
from tuner_tui.settings.dialects.hf import ExportedSettings, ImportedSettings, from_hf, setting_of_argument
from tuner_tui.settings.dialects.script_search import TABLES, names_other_work, pattern_of, words_of
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.model import FIELDS, Settings, Value, did_you_mean, shorten_text

WrittenKeys = Mapping[str, Any]
Form = Literal["yaml", "json", "arguments", "overrides", "python"]
"""Text that holds the values: a file, `--key value`, Hydra's `key=value`, or keyword arguments of Python calls."""
TEMPLATE = re.compile(r"\$\{.*\}|\{\{.*\}\}|<.*>|\$\w+|\$\(.*\)|\?\?\?|@[A-Za-z_][\w:.#]*")
"""A value that is filled in before the tool reads the file: `${BF16}`, OmegaConf's `???`, MONAI's `@optimizer`."""
SEARCHED = ("vals", "minval")
"""Keys of a section of Determined in the place of a value that its search chooses, next to its `type`."""
MOST_REFERENCES = 20
FREE = re.IGNORECASE | re.VERBOSE


class Renamed(Struct, frozen=True):
    """What an old key of a tool became in the release `since`; a value that `values` lacks says nothing."""

    key: str
    since: str
    values: Mapping[Any, Any] | None = None


class Dialect(Struct, frozen=True):
    """How one tool spells the settings in its configuration: a table of `tools.yaml`, whose head explains its parts."""

    name: str
    tool: str
    command: str
    commands: Sequence[Mapping[str, Any]] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    programs: Sequence[str] = ()
    values: Mapping[str, Mapping[Value, WrittenKeys]] = field(default_factory=dict)
    warmup_ratio: str | None = None
    read_as: Mapping[str, Mapping[str | int, Value]] = field(default_factory=dict)
    renamed: Mapping[str, Renamed] = field(default_factory=dict)
    older: Mapping[str, str | int] = field(default_factory=dict)
    extends_hf: bool = True
    file_keys: Collection[str] = ()
    nested: bool = False
    whole: Collection[str] = ()
    choose_command: Callable[[Mapping[str, Any], Path], str | None] | None = None
    model_keys: Sequence[str] = ("model_name_or_path",)
    data_keys: Sequence[str] = ("dataset_name", "train_file", "dataset", "data_files")
    environment: Mapping[str, Sequence[str]] = field(default_factory=dict)
    users_sections: Sequence[str] = ()
    only_keys: str = ""
    form: Form = "yaml"
    leaves: Mapping[str, Sequence[str]] = field(default_factory=dict)
    certain_keys: Collection[str] = ()
    of_launcher: bool = False
    of_language_models: bool = False
    calls: Mapping[str, str] = field(default_factory=dict)
    takes_more: Callable[[Mapping[str, Any], str], bool] | Literal[False] | None = None
    also_read: Mapping[str, Sequence[tuple[WrittenKeys, Value]]] = field(default_factory=dict)
    read_more: Callable[[Mapping[str, Any]], Mapping[str, Value]] | None = None
    complete: Callable[[Mapping[str, Any]], WrittenKeys] | None = None
    computed: Mapping[str, str] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)
    assumed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Value] = field(default_factory=dict)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as one mapping with dotted keys; lists and empty sections stay values.

    The only section of a list is read as well, under `key.0`; what several have in common under `key.*`.
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and "type" in value and not value.keys().isdisjoint(SEARCHED):
            flat[f"{prefix}{key}"] = "<searched>"
        elif isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
        if holds_one_section(value):
            flat |= flatten(value[0], f"{prefix}{key}.0.")
        elif isinstance(value, list) and value and all(isinstance(entry, Mapping) for entry in value):
            first, *others = (flatten(entry, f"{prefix}{key}.*.") for entry in value)
            if all(other.keys() == first.keys() for other in others):
                same = {name for name in first if all(other[name] == first[name] for other in others)}
                flat |= {name: first[name] if name in same else "<several>" for name in first}
    return flat


def holds_one_section(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping)


def unflatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as sections."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        set_nested(nested, key.split("."), value)
    return nested


def set_nested(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set the value in its section, or remove the key if the value is None, so that the tool's default applies."""
    for key in path[:-1]:
        if not isinstance(values.get(key), dict):
            if value is None:
                return
            values[key] = {}
        values = values[key]
    if value is None:
        values.pop(path[-1], None)
    else:
        values[path[-1]] = value


def with_references(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with OmegaConf's references to single values of the same file, and the defaults of others, put in."""
    flat = flatten(values)

    def referred(match: re.Match[str], section: Sequence[str]) -> Any:
        above = len(match["dots"]) - 1
        path = [*section[: len(section) - above], match["key"]] if above >= 0 else [match["key"]]
        value = flat.get(".".join(path)) if match["resolver"] in (None, "oc.select") else None
        if value is None and match["resolver"] in ("oc.env", "env", "oc.select", "oc.decode"):
            value = match["key"] if match["resolver"] == "oc.decode" else match["default"]
        return value if isinstance(value, str | int | float) else None

    # From the inside out. What OmegaConf computes (`${eval:…}`) stays as it is and counts as filled in at start.
    def resolved(value: Any, section: Sequence[str]) -> Any:
        if isinstance(value, Mapping):
            return {key: resolved(inner, [*section, key]) for key, inner in value.items()}
        text = value
        for _ in range(MOST_REFERENCES):
            match = pattern_of("reference").search(text) if isinstance(text, str) else None
            referent = None if match is None else referred(match, section[:-1])
            if match is None or referent is None:
                break
            whole = match[0] == text
            text = referent if whole else f"{text[: match.start()]}{referent}{text[match.end() :]}"
        return value if isinstance(text, str) and "${" in text else text

    return {key: resolved(value, [key]) for key, value in values.items()}


def write_settings(
    dialect: Dialect,
    settings: Settings,
    targets: Collection[str] | None,
    only: Collection[str],
    file_values: Mapping[str, Any] | None = None,
) -> ExportedSettings:
    """The settings `only` as the tool spells them, to be put into a file with the values `file_values`.

    `targets` are the fields of the installed `TrainingArguments`.
    """
    values: dict[str, Any] = {}
    missing: list[str] = []
    notes: list[str] = []
    keys_of: dict[str, Collection[str]] = {}
    for name in (field_name for field_name in FIELDS if field_name in only):
        written = _written_keys(dialect, name, getattr(settings, name), file_values or {})
        why: tuple[str, ...] = (_no_place(dialect, name, settings),)
        if written is None and dialect.extends_hf and not {name} & {*dialect.names, *dialect.values}:
            given = {*(file_values or {}), *keys_in_file(dialect, file_values or {})}
            extra = [name] if given.intersection(hf.argument_names(name)) else []  # the script has it, if no release
            carried = hf.to_hf(settings, targets, only=[name], extra=extra)
            written, why = None if carried.unsupported else carried.values, carried.notes
        if written is None:
            missing.append(name)
            notes += why
        else:
            values.update(written)
            keys_of[name] = written.keys()
    # Keys that depend on several settings are known only now. A setting whose every key they removed has no place in
    # the file, unless it is what was computed (`computed`), such as the global batch instead of the accumulation.
    if dialect.complete is not None:
        complete = dialect.complete({**(file_values or {}), **values})
        values |= complete
        gone = {key for key, value in complete.items() if value is None and key not in (file_values or {})}
        dropped = [name for name, keys in keys_of.items() if keys and gone.issuperset(keys)]
        dropped = [name for name in dropped if dialect.computed.get(name) not in complete]
        for key in (key for name in dropped for key in keys_of[name]):
            values.pop(key, None)
        missing += dropped
        notes += [_no_place(dialect, name, settings) for name in dropped]
    return ExportedSettings(values, tuple(missing), tuple(notes))


def _no_place(dialect: Dialect, name: str, settings: Settings) -> str:
    owner = "the configuration" if dialect.form == "overrides" else dialect.tool  # Hydra itself has none
    return f"no key of {owner} is known for {name} {getattr(settings, name)}"


def dialect_keys(dialect: Dialect, name: str) -> frozenset[str]:
    """Every key that may hold the setting `name` in the tool's file."""
    spelled = {key for _, written in _spellings(dialect, name) for key in written}
    spelled |= {table[name] for table in (dialect.names, dialect.computed) if name in table}
    spelled |= {old for old, new in dialect.renamed.items() if new.key in spelled}
    if name == "warmup_steps" and dialect.warmup_ratio is not None:
        spelled |= {"warmup_steps", dialect.warmup_ratio}
    return frozenset(spelled | (set(hf.argument_names(name)) if dialect.extends_hf else set()))


def read_settings(dialect: Dialect, values: Mapping[str, Any]) -> ImportedSettings:
    """The settings in a tool's file. Raises `FieldError`; keys that are not settings are ignored with a note.

    So are values that the file leaves open: `auto`, where the setting has no such choice, and template variables.
    """
    notes: list[str] = []
    flat = flatten(without_alternatives(values) if dialect.leaves else values) if dialect.nested else values
    single = {key for key, value in flat.items() if isinstance(value, list) and [*map(type, value)] in ([int], [float])}
    flat = {key: value[0] if key in single else value for key, value in flat.items()}  # fairseq's `lr: [0.0005]`
    for key, value in [*flat.items()] if dialect.nested else ():  # kohya's `optimizer_args = ["weight_decay=0.1"]`
        words = value if isinstance(value, list) and all(isinstance(word, str) for word in value) else []
        flat |= {f"{key}.{name}": text for name, equals, text in (word.partition("=") for word in words) if equals}
    of_tool = {*dialect.names.values()} if dialect.programs else set()  # with one meaning, whatever stands next to it
    flat = without_other_meanings(flat) | {key: value for key, value in flat.items() if key in of_tool}
    switched: Mapping[str, Value] = {}
    if dialect.read_more is hooks.read_scripts_own:
        flat, switched = _apply_switches(flat)
    places = keys_in_file(dialect, flat, agreeing=True)
    places = {key: path for key, path in places.items() if places.get(hf.NEWER.get(key, "")) != path}
    names = {key: name for name, key in dialect.names.items()}
    read_as = {path: names.get(key, key) for key, path in places.items() if names.get(key, key) in FIELDS}
    others = [f"{shorten_text(path)} as {name}" for path, name in read_as.items() if path.rpartition(".")[2] != name]
    if others:
        notes.append(f"read as settings: {', '.join(others)}")
    foreign: dict[str, str] = {}
    for path, name in read_as.items():  # of a library that settings have no name for
        if hf.is_other_library(name, hf.library_word(name, flat[path])):
            foreign[name] = value = shorten_text(str(flat[path]))
            notes.append(f"{name} is {value} by {path}, which Transformers has no name for; it stays as it is")
            places = {key: path_of_key for key, path_of_key in places.items() if path_of_key != path}
    flat = {**flat, **{key: flat[path] for key, path in places.items()}}
    values = _current_keys(dialect, {key: flat[key] for key in flat if key not in set(places.values())}, notes)
    if _left_open("bf16", values.get("bf16")) is not None:  # it decides about fp16 as well
        values = {key: value for key, value in values.items() if key != "fp16"}
    plain: dict[str, Any] = dict(values)
    read: dict[str, Any] = {}
    # From the least to the most specific: what only a function of the tool can read, values that several keys say
    # together, words of the tool, plain keys. The rest is read by the names of TrainingArguments.
    if dialect.read_more is not None:
        read |= {**dialect.read_more(values), **switched}
        if "warmup_steps" in read:
            plain = {key: value for key, value in plain.items() if not re.fullmatch(words_of("warmup"), key)}
    for name in FIELDS:
        spellings = _spellings(dialect, name)
        own_key = dialect.names.get(name, name)
        word = _word_of(dialect, own_key, values.get(own_key))
        is_plain = name not in dialect.values and word in FIELDS[name].choices
        for value, written in () if is_plain else spellings:
            if _says(values, written, dialect.assumed):
                read[name] = value  # a later entry is more specific: DoRA is LoRA with one more key
        for key in (key for _, written in spellings for key in written if name in read):
            plain.pop(key, None)
    left_open = {key: why for key, value in plain.items() if (why := _left_open(key, value)) is not None}
    settings_keys = {key for name in FIELDS for key in dialect_keys(dialect, name)}
    for key, why in left_open.items():
        value = shorten_text(str(plain.pop(key)))
        notes += [f"{shorten_text(key)} {value} ignored: {why}"] if key in settings_keys else []
    for key in dialect.read_as.keys() & plain.keys():
        word, plain[key] = plain[key], _word_of(dialect, key, plain[key])
        if plain[key] is not word:
            notes.append(f"{places.get(key, key)} {word} is read as {'on' if plain[key] is True else plain[key]}")
    for name, key in dialect.names.items():
        if name in FIELDS and name not in read and key in plain:
            read[name] = plain.pop(key)
    # A near miss of an argument is one only among arguments.
    hf_keys = sum(setting_of_argument(key) in FIELDS or key in hf.IGNORED_ARGUMENTS for key in plain)
    of_arguments = hf_keys > max(1, MOSTLY * len(plain))
    strict = dialect.extends_hf and not dialect.names and dialect.form == "yaml" and of_arguments
    if "dtype" in plain and dialect.extends_hf and not dialect.values and not of_arguments:
        notes.append(f"dtype {plain.pop('dtype')} ignored: of the weights, or the precision; the script knows which")
    imported = from_hf({**plain, **read}, strict=strict)
    # A key that the tool has by that name is no old spelling, as it would be for transformers.
    keys_of_tool = {key for name in FIELDS for _, written in _spellings(dialect, name) for key in written}
    spelled = values.keys() & {*keys_of_tool, dialect.warmup_ratio}
    old = tuple(f"{key} is read as " for key in spelled)
    end = "\n" if dialect.extends_hf else ": "  # what Transformers did with a key is of no tool that has its own
    texts = (note.partition(end)[0] if " is read as " in note else note for note in imported.notes)
    notes += (note for note in texts if not note.startswith(old))
    chosen_by_tool = tuple(
        name for name in FIELDS if name not in imported.settings and dialect_keys(dialect, name) & left_open.keys()
    )
    ignored = (*left_open, *imported.ignored)
    return ImportedSettings(imported.settings, ignored, tuple(notes), imported.unknown, chosen_by_tool, foreign)


def _apply_switches(flat: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Value]]:
    """The values without those that a switch of the file turns off, and the settings that its switches say."""
    settings: dict[str, Value] = {}
    off = flat.keys() - without_disabled(flat).keys()
    variants = {key for key in flat for other in flat if key.endswith(f".{other}")}
    for key, value in flat.items():
        word, name = str(value).lower(), key.rpartition(".")[2]
        if key in variants or word not in ("true", "false", "none"):  # a variant is of a switch at the top, too
            continue
        for row in words_of("switches"):
            last_two = ".".join(key.split(".")[-2:])
            if not (re.fullmatch(row["keys"], name) or re.fullmatch(row["keys"], last_two)):
                continue
            settings |= row["on" if word == "true" else "off"]
            off |= {key} - {*hf.READ_SPECIALLY}
            if word != "true":
                off |= {other for other in flat if re.search(row["covers"], other)} - {key}
    return {key: value for key, value in flat.items() if key not in off}, settings


def without_disabled(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The values without those of sections that a switch among them turns off: `megatron: {enabled: false}`."""
    switch, none = rf".*\.({'|'.join(words_of('section_switches'))})", ("false", "none")
    off = {key for key, value in flat.items() if str(value).lower() in none and re.fullmatch(switch, key)}
    sections = tuple(key[: key.rfind(".") + 1] for key in off)
    return {key: value for key, value in flat.items() if key in off or not key.startswith(sections)}


def keys_in_file(dialect: Dialect, flat: Mapping[str, Any], agreeing: bool = False) -> dict[str, str]:
    """The dialect's keys to those that the file has in their places, by `leaves`.

    With `agreeing`, one of several with the same value counts: enough to read it, not to change it.
    """
    keys: dict[str, str] = {}
    flat = without_other_meanings(flat)
    settings = {key: name for name, key in dialect.names.items()}
    only_with, elsewhere, switch = words_of("only_with"), words_of("elsewhere"), "|".join(words_of("section_switches"))
    # A key that has a value, or a name like it as a value: `train_lora.py`.
    texts = [key for key, value in flat.items() if value not in (None, "")]
    texts += [value for value in flat.values() if isinstance(value, str)]
    spelled = {path: re.sub(r"(?<=[a-z])(?=[A-Z])|[- ]", "_", path) for path in flat}  # `batchSize` is `batch_size`
    for key, leaves in dialect.leaves.items():
        name = settings.get(key, key)
        if key in flat and _suits(name, flat[key]):
            continue
        evaluation = [] if "eval" in name else [words_of("evaluation")]
        others = "|".join([words_of("other_use"), *elsewhere.get(name, ()), *evaluation])
        is_switch = name in FIELDS and FIELDS[name].kind == "bool"
        # Leaves are in order of certainty, and the first that occurs decides: `optimizer.lr` before `lr`. Several keys
        # with that ending are no place, since nobody knows which one trains, unless all but one repeat it in a variant,
        # or one alone is in a section of the training or of the setting, or nearest to the top.
        for leaf in leaves:
            if leaf in only_with and not any(re.search(only_with[leaf], text) for text in texts):
                continue
            ends = leaf_pattern(f"(?:{leaf})(?:.(?:{switch}))?" if is_switch else leaf)
            ending = [
                path
                for path, snake in spelled.items()
                if (ends.search(snake) or ends.search(path))
                and not re.search(others, path.lower()[: path.rfind(".") + 1])
                and _suits(name, flat[path])
            ]
            literal = [path for path in ending if _left_open(path, flat[path]) is None]
            base = min(ending, key=len, default="")
            if all(path.lower().endswith(f".{base.lower()}") for path in ending if path != base):
                literal = [base] if base in literal else []  # others replace it in a variant: `profiles.full.train.lr`
            if len({str(flat[path]) for path in literal}) > 1:
                for sections in (words_of("of_training"), words_of("sections_of").get(name, "^$")):
                    inner = [path for path in literal if re.search(sections, path.lower())]
                    literal = inner if len(inner) == 1 else literal
                highest = min(path.count(".") for path in literal)
                literal = [path for path in literal if path.count(".") == highest]
            if len(literal) == 1 or (agreeing and len({str(flat[path]) for path in literal}) == 1):
                keys[key] = min(literal, key=lambda path: re.search(words_of("of_training"), path.lower()) is None)
            if ending:
                break  # of several, none is known to be meant
    return keys


def without_other_meanings(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The values without those whose name means something else next to another key, or that belong to one stage.

    One whose other meaning has a name is under that name.
    """
    gone: set[str] = set()
    meant: dict[str, Any] = {}
    for row, key in product(words_of("not_next_to"), flat):
        section, dot, name = key.rpartition(".")
        if re.fullmatch(row["names"], name, re.IGNORECASE):
            pattern = row["next_to"].replace("{section}", re.escape(section + dot))
            neighbours = [neighbour for neighbour in flat if re.search(pattern, neighbour, FREE)]
            if row.get("same_value"):
                neighbours = [neighbour for neighbour in neighbours if flat[neighbour] == flat[key]]
            if neighbours:
                gone.add(key)
                meant |= {f"{section}{dot}{row['means']}": flat[key]} if "means" in row else {}
    stage = re.compile(rf"((?:.*\.)?)({words_of('stages')})\.(.+)")
    of_stages = {key: match.groups() for key in flat if (match := stage.fullmatch(key)) is not None}
    named = {str(value).lower() for key, value in flat.items() if re.search(r"(?:^|[._])(?:method|stage)$", key)}
    is_named = any(re.fullmatch(words_of("stages"), name) for name in named)
    parts = {*of_stages.values()}
    trained = {(above, name) for key, (above, name, _) in of_stages.items() if says_training({key: None})}
    for key, (above, name, inner) in of_stages.items():
        others = {other for section, other in trained if section == above} - {name}
        alone = others and not any((above, other, inner) in parts for other in others)
        if (is_named and name.lower() not in named) or alone:
            gone.add(key)
    return {key: value for key, value in flat.items() if key not in gone} | meant


def says_training(flat: Mapping[str, Any]) -> bool:
    """Whether one of the keys says how to train, as a learning rate does and a batch size does not."""
    aliases = read_data_file(TABLES)["shared"]["aliases"]
    names = (leaf for name in words_of("of_a_training") for leaf in aliases[name])
    return any(pattern.search(path) for pattern in map(leaf_pattern, names) for path in flat)


def is_for_other_work(flat: Mapping[str, Any], name: str = "") -> bool:
    """Whether keys, or the name of their file, are those of an evaluation, of generating or serving, not a training.

    Where others of the keys say how to train, both must be.
    """
    words = words_of("other_work")
    others = {key for path in flat if (key := path.rpartition(".")[2].lower()) in words}
    of_folder = re.match(r"infer|eval|generat|predict", PurePath(name).parent.name) is not None
    signs = (len(others) > 1) + (of_folder or names_other_work(PurePath(name)))
    return signs > says_training(flat)


def is_for_any_program(settings: Collection[str], flat: Mapping[str, Any]) -> bool:
    """Whether a file has no setting but those that a program has as well which prepares data or runs a model."""
    return {"seed"} < {"seed", *settings} <= {*words_of("of_any_program")} and not names_of_transformers(flat)


def names_of_transformers(keys: Collection[str]) -> bool:
    """Whether a part of a key is one of the names that only `TrainingArguments` and scripts like its examples use."""
    return any(pattern_of("of_transformers").match(part) for key in keys for part in key.split("."))


def to_fill_in(value: object) -> bool:
    """Whether a text stands for a value that its reader puts in: `path/to/data`, `{TBD}`, `--model <model_name>`."""
    return isinstance(value, str) and pattern_of("to_fill_in").search(value.rpartition("=")[2]) is not None


def placeholders(texts: Iterable[str], source: str = "") -> str:
    """The texts to fill in, each by the name of the variable that a script of `source` puts it in, where it has one."""
    assigned = re.finditer(r"(?m)^[ \t]*(?:export[ \t]+)?(\w+)=[\"']?([^\"'\s]+)", source)
    names = {match[2]: match[1] for match in assigned}
    words = (text.rpartition("=")[2] for text in filter(to_fill_in, texts))
    return ", ".join(dict.fromkeys(shorten_text(names.get(word, word)) for word in words))


def texts_in(values: object) -> Iterator[str]:
    """Every text among values, in sections and lists as well."""
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping | list | tuple):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from texts_in(value)


def why_no_training(flat: Mapping[str, Any], name: str) -> str | None:
    """Why nothing is trained by a file with these keys, or of this name; None where none of them says so."""
    if is_for_other_work(flat, name):
        kinds = words_of("kinds_of_work").items()
        part = PurePath(name).stem if names_other_work(PurePath(name)) else PurePath(name).parent.name
        kind = next((f"for {kind}" for kind, word in kinds if re.search(word, part)), "no training")
        why = f"is {kind} by its keys or name, and says nothing of how to train"
        return f"{why}: open the file with learning rate and epochs"
    floats = (key for key, value in flat.items() if isinstance(value, float))
    measured = (key for key in floats if pattern_of("results").search(key.lower()))
    return next((f"is a record of a training, with its {key}: open the file that started it" for key in measured), None)


@cache
def leaf_pattern(leaf: str) -> re.Pattern[str]:
    """What a key ends with that is one of the names of the alias `leaf`; W&B keeps `lr: {value: 0.1, desc: …}`."""
    return re.compile(rf"(?:^|\.)(?:{leaf.replace('.', chr(92) + '.')})(?:\.value)?$", re.IGNORECASE)


def without_alternatives(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values without the sections that are alternatives to one that a value names: `model_type = "SD3"`.

    So are those that change what a section `defaults` has, or one that begins the name: `optim_gan` next to `optim`.
    """
    named = {value.lower() for value in values.values() if isinstance(value, str)}
    sections = {key: value.keys() for key, value in values.items() if isinstance(value, Mapping)}
    chosen = [key for key in sections if key.lower() in named or key.lower() in ("default", "defaults", "base")]
    first = next((key for key in sections if any(other.startswith(f"{key}_") for other in sections)), None)
    if first is not None and not chosen:
        sections = {key: inner for key, inner in sections.items() if key == first or key.startswith(f"{first}_")}
        sections = {key: inner for key, inner in sections.items() if not re.search(r"_(val|eval|test|dev)", key)}
        chosen = [first]
    if len(chosen) != 1:
        return values
    keys = sections.pop(chosen[0])
    others = {key for key, inner in sections.items() if 2 * len(keys & inner) >= min(len(keys), len(inner)) > 1}
    return {key: value for key, value in values.items() if key not in others}


def _suits(name: str, value: object) -> bool:
    """Whether a value is of the type of the setting: a batch of `{size: 4}`, or one switched on, is no number."""
    if value == "":
        return False
    if name not in FIELDS or value is None or (isinstance(value, str) and _left_open(name, value)):
        return not isinstance(value, Mapping)
    kind, least = FIELDS[name].kind, words_of("least").get(name, 0)
    if kind in ("int", "float"):
        try:
            number = -1.0 if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return False
        return bool(number > least if FIELDS[name].above_minimum else number >= least)
    return isinstance(value, bool | int | str if kind in ("bool", "choice") else str)


def _current_keys(dialect: Dialect, values: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any]:
    """The values under the keys of the release that the dialect describes."""
    current = dict(values)
    for old, new in dialect.renamed.items():
        value = values.get(old)
        if value is None or (old != new.key and values.get(new.key) is not None):
            continue
        value = _typed(value, new.values or ())
        is_current = new.values is None or (isinstance(value, Hashable) and value in new.values)
        if not is_current and old == new.key:
            continue
        del current[old]
        if is_current:
            current[new.key] = value if new.values is None else new.values[value]
            notes.append(f"{old} {shorten_text(str(value))} is read as {new.key} {current[new.key]}: {new.since}")
    return current


def _word_of(dialect: Dialect, key: str, word: Any) -> Any:
    """The value that is closest to a word of the tool."""
    words = dialect.read_as.get(key, {})
    return words[word] if isinstance(word, str | int) and word in words else word


def _left_open(key: str, value: object) -> str | None:
    """Why the file does not determine a value here; None if it does."""
    if not isinstance(value, str):
        return None
    if value.strip().lower() == "auto" and not (key in FIELDS and "auto" in FIELDS[key].choices):
        return "chosen by the tool at start"
    if key.endswith("_token"):  # </s> and its like are values
        return None
    return "filled in at start" if TEMPLATE.fullmatch(value.strip()) else None


def _spellings(dialect: Dialect, name: str) -> list[tuple[Value, WrittenKeys]]:
    """The values of a setting with the keys and values that say them, the more specific later."""
    more = [(value, written) for written, value in dialect.also_read.get(name, ())]
    return [*dialect.values.get(name, {}).items(), *more]


def _says(values: Mapping[str, Any], written: WrittenKeys, assumed: Mapping[str, Any]) -> bool:
    """Whether the file has the written values; a key that it lacks is as `assumed`, a switch off, if it has another."""
    return any(key in values for key in written) and all(
        _typed(values.get(key, assumed.get(key, False)), (wanted,)) == wanted for key, wanted in written.items()
    )


def _typed(value: Any, choices: Collection[Any]) -> Any:
    """`value`, which an option of a command line gives as text, as the one of `choices` that is written so."""
    if not isinstance(value, str) or value in choices:
        return value
    spelled = {str(word).lower(): word for word in choices if isinstance(word, bool | int)}
    return spelled.get(value.lower(), value)


def _written_keys(dialect: Dialect, name: str, value: Value, file_values: Mapping[str, Any]) -> WrittenKeys | None:
    """How the tool spells a value; where `file_values` have other keys for the setting, by those."""
    usual = {key for written in dialect.values.get(name, {}).values() for key in written}
    for written, value_read in dialect.also_read.get(name, ()):
        if value_read == value and written.keys() <= file_values.keys() - usual:
            return written
    if name == "warmup_steps" and dialect.warmup_ratio is not None and isinstance(value, float):
        return {dialect.warmup_ratio: value} if 0 < value < 1 else {"warmup_steps": int(value)}
    if name in dialect.whole and isinstance(value, float):
        return {dialect.names[name]: int(value)} if value.is_integer() else None
    special = dialect.values.get(name, {})
    if value in special:
        places = keys_in_file(dialect, file_values) if dialect.older else {}
        given = {str(file_values.get(places.get(key, key))) for key in special[value]}
        older = {} if not file_values or given & dialect.older.keys() else dialect.older
        return {key: older.get(word, word) if isinstance(word, str) else word for key, word in special[value].items()}
    return {dialect.names[name]: value} if name in dialect.names else None


HF = "hf"
"""Name of the plain Hugging Face dialect."""
PLAIN: Mapping[Form, str] = {"python": "hf-python", "arguments": "hf-args"}
MOSTLY = 0.6
"""The share of keys of TrainingArguments in a file of arguments: only there is another key a misspelt one."""
CERTAIN = 10
"""What a key that only one tool has counts for, in keys that others may have as well."""

HOOKS = frozenset({"choose_command", "takes_more", "read_more", "complete"})
"""Parts of a table that name a function of `hooks`."""


@cache
def dialects() -> Mapping[str, Dialect]:
    """The dialects in `tools.yaml`, the plain Hugging Face one first."""
    tables = read_data_file(TABLES)
    names = sorted(tables.keys() - {"shared", "words"}, key=lambda name: (name != HF, name))
    return {name: _parse_table(name, tables[name]) for name in names}


def _parse_table(name: str, table: Mapping[str, Any]) -> Dialect:
    fields = {key: getattr(hooks, value) if key in HOOKS and value else value for key, value in table.items()}
    fields["renamed"] = {old: Renamed(**new) for old, new in table.get("renamed", {}).items()}
    # Aliases are by setting; the tool may have a key of its own for it.
    fields["leaves"] = {table.get("names", {}).get(key, key): leaves for key, leaves in table.get("leaves", {}).items()}
    dialect = Dialect(name=name, **fields)
    if not (dialect.nested and dialect.extends_hf and dialect.form == "yaml"):
        return dialect
    # An argument of TrainingArguments may be in any section.
    spellings = [spelling for setting in FIELDS for spelling in hf.argument_names(setting)]
    leaves = {spelling: [spelling, *dialect.leaves.get(spelling, ())] for spelling in spellings}
    return replace(dialect, leaves={**dialect.leaves, **leaves})


def dialect_by_name(name: str) -> Dialect:
    """The dialect `name`. Raises `SettingsError`, which suggests the closest one."""
    if name in dialects() or name == "hf-yaml":  # as it was called before
        return dialects().get(name, dialects()[HF])
    choices = f"{', '.join(dialects())}{did_you_mean(name, dialects())}"
    raise SettingsError(f"'{shorten_text(name)}' is not a supported format. Choose from {choices}")


def dialect_of_command(command: Sequence[str]) -> Dialect:
    """The dialect of the tool that a command starts, by its program or module, or the plain Hugging Face one."""
    programs = {program: dialect for dialect in dialects().values() for program in dialect.programs}
    for name in (PurePath(word).name for word in command[:4]):
        named = programs.get(name if name.endswith(".py") else name.partition(".")[0])
        if named is not None:
            return named
    return dialects()[HF]


def dialect_of_file(values: Mapping[str, Any], form: Form = "yaml") -> Dialect:
    """The dialect that shares most keys with these; where none does, the plain Hugging Face one of the form.

    A file of any tool may have one such key: two make it the tool's, or one that is in no other tool's files.
    """
    # A vote: each key that the file shares with a dialect counts one, a key that only this tool has counts `CERTAIN`.
    keys = {*flatten(values), *values}
    if not isinstance(values.get("defaults"), list):  # Hydra's is a list of files; others have a section of that name
        keys -= {"defaults"}
    files: tuple[Form, ...] = ("yaml", "json", "overrides")
    forms = files if form in files else (form,)
    candidates = []
    for dialect in dialects().values():
        others = values.keys() - hooks.KNOWN if dialect.only_keys else ()
        only_known = all(re.fullmatch(dialect.only_keys, key, re.VERBOSE) for key in others)
        if dialect.form in forms and (only_known or not values.keys().isdisjoint(dialect.certain_keys)):
            candidates.append(dialect)
    scores = {
        dialect.name: len(keys.intersection(dialect.file_keys)) + CERTAIN * (not keys.isdisjoint(dialect.certain_keys))
        for dialect in candidates
    }
    best = max(scores, key=lambda name: scores[name])
    of_user = _keys_of_own_script(values)
    if scores[best] >= (2 if form in files else 1):
        # A file of which a script's names say more than the tool's is the script's: `base_model` is anybody's key.
        tool = dialects()[best]
        of_tool, of_script = (len(read_settings(each, values).settings) for each in (tool, dialects()["own-script"]))
        is_certain = scores[best] >= CERTAIN and 2 * of_tool >= of_script
        is_other_form = tool.form == "json" and form == "yaml"  # GPT-NeoX has DeepSpeed's keys among its own
        is_sure = (is_certain or not (tool.programs or tool.of_launcher)) and not is_other_form
        return tool if is_sure or of_tool >= of_script else dialects()["hf-sections"]
    if form == "python" and of_user and "()" not in "".join(keys):
        return dialects()["own-script"]
    if form not in files:
        return dialects()[PLAIN.get(form, HF)]
    flat = flatten(values)
    if of_user and not names_of_transformers(flat):
        return dialects()["own-script"]
    arguments = [key for key in flat if setting_of_argument(key.rpartition(".")[2]) in FIELDS]
    in_sections = any("." in key for key in (*arguments, *of_user))
    return dialects()["hf-sections" if in_sections else PLAIN.get(form, HF)]


def _keys_of_own_script(values: Mapping[str, Any]) -> Collection[str]:
    """The keys of settings under names that scripts choose; none where all are arguments of Transformers."""
    flat = flatten(values)
    tool = dialects()["own-script"]
    names = {key: name for name, key in tool.names.items()}
    places = {names.get(key, key): path for key, path in keys_in_file(tool, flat).items()}
    paths = {path for name, path in places.items() if name not in ("optim", "lr_scheduler_type")}
    keys = paths | (flat.keys() & tool.leaves.keys())
    if len(keys) < 2 or all(setting_of_argument(key.rpartition(".")[2]) in FIELDS for key in keys):
        return ()
    return keys
