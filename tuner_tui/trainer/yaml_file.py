"""Reading the configuration file; needs no heavy import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from .errors import JobError


def load_yaml(path: str) -> dict[str, Any]:
    """The mapping in the file at `path`; `JobError` where it is not there or is not one."""
    try:
        values = yaml.safe_load(Path(path).read_text("utf-8"))
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise JobError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise JobError(f"{path} must hold keys and values, such as `learning_rate: 5.0e-05`")
    return values
