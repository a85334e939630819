"""Cleans messages of exceptions before they are written to the run folder: no secrets, no colours."""

from __future__ import annotations

import os

REDACTION = os.path.join(os.path.dirname(__file__), "..", "..", "..", "core", "redaction.py")
"""Loaded from its file: the training's interpreter need not have tuner-tui installed."""
HIDDEN = "[hidden]"


def redact(text: str) -> str:
    """`text` without secrets and escape sequences.

    Nothing of it if the rules cannot be loaded, as in a process without memory.
    """
    try:
        import re
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location("_tuner_redaction", REDACTION)
        module = module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        return str(module.redact_text(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)))
    except Exception:  # noqa: BLE001 - outermost edge inside somebody else's process
        return HIDDEN
