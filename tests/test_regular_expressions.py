"""No regular expression of the program takes exponential time, whatever a log or a file holds."""

from __future__ import annotations

import importlib
import pkgutil
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import tuner_tui
from tuner_tui.core.files import read_data_file

PACKAGE = Path(tuner_tui.__file__).parent
REPEATED = (
    "#", "# ", "#\n", "a", "a ", "a\n", " ", "\n", "-", "--a ", "a=", "a.", "a/", "(", "[a", "{", "'", '"', "\\", "${a",
    "0", "0.", "0,", "1 ", "=", "a,", "a: ", "_", "a_", "|", " |", "─", "\t", 'File "a", ', "\x1b[0m", "1%|", "<", "^",
)  # fmt: skip
LENGTH, CPU_S = 80, 1.0
"""An expression that is no worse than quadratic takes microseconds for so many characters."""


def _texts(values: object) -> Iterator[str]:
    if isinstance(values, str):
        yield values
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from (*_texts(key), *_texts(value))
    elif isinstance(values, list):
        for value in values:
            yield from _texts(value)


def _expressions() -> dict[str, re.Pattern[str]]:
    """All that modules hold, and the texts of data files that can be compiled, by where they are."""
    patterns: dict[str, re.Pattern[str]] = {}
    for module in pkgutil.walk_packages(tuner_tui.__path__, "tuner_tui."):
        if not re.search(r"\.(?:observer|trainer|__main__)\b", module.name):
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                    patterns[f"{module.name}.{name}"] = value
    for file in PACKAGE.rglob("*.yaml"):
        document = read_data_file(file)
        fragments = document.get("fragments", {}) if isinstance(document, dict) else {}
        for text in _texts(document):
            for name, fragment in fragments.items():
                text = text.replace(f"{{{name}}}", fragment)
            if re.search(r"[*+]", text) and re.search(r"[\\\[(]", text):
                try:
                    patterns[f"{file.name}: {text}"] = re.compile(text)
                except re.error:
                    continue  # prose, or a part of an expression
    return patterns


def _is_exponential(pattern: re.Pattern[str]) -> bool:
    texts = [unit * (LENGTH // len(unit)) + "\0!" for unit in REPEATED]
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        for text in texts:
            pattern.search(text)
            pattern.fullmatch(text)
    except TimeoutError:
        return True
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return False


def test_no_expression_takes_exponential_time() -> None:
    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        assert _is_exponential(re.compile(r"(?:a|a)+b"))
        assert [where for where, pattern in _expressions().items() if _is_exponential(pattern)] == []
    finally:
        signal.signal(signal.SIGVTALRM, before)
