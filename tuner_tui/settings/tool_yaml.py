"""The YAML file of another tool, with values as YAML means them: what that tool itself would read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.fields import shorten
from tuner_tui.settings.yamltext import read_text


def read_tool_yaml(path: Path) -> dict[Any, Any]:
    """The mapping in the file. Raises `PresetError` with one sentence where there is none.

    That is also for a date such as 2024-99-99, a number of thousands of digits, and nesting without end.
    """
    try:
        values = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise PresetError(f"{path} is not valid YAML: {str(error).splitlines()[0]}.") from error
    except RecursionError:
        raise PresetError(f"{path} is nested too deeply.") from None
    except PresetError:
        raise
    except ValueError as error:
        raise PresetError(f"{path} holds a value that YAML cannot read: {shorten(str(error), 80)}.") from error
    if not isinstance(values, dict):
        raise PresetError(f"{path} must hold `key: value` lines.")
    return values
