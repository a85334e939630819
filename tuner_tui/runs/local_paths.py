"""The local files that a built-in job names, looked for before a Python is started that would miss them much later."""

from __future__ import annotations

from pathlib import Path

from tuner_tui.settings.job import BuiltinJob

DATA_SUFFIXES = frozenset({".csv", ".tsv", ".jsonl", ".json", ".parquet"})
"""What the built-in job reads as a file whatever else its name looks like."""
PATH_BEGINS = ("/", "./", "../", "~")


def missing_path(job: BuiltinJob, cwd: Path) -> str | None:
    """A sentence on the model or the data that is plainly meant as a path and is not there; None where all is well.

    A plain name (`bert-base`, `org/dataset`) may be on the Hub and is left alone.
    """
    for what, name in (("model", job.model), ("data", job.data)):
        is_file = what == "data" and Path(name).suffix in DATA_SUFFIXES
        if (is_file or name.startswith(PATH_BEGINS)) and not (cwd / Path(name).expanduser()).exists():
            return f"The {what} {name} is not there (looked in {cwd})."
    return None
