"""What the code of a traceback was doing when it failed, by `frame_roles.yaml`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path

from msgspec import Struct

from tuner_tui.core.files import parse_data_file
from tuner_tui.runs.log_parsing.failures import CodeFrame
from tuner_tui.runs.log_parsing.lines import matches_any

FILE = Path(__file__).with_name("frame_roles.yaml")

IMPORT = re.compile(r"(?:import|from) |<frozen importlib")


class FrameRole(Struct, frozen=True):
    """What a frame does. `say` follows a sentence; `location` is the place that findings name; None if it has none."""

    name: str
    say: str
    frames: re.Pattern[str]
    paths: re.Pattern[str] | None = None
    location: str | None = None
    yields: frozenset[str] = frozenset()


@cache
def roles() -> tuple[FrameRole, ...]:
    return tuple(
        FrameRole(
            name=row["role"],
            say=row["say"],
            frames=re.compile("|".join(row["frames"])),
            paths=re.compile(row["paths"]) if "paths" in row else None,
            location=row.get("location"),
            yields=frozenset(row.get("yields", ())),
        )
        for row in parse_data_file(FILE)
    )


def role_of_frame(file: str, function: str) -> FrameRole | None:
    """The role of one frame; None if it is not known, or only imports."""
    if function == "<module>":
        return None
    frame = "/" + f"{file}:{function.rpartition('.')[2]}".replace("\\", "/").lstrip("/")
    return next((role for role in roles() if role.frames.search(frame)), None)


def role_of_traceback(frames: Sequence[CodeFrame], message: str = "") -> FrameRole | None:
    """The role of a traceback, else of a file that `message` names; None if neither is known."""
    frames = _before_import(frames)
    by_frames = (role_of_frame(frame.file, frame.function) for frame in reversed(frames))
    by_paths = (role for role in roles() if role.paths is not None and role.paths.search(message))
    named = [role for role in (*by_frames, *by_paths) if role is not None]
    return next((role for role in named[1:] if role.name in named[0].yields), next(iter(named), None))


def _before_import(frames: Sequence[CodeFrame]) -> Sequence[CodeFrame]:
    """The frames outside of an import: what that runs is no part of a package's work."""
    imports = (number for number, frame in enumerate(frames) if frame.function == "<module>" and number)
    importing = (number for number in imports if IMPORT.match(frames[number - 1].statement or frames[number - 1].file))
    return frames[: next(importing, None)]


def location_of(frames: Sequence[CodeFrame]) -> str | None:
    """Where in a training the stack is: training, evaluation, loading, optimizer-step, checkpoint or None."""
    frames = _before_import(frames)
    # Evaluation and saving are called from the training loop and run the same code, so one frame of theirs anywhere
    # decides. `eval` of torch itself is no evaluation of a model, nor is `predict` of a part of one.
    names = [(file.replace("\\", "/"), function.rpartition(".")[2]) for file, function, *_ in frames]
    around_model = takewhile(lambda each: each[1] != "_call_impl", names)
    beyond_torch = (name for file, name in around_model if "/torch/" not in file or "lightning" in file)
    if any(matches_any("evaluation-functions", name) for name in beyond_torch):
        return "evaluation"
    named = [role for frame in reversed(frames) if (role := role_of_frame(frame.file, frame.function)) is not None]
    # What a step or a collator prepares for itself is not loaded before the training.
    passed_on = bool(named) and named[0].location == "loading" and role_of_traceback(frames) is not named[0]
    locations = [role.location for role in named[passed_on:] if role.location]
    if any(matches_any("training-functions", name) for _, name in names):
        locations.append("training")
    return "checkpoint" if "checkpoint" in locations else next(iter(locations), None)
