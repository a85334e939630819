"""The YAML files to which anybody may add a row: each row is complete and its keys are spelled right.

A message names the row, so that whoever added it finds the mistake.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tuner_tui.advice.findings import rows as rows_of_findings
from tuner_tui.advice.remedies import table
from tuner_tui.advice.remedies.computed import RUNGS
from tuner_tui.core.files import parse_data_file, read_data_file
from tuner_tui.hardware import known_gpus
from tuner_tui.runs.log_parsing import crash_table
from tuner_tui.settings.dialects import dialect
from tuner_tui.settings.dialects.script_search import TABLES
from tuner_tui.settings.model import FIELDS

CRASH_REQUIRED = ("cause", "say", "example")
CRASH_KEYS = (
    *(
        "cause",
        "say",
        "match",
        "any",
        "headline",
        "frame",
        "statement",
        "depth",
        "raised",
        "replaces",
        "confidence",
        "bare",
        "consequence",
    ),
    *("topic", "source", "example", "counter_example", "classes", "where", "outcome"),
)
SIGNAL_KEYS = ("cause", "say", "signals", "spared", "confidence", "topic")
GPU_KEYS = ("name", "memory", "architecture", "capability", "source")
MATCHED_AT_START = {"log_lines.yaml"}
"""Files whose expressions are compared with the beginning of a line only."""
SETTINGS_OF_TOOLS = ("names", "values", "defaults", "also_read", "computed", "whole")
"""Parts of a tool in `tools.yaml` whose keys are names of settings."""


def misspelled(row: Mapping[str, Any], required: Collection[str], allowed: Collection[str]) -> Iterator[str]:
    yield from (f"lacks {key}" for key in required if key not in row)
    yield from (f"has an unknown key {key}" for key in row if key not in allowed)


def repeated_keys(node: yaml.Node | None) -> Iterator[str]:
    """The keys that a mapping has twice, of which a loader silently keeps the last; each with its line."""
    if isinstance(node, yaml.MappingNode):
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        first = {(key.tag, key.value): key for key in reversed(keys)}  # '16' and 16 are two
        repeated = (key for key in keys if first[key.tag, key.value] is not key)
        yield from (f"{key.start_mark.line + 1}: {key.value}" for key in repeated)
    for part in node.value if isinstance(node, yaml.CollectionNode) else ():
        for inner in part if isinstance(part, tuple) else (part,):
            yield from repeated_keys(inner)


def test_no_key_stands_twice(repository: Path) -> None:
    texts = {path: path.read_text("utf-8") for path in (repository / "tuner_tui").rglob("*.yaml")}
    nodes = {path: yaml.compose(text, Loader=yaml.CSafeLoader) for path, text in texts.items()}
    assert [f"{path}:{key}" for path, node in nodes.items() for key in repeated_keys(node)] == []


def test_files_are_read_as_yaml_defines_them(repository: Path) -> None:
    for path in (repository / "tuner_tui").rglob("*.yaml"):
        read, defined = parse_data_file(path), yaml.load(path.read_bytes(), yaml.CSafeLoader)
        assert repr(read) == repr(defined), path  # the order of keys and the types of numbers too


def scalars(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    for part in node.value if isinstance(node, yaml.CollectionNode) else ():
        for inner in part if isinstance(part, tuple) else (part,):
            yield from scalars(inner)


def test_no_expression_looks_ahead_from_every_position(repository: Path) -> None:
    """It would take the square of the time: seconds for a long message. `^` in front, or `match`, looks once."""
    texts = {path: path.read_text("utf-8") for path in (repository / "tuner_tui").rglob("*.yaml")}
    nodes = (
        (path.name, node)
        for path, text in texts.items()
        for node in scalars(yaml.compose(text, Loader=yaml.CSafeLoader))
    )
    assert [
        f"{name}:{node.start_mark.line + 1}"
        for name, node in nodes
        if re.match(r"(?:\(\?\w+[:)])*\(\?!(?:\.|\[\\s\\S\])\*", node.value) and name not in MATCHED_AT_START
    ] == []


def test_the_second_of_two_keys_is_found() -> None:
    assert [*repeated_keys(yaml.compose("a: 1\nb: {c: 1, c: 2}\na: 3"))] == ["3: a", "2: c"]


def test_crashes() -> None:
    document = read_data_file(crash_table.FILE)
    problems = []
    for row in (*document["messages"], *document["frames"], *document["classes"]):
        name = row.get("say", row)
        problems += [f"{name}: {problem}" for problem in misspelled(row, CRASH_REQUIRED, CRASH_KEYS)]
        if not row.keys() & {"match", "any", "headline", "classes"}:
            problems.append(f"{name}: lacks match, any, headline or classes")
        for key in ("example", "counter_example"):
            texts = row.get(key, [])
            if not all(isinstance(text, str) for text in ([texts] if isinstance(texts, str | Mapping) else texts)):
                problems.append(f"{name}: {key} is no text; put it in quotes")
    for row in document["signals"]:
        problems += [
            f"{row['say']}: {problem}" for problem in misspelled(row, ("cause", "say", "signals"), SIGNAL_KEYS)
        ]
    assert problems == []


def test_remedies() -> None:
    rows = read_data_file(table.FILE)["remedies"]
    problems = [
        f"{name}: {problem}"
        for name, row in rows.items()
        for problem in misspelled(row, ("title", "why"), (*table.TEXTS, "if", "set", "env", "speed", "own-line"))
    ]
    words = {*table.FACTS, *table.WORDS, *FIELDS, *table.read_part("log-signs"), *words_of_programs()}
    problems += [
        f"{name}: no setting {key}" for name, row in rows.items() for key in row.get("set", {}).keys() - FIELDS
    ]
    problems += [f"{name}: no word {key}" for name, row in rows.items() for key in row.get("if", {}).keys() - words]
    assert problems == []


def words_of_programs() -> set[str]:
    *_, default = read_data_file(table.FILE)["programs"]
    return {*default}


def test_each_word_of_a_program_has_a_default() -> None:
    words = {word for row in read_data_file(table.FILE)["programs"] for word in row if word != "log"}
    assert words == words_of_programs()


def test_a_remedy_names_a_command_of_a_system_only_where_the_log_shows_it() -> None:
    signs = table.read_part("log-signs").keys()
    problems = []
    for name, row in table.read_part("remedies").items():
        needs_sign = any(word in signs and wanted is True for word, wanted in row.get("if", {}).items())
        text = " ".join(str(row.get(field, "")) for field in ("title", "why", "effect"))
        problems += [
            f"{name}: {match[0]}"
            for words, source in table.read_part("premises").items()
            if (match := re.search(words, text)) and not (needs_sign or re.search(source, row.get("source", "")))
        ]
    assert problems == []


def test_ladders() -> None:
    document = read_data_file(table.FILE)
    remedies = {*document["remedies"], *RUNGS}
    steps = {
        name: [step for part in ladder.values() for step in part] if isinstance(ladder, Mapping) else ladder
        for name, ladder in document["ladders"].items()
    }
    assert [f"{name}: no remedy {step}" for name in steps for step in steps[name] if step not in remedies] == []


def test_findings() -> None:
    required = ("when", "severity", "confidence", "sentence")
    optional = ("of", "where", "warning", "unless", "evidence")
    rows = read_data_file(rows_of_findings.FILE)
    problems = [
        f"{name}: {problem}"
        for name, row in rows.items()
        for problem in misspelled(row, required, (*required, *optional))
    ]
    assert (
        problems + [f"{name}: no row {row['of']}" for name, row in rows.items() if row.get("of", name) not in rows]
        == []
    )


def test_gpus() -> None:
    problems: list[str] = []
    architectures: dict[float, str] = {}
    for row in read_data_file(known_gpus.FILE):
        name, generation = row.get("name", row), row.get("architecture")
        problems += [f"{name}: {problem}" for problem in misspelled(row, GPU_KEYS, GPU_KEYS)]
        if not isinstance(row.get("memory"), list):
            problems.append(f"{name}: memory is no list of sizes in GiB, such as [48]")
        if architectures.setdefault(row.get("capability"), generation) != generation:
            problems.append(f"{name}: capability {row['capability']} is {architectures[row['capability']]} elsewhere")
    assert problems == []


def test_tools() -> None:
    problems = []
    parts = {*dialect.Dialect.__struct_fields__} - {"name"}
    for tool, row in read_data_file(TABLES).items():
        if tool in ("shared", "words"):
            continue
        problems += [f"{tool}: {problem}" for problem in misspelled(row, ("tool", "command"), parts)]
        problems += [
            f"{tool}: {part} has {name}, which is no setting"
            for part in SETTINGS_OF_TOOLS
            for name in row.get(part, ())
            if name not in FIELDS
        ]
    assert problems == []
