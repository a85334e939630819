"""Guesses the number of epochs or steps of a plain loop, from the names of its variables.

Looked up once, at the first optimizer step, in the functions that lead to it: a local or global variable, or an
attribute of a settings object, such as `num_epochs` or `args.max_steps`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

EPOCH_NAMES = frozenset(
    {"epochs", "numepochs", "nepochs", "nepoch", "numepoch", "maxepochs", "maxepoch", "totalepochs", "totalepoch",
     "trainepochs", "trainingepochs", "numtrainepochs", "epochnum", "nbepochs"}
)  # fmt: skip
STEP_NAMES = frozenset(
    {"maxiters", "maxiter", "maxsteps", "maxtrainsteps", "numiters", "numiterations", "niters", "iterations",
     "totaliters", "totaliterations", "numtrainingsteps", "numtrainsteps", "maxiterations", "trainiters", "trainsteps"}
)  # fmt: skip
MEMBER_EPOCH_NAMES = frozenset({"epoch"})
"""Names of a number of epochs among settings and constants; as a variable it is the epoch that runs."""
START_NAMES = frozenset({"startepoch", "startingepoch", "resumeepoch", "firstepoch"})
OWNERS = frozenset(
    {"args", "arguments", "opt", "opts", "options", "config", "cfg", "conf", "hparams", "hps", "params", "flags",
     "self", "hyperparameters", "settings", "hp"}
)  # fmt: skip
MAX_FRAMES = 30
MAX_LENGTH = 10**9
LIBRARIES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep, "_tuner_observer", "<")


def planned_length(frame: FrameType | None) -> dict[str, int]:
    """`epochs`, `steps` and `start`, the first epoch, as far as functions from `frame` outwards name them."""
    found: dict[str, int] = {}
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        if not any(part in frame.f_code.co_filename for part in LIBRARIES):
            for name, value, is_setting in _named_values(frame):
                _add(found, name, value, is_setting)
        frame = frame.f_back
    return found


def _named_values(frame: FrameType) -> Iterator[tuple[str, Any, bool]]:
    """Names and values, and whether each is a member of settings or a constant."""
    for variables in (frame.f_locals, frame.f_globals):
        for name, value in list(variables.items()):
            yield name, value, name.isupper()
            if name.strip("_").lower() in OWNERS:
                yield from ((member, each, name != "self") for member, each in _members(value))


def _members(owner: Any) -> Iterator[tuple[str, Any]]:
    members: Mapping[Any, Any] = owner if isinstance(owner, dict) else getattr(owner, "__dict__", {})
    for name, value in list(members.items()):
        if not isinstance(name, str):
            continue
        yield name, value
        if name in ("config", "args", "cfg", "hparams", "opt") and hasattr(value, "__dict__"):
            yield from [each for each in list(vars(value).items()) if isinstance(each[0], str)]


def _add(found: dict[str, int], name: str, value: Any, is_setting: bool) -> None:
    if type(value) not in (int, float) or value != value or not 0 < value < MAX_LENGTH or value != int(value):
        return
    plain = name.replace("_", "").lower()
    epochs = EPOCH_NAMES | MEMBER_EPOCH_NAMES if is_setting else EPOCH_NAMES
    kinds = (("epochs", epochs), ("steps", STEP_NAMES), ("start", START_NAMES))
    for kind, names in kinds:
        if plain in names:
            found.setdefault(kind, int(value))
