"""How often a training may restart with a smaller micro batch after it ran out of memory."""

from __future__ import annotations

from collections.abc import Mapping

from tuner_tui.settings.errors import SettingsError

MAX_FALLBACKS = 20
FALLBACK_VARIABLE = "TUNER_FALLBACK"


def fallback_limit(flag: int | None, environment: Mapping[str, str]) -> int | None:
    """The number that the flag gives, else `TUNER_FALLBACK`; None where neither does and the job decides.

    Raises `SettingsError` where the variable is not a number from 0 to `MAX_FALLBACKS`.
    """
    text = environment.get(FALLBACK_VARIABLE, "").strip()
    if flag is not None or not text:
        return flag
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_FALLBACKS:
        raise SettingsError(f"{FALLBACK_VARIABLE}={text[:40]} is no whole number from 0 to {MAX_FALLBACKS}")
    return int(text)
