"""Knowledge of names, from the JSON files of this folder.

`NAMES`: words by which variables, functions, logged values and streams are known. `LIBRARIES`: by module, the functions
with which libraries save, those that write a checkpoint of several parts (with the argument that is its path, or none
where they return it, and whether it resumes, or the argument that shows it), and those of loggers with their
parameters; arguments of torch's classes, in order; what samplers of speech call the length of the recordings that they
yield, the first that there is; and the values of `TrainingArguments` in a trial, which neither ends early nor leaves
files.
"""

from __future__ import annotations

import json
import os
from typing import Any

with open(os.path.join(os.path.dirname(__file__), "names.json"), encoding="utf-8") as file:
    NAMES = {kind: frozenset(entry["words"].split()) for kind, entry in json.load(file).items()}
with open(os.path.join(os.path.dirname(__file__), "libraries.json"), encoding="utf-8") as file:
    LIBRARIES: dict[str, Any] = json.load(file)
