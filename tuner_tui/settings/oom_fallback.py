"""How often a training may restart with a smaller micro batch after it ran out of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner_tui.settings.errors import SettingsError

if TYPE_CHECKING:
    from tuner_tui.settings.job import Job

MAX_FALLBACKS = 20
FALLBACK_VARIABLE = "TUNER_FALLBACK"


def with_fallback(job: Job, flag: int | None, environment: Mapping[str, str]) -> Job:
    """The job with what the flag says, else what `TUNER_FALLBACK` says, else as its preset has it.

    Raises `SettingsError` for a variable that is no such number.
    """
    times = flag if flag is not None else _parse_fallback(environment.get(FALLBACK_VARIABLE, "").strip())
    return job if times is None else job.model_copy(update={"fallback": times})


def _parse_fallback(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_FALLBACKS:
        raise SettingsError(f"{FALLBACK_VARIABLE}={text[:40]} is no whole number from 0 to {MAX_FALLBACKS}")
    return int(text)
