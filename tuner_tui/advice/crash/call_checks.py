"""Whose code failed, and where to look in an error that no row of `crashes.yaml` explains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice, takewhile

from msgspec import Struct

from tuner_tui.advice.crash.crash_words import FILE, first_form, named_groups, pattern_of
from tuner_tui.advice.crash.failed_operation import Explanation, quote_log
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.core.files import read_data_file
from tuner_tui.inspection.process_dump import LIBRARY
from tuner_tui.runs.log_parsing.failures import CodeFrame, Failure
from tuner_tui.runs.log_parsing.lines import expand


class CallChecks(Struct, frozen=True):
    """What to check of a call. `say_demand`: the first says what is asked for; `refusal`: what is wrong if known."""

    remedies: tuple[Remedy, ...] = ()
    say_demand: bool = False
    refusal: str = ""


def check_the_call(failure: Failure, explanation: Explanation | None, meant: tuple[Remedy, ...] = ()) -> CallChecks:
    """Where to look in an error that no pattern recognises: the call into a package, or the program's own line.

    The innermost frame that is not installed is the program's own code; what it passed on is the first thing to check.
    `meant` is for what the message says as a whole.
    """
    frames = tuple(frame for frame in failure.calls if not pattern_of("carriers").search(frame.name))
    # Python's own files say less than what called them.
    named = (frame for frame in reversed(frames) if not is_foreign(frame) or named_groups("installed", frame.file))
    inner = next(named, None)
    explained = () if explanation is None else explanation.remedies
    if inner is None:
        checks = meant or explained
        return CallChecks(checks or (() if frames else (remedy("untraced"),)), bool(checks))
    package = next(iter(named_groups("installed", inner.file)), None)
    is_release = pattern_of("release-errors").search(failure.message) is not None
    title, why = f"look at {show(inner)} in {inner.place}", "the program's innermost line of the traceback"
    demand, refusal = _demand_of(failure, inner)
    if demand:
        why = f"{show(inner)} in {inner.place}; the condition above it says when"
    if package is not None:
        release = f", and the release of {package}" if is_release else ""
        of_program = (frame for frame in reversed(frames) if not is_foreign(frame))
        caller = own_frame(frames) if LIBRARY.search(inner.file) else next(of_program, None)
        called = "" if caller is None else f"; called by {show(caller)} in {caller.place}"
        title = f"check what reaches {package}'s {inner.function}{release}"
        why = f"{show(inner)} in {package} failed{called}"
    checks = (Remedy(title=demand or title, why=why, source="the traceback"),)
    if meant:
        is_general = not demand or any(demand == row["why"] for row in read_data_file(FILE)["refusals"])
        checks = (*meant, *checks) if is_general else (*checks, *meant)
    elif explanation is not None and demand and not explanation.is_specific:
        checks = (*checks, *explained[1:])  # the first says in general to do as the message asks
    elif explanation is not None:
        checks = (*explained, *(checks if package and not pattern_of("own-faults").search(failure.headline) else ()))
    is_wordless = package is not None and failure.refuses and not failure.headline.partition(": ")[2]
    if (is_release or is_wordless) and (explanation is None or not explanation.is_specific):
        checks = (*checks, remedy("program-parts", package=package or "its packages"))
    return CallChecks(checks, bool(demand or explained or meant), refusal)


def _demand_of(failure: Failure, inner: CodeFrame) -> tuple[str, str]:
    """What a refusal or its condition asks for, and what it says is wrong; empty where its code is about itself."""
    if not failure.refuses or inner != failure.calls[-1] or pattern_of("internals").search(inner.name):
        return "", ""
    document = read_data_file(FILE)
    texts = ((row["form"], (row["why"], row.get("say", ""))) for row in document["refusals"])
    forms = ((expand(form, document["fragments"]), pair) for form, pair in texts)
    condition = pattern_of("no-condition").sub("", inner.statement)
    message = re.sub(r"^(KeyError: )([\"'])(.*)\2$", r"\1\3", failure.message)
    demand, refusal = first_form(forms, f"{message}\n{condition}") or ("", "")
    return demand, refusal


def packages_of(failure: Failure) -> tuple[str, ...]:
    """The package of each call, which may be Python itself, the innermost first; empty for code of the program."""
    files = [frame.file for frame in reversed(failure.calls)]
    return tuple((*named_groups("installed", file), "Python" if LIBRARY.search(file) else "")[0] for file in files)


def own_frame(frames: Sequence[CodeFrame]) -> CodeFrame | None:
    """The innermost frame that the user can edit: of the program, or of the clone of a package's repository."""
    of_program = (frame for frame in reversed(frames) if not LIBRARY.search(frame.file))
    return next((frame for frame in of_program if re.match(r"[/~]|\w:", frame.file) or not is_foreign(frame)), None)


def is_foreign(frame: CodeFrame) -> bool:
    """Whether the frame is of a package or of Python itself."""
    return bool(LIBRARY.search(frame.file) or named_groups("installed", frame.file))


def show(frame: CodeFrame) -> str:
    """The statement of a frame, else its function, as code."""
    return f"`{quote_log(frame.statement or frame.function, 100)}`"


def failing_package(failure: Failure) -> str | None:
    """The installed package whose library or import failed, or None. One that raises itself lacks another."""
    working = [frame for frame in failure.frames if not failure.frames[-1].raises]
    imported = [frame.file for frame in working if frame.function == "<module>"]
    places = (failure.headline, *reversed(imported), *(frame.file for frame in working[-1:]))
    return next((package for folder in places for package in named_groups("installed", folder)), None)


def mismatched_packages(failure: Failure) -> tuple[str, ...]:
    """The packages whose releases do not fit: those that it names, and the innermost of the calls, two in all."""
    wrapped = failure.message.partition("because of the following error")[2]
    named = [name.lower() for name in named_groups("libraries", wrapped or failure.headline)]
    document = read_data_file(FILE)
    named += islice((name for name, form in document["classes-of"].items() if re.search(form, failure.headline)), 1)
    files = (frame.file for part in (failure.calls, failure.frames) for frame in takewhile(is_foreign, reversed(part)))
    inner = (name for file in files for name in named_groups("installed", file) if name not in document["messengers"])
    called = islice(dict.fromkeys(inner), max(1, 2 - len(named)))
    packages = tuple(dict.fromkeys((*named, *called)))[:3] or named_groups("owners", failure.headline)
    # A package that is run from a clone of its repository, of which the program itself is no part.
    clones = [names for frame in failure.frames if (names := named_groups("clone", frame.file.replace("\\", "/")))]
    return packages or next((names for names in reversed(clones) if names != clones[0]), ())
