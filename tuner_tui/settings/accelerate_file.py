"""accelerate's own configuration, which says how `accelerate launch` starts a command beyond what the command says.

Found and read as accelerate 1.15 does (`commands/config/config_args.py` and `commands/launch.py` there):
`--config_file`, else `default_config.yaml` in the cache folder of Hugging Face. trl hands on what its own YAML says
of a launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import yaml

from tuner_tui.settings.argv import long_options
from tuner_tui.settings.job import BuiltinJob, CommandJob

PROGRAMS = frozenset({"accelerate", "accelerate-launch", "accelerate.commands.launch"})
TOOLS = frozenset({"trl", "axolotl"})
"""Tools that start their training by `accelerate launch` and hand its options on."""
ONE_PROCESS = frozenset({"NO", "MULTI_CPU"})
"""Kinds for which a single process is started, whatever number is given (`MULTI_CPU` leaves it to mpirun)."""
MOST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class AccelerateFile:
    """What of a launch stands in files. `distributed_type` is None where accelerate has no file of its own."""

    path: Path
    distributed_type: str | None
    num_processes: int | None
    mixed_precision: str | None

    @property
    def words(self) -> str:
        """For somebody about to start the command: `2 processes (MULTI_GPU), bf16, by /…/default_config.yaml`."""
        count = self.num_processes if self.distributed_type not in ONE_PROCESS else 1
        known = [] if count is None else [f"{count} process" + ("es" if count > 1 else "")]
        if known and self.distributed_type not in (None, "NO"):
            known[0] += f" ({self.distributed_type})"
        known += [self.mixed_precision] if self.mixed_precision else []
        return ", ".join([*known, f"by {self.path}"])


def accelerate_file(job: BuiltinJob | CommandJob, environ: Mapping[str, str], cwd: Path) -> AccelerateFile | None:
    """What files say of the launch of `job`; None where accelerate does not start it, or no file tells.

    The job's own folder is seen from `cwd`, where the launch is asked for.

    A file that cannot be read is none: accelerate itself refuses to start with it and says why.
    """
    env = {**environ, **job.env} if isinstance(job, CommandJob) else environ
    if job.launcher == "accelerate":
        return _file(_default(env))
    if job.launcher != "plain" or not isinstance(job, CommandJob):
        return None
    cwd = cwd / (job.cwd or "")
    for place, word in enumerate(job.command):
        name = PurePath(word).name
        if name in PROGRAMS:
            options = long_options(job.command[place + 1 :])
            named = options.get("config_file")
            if named is None and "cpu" in options:
                return None
            return _file(cwd / named if named else _default(env))
        if name in TOOLS:
            return _of_tool(long_options(job.command, whole=True), env, cwd)
    return None


def _of_tool(options: Mapping[str, str], env: Mapping[str, str], cwd: Path) -> AccelerateFile | None:
    """trl's `--accelerate_config` is a file, or a name of one that trl brings: nothing is known of those."""
    own = _values(cwd / options["config"]) if "config" in options else {}
    named = options.get("accelerate_config") or options.get("config_file") or own.get("accelerate_config")
    told = _count(own.get("num_processes"))
    found = _file(cwd / str(named) if named else _default(env))
    if told is None:
        return found
    if found is None:
        return AccelerateFile(cwd / options["config"], None, told, None)
    return AccelerateFile(found.path, found.distributed_type, told, found.mixed_precision)


def _default(env: Mapping[str, str]) -> Path:
    cache = Path(env.get("XDG_CACHE_HOME", Path(env.get("HOME", "~"), ".cache")))
    home = Path(env.get("HF_HOME", cache / "huggingface"))
    return home.expanduser() / "accelerate" / "default_config.yaml"


def _file(path: Path) -> AccelerateFile | None:
    values = _values(path)
    if not values or values.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        return None
    kind = str(values.get("distributed_type", "NO")).upper()
    kind = "NO" if kind == "FALSE" else kind  # YAML 1.1 reads a bare `NO` as false
    count = 1 if kind == "NO" else _count(values.get("num_processes"))
    precision = values.get("mixed_precision")
    shown = str(precision) if isinstance(precision, str) and precision != "no" else None
    return AccelerateFile(path, kind, count, shown)


def _values(path: Path) -> Mapping[str, Any]:
    """A small YAML (or JSON) mapping; empty where there is none."""
    try:
        with path.open("rb") as file:
            values = yaml.safe_load(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return values if isinstance(values, dict) else {}


def _count(value: Any) -> int | None:
    """A number of processes; -1 stands for one that has to be given with the command."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
