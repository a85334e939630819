"""The Python that trains: its version, its packages, and the fields of its `TrainingArguments`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tuner_tui.core.probe_cache import entry_of

PROBE_SCRIPT = Path(__file__).with_name("probe_script.py")
MARK = "tuner-tui-interpreter "


def ask_interpreter(path: Path, stages: tuple[str, ...], timeout_s: float) -> tuple[dict[str, Any], str | None]:
    """What the interpreter said in all `stages` together, and the sentence of what went wrong, if anything did.

    The stages that were answered before it failed count: an interpreter that dies while importing transformers has told
    its versions.
    """
    output, problem = run_probe(path, stages, timeout_s)
    answer: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith(MARK):
            answer.update(json.loads(line.removeprefix(MARK)))
    if problem is None and not answer:
        problem = f"{path} gave no answer: it does not seem to be a Python 3.8 or newer."
    return answer, problem


def run_probe(path: Path, stages: tuple[str, ...], timeout_s: float) -> tuple[str, str | None]:
    """The probe's output, and the sentence of why there is no more of it."""
    try:
        # A session of its own, so that on a timeout what the interpreter itself started ends with it.
        process = subprocess.Popen(
            [str(path), "-", *stages],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return "", start_error(path, error)
    try:
        output, _ = process.communicate(PROBE_SCRIPT.read_text(encoding="utf-8"), timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return output, f"{path} did not answer within {timeout_s:.0f} s and was stopped; is its disk slow?"
    return output, exit_error(path, process.returncode)


def start_error(path: Path, error: OSError) -> str:
    """Why the interpreter could not be started."""
    if isinstance(error, FileNotFoundError):
        return f"There is no Python at {path}: choose another interpreter."
    if isinstance(error, PermissionError):
        return f"{path} may not be executed by this user."
    return f"{path} is not a program this machine can run ({error.strerror})."


def exit_error(path: Path, code: int) -> str | None:
    """Why the interpreter stopped early; None when it did not."""
    if code == 0:
        return None
    if code < 0:
        return f"{path} was ended by {signal.Signals(-code).name} while it was asked for its packages."
    return f"{path} stopped with exit code {code} when asked for its packages: is it a Python 3.8 or newer?"


VERSIONS_TIMEOUT_S = 20.0
FULL_TIMEOUT_S = 120.0
"""The first import of torch from a cold network disk can take a minute and more."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python and its training packages.

    `packages` holds those of interest that are installed, by distribution name (`flash-attn`), with their versions.
    `torch_cuda` is the CUDA its torch was built with (None for a CPU build), `torch_archs` the cards it has code for
    (`sm_90`, `compute_120`). `training_arguments` maps the field names of its `transformers.TrainingArguments` to their
    defaults; None while that was not asked or could not be answered. `problem` is a sentence.
    """

    path: str
    python_version: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    torch_cuda: str | None = None
    torch_archs: tuple[str, ...] = ()
    training_arguments: Mapping[str, Any] | None = None
    problem: str | None = None


def default_interpreter(environment: Mapping[str, str] | None = None, has_torch: bool | None = None) -> Path:
    """The Python a person means who has not said which.

    1. That of the activated environment (VIRTUAL_ENV, then CONDA_PREFIX): it was chosen by hand, in this very shell.
    2. The one this program runs in, where it has torch: it was then installed into the training environment.
    3. `python3` on the PATH, what `python3 train.py` would start: this program then has an environment to itself, as
       `pipx` and `uvx` make it.
    4. The one this program runs in.

    `has_torch` says whether this program's own Python has torch; it is looked up where it is not given.
    """
    environment = os.environ if environment is None else environment
    activated = [environment[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environment.get(name)]
    for folder in activated:
        python = Path(folder) / "bin" / "python"
        if python.exists():
            return python
    if has_torch is None:
        has_torch = find_spec("torch") is not None
    if has_torch:
        return Path(sys.executable)
    return Path(shutil.which("python3", path=environment.get("PATH")) or sys.executable)


def probe_versions(path: Path, timeout_s: float = VERSIONS_TIMEOUT_S) -> Interpreter:
    """The Python's version and its packages', without importing any of them."""
    path = resolve_executable(path)
    answer, problem = ask_interpreter(path, ("versions",), timeout_s)
    return interpreter_from_answer(path, answer, problem)


def probe_interpreter(path: Path, cache_folder: Path | None = None, timeout_s: float = FULL_TIMEOUT_S) -> Interpreter:
    """Everything, the fields of `TrainingArguments` too; from the cache while interpreter and packages are the same.

    `cache_folder` is the user's cache folder where it is not given.
    """
    path = resolve_executable(path)
    entry = entry_of(path, cache_folder)
    known = entry.read()
    if known is not None:
        return interpreter_from_answer(path, known, None)
    answer, problem = ask_interpreter(path, ("versions", "fields"), timeout_s)
    if problem is None and (answer.get("problem") is None or "transformers" not in answer["packages"]):
        entry.write(answer)
    return interpreter_from_answer(path, answer, problem)


def is_cached(path: Path, cache_folder: Path | None = None) -> bool:
    """Whether `probe_interpreter` will answer from its cache, at once, rather than after seconds of imports."""
    return entry_of(resolve_executable(path), cache_folder).read() is not None


def resolve_executable(path: Path) -> Path:
    """The path from the root: a bare name (`python3.12`) is looked up as a shell would, `./venv/bin/python` from here.

    Links are not followed: an environment's python is a link to one that has none of its packages.
    """
    if len(path.parts) == 1 and not path.exists():
        return Path(shutil.which(path.name) or path.absolute())
    return path.absolute()


def interpreter_from_answer(path: Path, answer: Mapping[str, Any], problem: str | None) -> Interpreter:
    """The interpreter its own answer describes."""
    packages = answer.get("packages", {})
    return Interpreter(
        path=str(path),
        python_version=answer.get("python_version"),
        packages=packages,
        torch_cuda=answer.get("torch_cuda"),
        torch_archs=tuple(answer.get("torch_archs", ())),
        training_arguments=answer.get("training_arguments"),
        problem=problem or package_problem(path, packages, answer.get("problem")),
    )


def package_problem(path: Path, packages: Mapping[str, str], import_error: str | None) -> str | None:
    """What is wrong with the packages of an interpreter that answered, in a sentence."""
    if "torch" not in packages:
        return (
            f"{path} has no torch: choose the interpreter of your training environment, or install it there "
            "(pip install torch transformers accelerate)."
        )
    if import_error is not None and "transformers" in packages:
        return f"{path} cannot import its transformers: {import_error}."
    return None
