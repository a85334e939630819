"""Records the fields of `TrainingArguments` of several releases from the published wheels.

    python -m tests.settings.dialects.record_fields

downloads them with pip and writes `data/training_arguments.json`. Each field has a letter for each release: `p` is
there, `d` is there and deprecated (its help or a warning of `__post_init__` says so), `-` is not there.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

RELEASES = ("4.46.3", "4.57.1", "5.0.0", "5.5.0", "5.15.0", "5.23.0")
RECORD = Path(__file__).parent / "data" / "training_arguments.json"
DEPRECATED = re.compile(r"deprecated|will be removed", re.IGNORECASE)


def read_record() -> dict[str, str]:
    """Field to its letters, one for each of `RELEASES`."""
    document: dict[str, str] = json.loads(RECORD.read_text())["fields"]
    return document


def record(folder: Path) -> dict[str, object]:
    """The record, made of the wheels in `folder`."""
    sources = [_source(folder, release) for release in RELEASES]
    fields = [_fields(source) for source in sources]
    names = sorted({name for field_names in fields for name in field_names})
    letters = {name: "".join(field_names.get(name, "-") for field_names in fields) for name in names}
    return {"releases": RELEASES, "fields": letters}


def _source(folder: Path, release: str) -> str:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "-d",
        str(folder),
        f"transformers=={release}",
    ]
    subprocess.run(command, check=True)
    with zipfile.ZipFile(folder / f"transformers-{release}-py3-none-any.whl") as wheel:
        return wheel.read("transformers/training_args.py").decode()


def _fields(source: str) -> dict[str, str]:
    tree = ast.parse(source)
    model = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "TrainingArguments")
    collected = {}
    for node in model.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            texts = [
                child.value
                for child in ast.walk(node)
                if isinstance(child, ast.Constant) and isinstance(child.value, str)
            ]
            collected[node.target.id] = "d" if any(DEPRECATED.search(text) for text in texts) else "p"
    for name in _warned(model):
        if name in collected:
            collected[name] = "d"
    return collected


def _warned(model: ast.ClassDef) -> Iterator[str]:
    """The fields that a warning after `if self.<field>` calls deprecated."""
    for node in ast.walk(model):
        if not isinstance(node, ast.If):
            continue
        tested = {child.attr for child in ast.walk(node.test) if isinstance(child, ast.Attribute)}
        warning = " ".join(_text(statement) for statement in node.body if isinstance(statement, ast.Expr))
        if DEPRECATED.search(warning):
            # "using `EvaluationStrategy` for `eval_strategy` is deprecated" is about a value of it.
            yield from (name for name in tested if re.search(rf"(?<!for )(?<!for `)\b{name}\b", warning))


def _text(node: ast.AST) -> str:
    """The string constants in a node."""
    return " ".join(
        child.value for child in ast.walk(node) if isinstance(child, ast.Constant) and isinstance(child.value, str)
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        RECORD.write_text(json.dumps(record(Path(scratch)), indent=1) + "\n")
