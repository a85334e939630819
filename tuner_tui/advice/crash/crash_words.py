"""What the messages of failures name and ask for, by `crash_words.yaml` and `message_facts.yaml`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import islice, pairwise
from pathlib import Path

from tuner_tui.advice.crash.failed_operation import quote_log
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.specific_errors import is_renamed_or_removed
from tuner_tui.advice.remedies.table import filled, remedy
from tuner_tui.core.files import compiled, read_data_file
from tuner_tui.runs.log_parsing.lines import expand

FILE = Path(__file__).with_name("crash_words.yaml")
FACTS = Path(__file__).with_name("message_facts.yaml")
PATH = re.compile(r"https?://\S+|[\w.~-]*[/\\][\w./\\~-]+")
SHAPE = re.compile(r"(?:(?<!\w)|(?=.\d+,))[(\[](\d+(?:, ?\d+)*),?[)\]]|(?:\bsize |[Gg]ot |\d and )(\d+)\b(?! *[xD-])")


@cache
def pattern_of(name: str, flags: int = 0) -> re.Pattern[str]:
    """A list of `crash_words.yaml` as one pattern."""
    return re.compile("|".join(read_data_file(FILE)[name]), flags)


def named_groups(name: str, text: str) -> tuple[str, ...]:
    """The group of each match of a list of `crash_words.yaml` that took part in it."""
    matches = pattern_of(name, re.IGNORECASE if name == "libraries" else 0).finditer(text)
    return tuple(next(filter(None, match.groups())) for match in matches)


def first_form(rows: Iterable[tuple[str, tuple[str, ...]]], text: str) -> tuple[str, ...]:
    """The texts of the first form in `text`, filled with its groups; those named `low` and `high` must be in order."""
    matches = ((match.groupdict("it"), texts) for form, texts in rows if (match := compiled(form).search(text)))
    ordered = (match for match in matches if int(match[0].get("low", 0)) < int(match[0].get("high", 1)))
    groups, texts = next(ordered, ({}, ()))
    values = {name: quote_log(group, 120) for name, group in groups.items()}
    return tuple(filled(text, values) for text in texts)


def facts_in(text: str, log: Sequence[str] = ()) -> tuple[Remedy, ...]:
    """What to do by the numbers and names of a message, and what else the output shows."""
    rows = (
        (row["form"], (row["title"], row["why"], row.get("instead", ""), "own-line" * ("own-line" in row)))
        for row in read_data_file(FACTS)
        if compiled(row["form"]).search(text) and any(map(compiled(row.get("log", "")).search, (text, *log)))
    )
    title, why, name, own_line = first_form(rows, text) or ("",) * 4
    fact = Remedy(title, why, name=name, source="the numbers and names of the message", edits_line=bool(own_line))
    return (fact,) if title else ()


def advice_in(message: str) -> tuple[Remedy, ...]:
    """What the message itself says to do."""
    text = pattern_of("no-advice", re.MULTILINE).sub("", message)
    text = re.sub(r":\n+(?:```\w*\n)?(?=\S)", ": ", text)  # a command below the sentence that names it
    reporting = pattern_of("reporting", re.IGNORECASE)
    texts = [
        sentence
        for sentence in named_groups("advice", text)
        if not reporting.search(re.sub(r"\([^()]*\)?", "", sentence))
    ]
    is_vague = bool(texts) and len(texts[0].split()) < 5 and not named_groups("names", texts[0])
    advice = "; ".join(texts[: 1 + is_vague])
    return (remedy("do-as-it-says", advice=quote_log(advice, 300)),) if advice else ()


@lru_cache(maxsize=16)  # the cause, its sentence and its checks ask for that of the same message
def meaning_of(headline: str) -> tuple[str, tuple[Remedy, ...]]:
    """What a message says, a thing and what is wrong with it, and what to do about it; both empty if it is not read."""
    document, text = read_data_file(FILE), PATH.sub("'-'", headline.partition(": ")[2] or headline)
    forms, things = document["clauses"], document["things"]
    words = "|".join(f"(?P<{name}>{row['words']})" for name, row in things.items())
    for clause in re.split(r"(?<=[^\d\s][.;!?]) +|\n", text)[:2]:
        for noun in compiled(expand(forms["thing"], {"WORDS": words})).finditer(clause):
            before, after, name = clause[: noun.start()], clause[noun.end() :], str(noun.lastgroup)
            is_subject, is_last = not re.search(forms["object"], before), re.match(forms["last"], after)
            for fault, row in document["faults"].items():
                behind, ahead = (compiled(expand(forms[side], {"FAULT": row[side]})) for side in ("behind", "ahead"))
                if (is_subject and behind.match(after)) or (is_last and ahead.search(before)):
                    fixes = (each["fix"] for each in document["readings"] if name in each["of"] and fault in each["is"])
                    remedies = (Remedy(title, why, source="the message") for title, why in islice(fixes, 1))
                    return f"{things[name]['say'].capitalize()} {row['say']}", tuple(remedies)
    return "", ()


def detail_of(message: str) -> str:
    """What a message says after the class of the exception, without addresses, to stand before other words."""
    text = re.sub(r"For further information visit |https?://\S+|\A[\w.]+:?\s*\Z", "", message)
    text = re.sub(r"(?i)\W*\bplease (?:report|file|open|submit)\b.*", "", text.partition(": ")[2] or text)
    return f"{quote_log(text, 240)}; " if text.strip() else ""


def subject_of(cause: str, message: str) -> str | None:
    """What the message names that the remedies depend on: a package, a precision or an argument."""
    if cause == "missing-package":
        return missing_package(message)
    if cause == "precision-unsupported":
        precisions = read_data_file(FILE)["precisions"]
        return next((name for name, words in precisions.items() if compiled(words).search(message)), None)
    return unknown_argument(message) if cause == "bad-arguments" else None


def unknown_argument(message: str) -> str | None:
    """The first argument of the message that was renamed or removed, else the first unknown one; None without one."""
    names: list[str] = []
    for listed in named_groups("unknown-arguments", message):
        options = [next(filter(None, groups)).replace("-", "_") for groups in pattern_of("option").findall(listed)]
        names += options or [listed]
    return next(iter([*filter(is_renamed_or_removed, names), *names]), None)


def missing_package(message: str, present: tuple[str, ...] = ()) -> str | None:
    """The missing package that a message names, or None; not one of those `present`, whose code says so."""
    forms = read_data_file(FILE)["missing-package"]
    names = (next(filter(None, match.groups())) for form in forms for match in compiled(form).finditer(message))
    imported = (pattern_of("imported").match(name) for name in names)
    return next((match[0] for match in imported if match is not None and match[0] not in present), None)


def relation_of(topic: str, text: str) -> str:
    """What the numbers or words of a message say beyond its topic: a key of the topic's ladder, empty without one."""
    forms = read_data_file(FILE)["relations"].get(topic, {})
    return "".join(first_form(((form, (key,)) for key, form in forms.items()), text))


def relation_of_sizes(message: str) -> str | None:
    """How two sizes in a message differ, by a name of the ladder `shapes`; None if that says nothing."""
    shapes = [[int(size) for size in max(texts).split(",")] for texts in SHAPE.findall(message)]
    alike = (zip(left, right, strict=True) for left, right in pairwise(shapes) if len(left) == len(right))
    low, high = sorted(next((pair for pairs in alike for pair in pairs if pair[0] != pair[1]), (0, 0)))
    if high == low + 1 > 16:  # smaller ones are numbers of things, not lengths
        return "off-by-one"
    is_pair = len(shapes) == 2 and max(shapes)[: len(min(shapes))] != min(shapes)  # not one within the other
    low, high = sorted(map(math.prod, shapes[:2])) if is_pair else (0, 0)
    return "multiple" if low > 4 and high % low == 0 and high > low else None
