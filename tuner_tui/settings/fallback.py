"""How often a training may fall back after it ran out of memory: by the flag, the environment, or the job itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner_tui.settings.errors import SettingsError

if TYPE_CHECKING:
    from tuner_tui.settings.job import Job

MOST_FALLBACKS = 20
FALLBACK_VARIABLE = "TUNER_FALLBACK"


def with_fallback(job: Job, flag: int | None, environment: Mapping[str, str]) -> Job:
    """The job with what the flag says, else what `TUNER_FALLBACK` says, else as its preset has it.

    Raises `SettingsError` for a variable that is no such number.
    """
    times = flag if flag is not None else _from(environment.get(FALLBACK_VARIABLE, "").strip())
    return job if times is None else job.model_copy(update={"fallback": times})


def _from(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) > MOST_FALLBACKS:
        raise SettingsError(f"{FALLBACK_VARIABLE}={text[:40]} is no whole number from 0 to {MOST_FALLBACKS}")
    return int(text)
