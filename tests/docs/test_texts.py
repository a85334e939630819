"""The page of all texts is complete, holds texts only, and keeps to the language of the field."""

from __future__ import annotations

import re

import pytest

from tests.docs.reference import ROOT
from tests.docs.texts import PACKAGE, Text, program_texts, prose_pages, render, texts_of

IDIOMS = re.compile(
    r"\bwhose\b|\bby what\b|\bshall\b|\basked of\b|\bone settings\b|\btakes? no\b|(?<!there )\bis no (?!longer\b)\w+"
    r"|\bgo(?:es)? on\b|\btold\b|\bWhom\b|\bnobody\b|\bof weight\b|\bin place of\b|\bone another\b"
    r"|\bnot (?:yet )?known\b(?!\))|\btrainings\b|\bpromise[ds]?\b"
    r"|\banew\b|\bnone of those that\b|\bfor want of\b|\banother (?:\w+ )?\w+ than\b",
    re.IGNORECASE,
)
"""Phrases that sound translated. Write `is not a size`, `continues`, `instead of`, `each other`, `unknown`,
`training runs`, `expected`, `again`, `a different type than`."""
EXPRESSION = re.compile(r"\{.*?\}")
OTHER_NAMES = re.compile(
    r"\b(?<!model )(?<!finish )(?<!end )cards?\b|\bbox(?:es)?\b|\bvms?\b|\brungs?\b|\bfield[ -]notes?\b"
    r"|\bclosed[ -]form\b|\bseen\b|\bmicro-?batch(?:es)?\b|\bwait measured\b",
    re.IGNORECASE,
)
"""Second names of what the glossary names: GPU, machine, level, tuning notes, formula, observed, micro batch."""
NAMES_OF_CODE = re.compile(r"`[^`]*`|```.*?```|\]\([^)]*\)|\{.*?\}", re.DOTALL)


@pytest.fixture(scope="module")
def texts() -> list[Text]:
    return program_texts()


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("advice/remedies/remedies.yaml", "halve the learning rate"),
        ("advice/findings/findings.yaml", "{workers} loader workers share"),
        ("runs/log_parsing/crashes.yaml", "The disk is full"),
        ("settings/fields.yaml", "Peak learning rate, reached at the end of the warmup."),
        ("settings/resolve.py", "use name=value, such as learning_rate=1e-5"),
        ("cli/training_options.py", "Number of processes, one per GPU."),
        ("ui/keys.txt", "Save a checkpoint now and continue"),
        ("ui/status_text.py", "No problems found."),
        ("ui/screens/tune.py", "Trials"),
        ("tuning/search/conclusion.py", "Nothing was tried."),
    ],
)
def test_texts_of_every_kind_are_found(texts: list[Text], module: str, words: str) -> None:
    assert any(text.path == PACKAGE / module and words in text.words for text in texts)


def test_docstrings_and_expressions_are_left_out(texts: list[Text]) -> None:
    collected = {text.words for text in texts if text.path == PACKAGE / "runs/log_parsing/failures.py"}
    assert not any("The above exception was" in words for words in collected)
    assert not any(words.startswith("Failures, launchers' reports") for words in collected)


def test_an_f_string_is_one_text_with_its_expressions() -> None:
    [collected] = [text for text in texts_of(PACKAGE / "settings/resolve.py") if "must be at least 1" in text.words]
    assert collected.words == "--processes {options.processes}: must be at least 1."


def test_the_page_ends_with_what_people_wrote() -> None:
    page = render()
    assert all(f"\n## {path.relative_to(PACKAGE.parent)}\n" in page for path in prose_pages())
    assert "CONTRIBUTING.md" in page
    assert "REFERENCE.md\n\n" not in page


INSTALLS_BY_NAME = re.compile(r"(?:install|uvx|pipx run|uv add)\b[^`\n&;]*\btuner[-_]tui\b(?!/)", re.IGNORECASE)


def test_no_text_installs_the_program_by_its_name(texts: list[Text]) -> None:
    """Whoever takes the name on the package index would run code on the hosts of those who follow the advice."""
    pages = [Text(page, 1, page.read_text("utf-8")) for page in prose_pages()]
    assert [text for text in (*texts, *pages) if INSTALLS_BY_NAME.search(text.words)] == []
    assert INSTALLS_BY_NAME.search("python -m pip install -U 'tuner-tui[ray]==1.0'")


def test_no_text_sounds_translated(texts: list[Text]) -> None:
    places = [
        f"{text.path.relative_to(PACKAGE)}:{text.line}: {text.words}"
        for text in texts
        if IDIOMS.search(EXPRESSION.sub("", text.words))
    ]
    assert not places, "\n".join(places)


def test_each_thing_has_one_name(texts: list[Text]) -> None:
    presets = [Text(path, 1, path.read_text("utf-8")) for path in ROOT.glob("presets/*.yaml")]
    pages = [Text(page, 1, page.read_text("utf-8")) for page in prose_pages()]
    places = [
        f"{text.path.relative_to(ROOT)}:{text.line}: {name[0]}: {text.words[:120]}"
        for text in (*texts, *presets, *pages)
        for name in OTHER_NAMES.finditer(NAMES_OF_CODE.sub("", text.words))
    ]
    assert not places, "\n".join(places)
