"""The Python that trains: its packages, asked in a subprocess and cached, and whether its torch supports the GPUs.

It is asked in a subprocess, since it may be another environment than this program's. Versions are read without
importing anything there; the fields of `TrainingArguments` need an import of transformers, which takes seconds, and are
cached.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from platformdirs import user_cache_path

from tuner_tui.core.child_process import EndlessOutputError, run_command
from tuner_tui.core.files import make_private, read_json, write_atomic
from tuner_tui.core.json_struct import from_json
from tuner_tui.hardware.capabilities import build_supports, describe_generation, least_capability
from tuner_tui.hardware.inventory import Gpu, Inventory
from tuner_tui.hardware.probe_script import PACKAGES

FORMAT = 1


class ProbeCacheEntry(Struct, frozen=True):
    """The cached answer to one question, valid while the files it was stamped with keep their modification times."""

    file: Path

    def read(self) -> dict[str, Any] | None:
        """The answer; None where there is none, it is out of date, or the file is damaged."""
        entry = read_json(self.file)
        stamps, answer = entry.get("stamps"), entry.get("answer")
        if entry.get("format") != FORMAT or not isinstance(stamps, dict) or stamps != _stamps(stamps):
            return None
        return answer if isinstance(answer, dict) else None

    def write(self, answer: dict[str, Any], stamped: Iterable[str] = ()) -> None:
        """Stores the answer with the modification times of the files and folders `stamped`.

        Does nothing where the cache cannot be written: that only costs time.
        """
        entry = {"format": FORMAT, "stamps": _stamps(stamped), "answer": answer}
        with suppress(OSError):
            make_private(self.file.parent)
            write_atomic(self.file, json.dumps(entry))


def probe_cache_entry(kind: str, question: object, folder: Path | None = None) -> ProbeCacheEntry:
    """The entry for `question`, any JSON value, in `folder` or in the folder `kind` of the user's cache."""
    if folder is None:
        folder = user_cache_path("tuner-tui") / kind
    digest = sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
    return ProbeCacheEntry(folder / f"{digest[:24]}.json")


def _stamps(paths: Iterable[str]) -> dict[str, int | None]:
    stamps: dict[str, int | None] = dict.fromkeys(paths)
    for path in stamps:
        with suppress(OSError):
            stamps[path] = os.stat(path).st_mtime_ns  # noqa: PTH116
    return stamps


INSTALL_COMMAND = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/"
"""Without `--force-reinstall` pip keeps a build of the same version for the CPU or another CUDA."""


class Incompatibility(Struct, frozen=True):
    """One reason why an interpreter's torch does not work with the GPUs, with advice.

    `shown_by` is the command that shows it; empty where the torch uses the GPUs nevertheless, or fails on them.
    """

    sentence: str
    advice: str
    shown_by: str = ""


def find_incompatibilities(inventory: Inventory, interpreter: Interpreter) -> tuple[Incompatibility, ...]:
    """The incompatibilities of the machine's NVIDIA GPUs and the interpreter's torch; empty where nothing is known."""
    version, cuda, driver_cuda = interpreter.packages.get("torch"), interpreter.torch_cuda, inventory.cuda_version
    if not inventory.gpus or version is None:
        return ()
    # The folder of download.pytorch.org with wheels that the driver supports.
    wheels = "cu130" if driver_cuda is not None and major(driver_cuda) >= 13 else "cu126"
    if cuda is None:
        built = "not built for CUDA" if "rocm" in version or "xpu" in version else "CPU-only"
        sentence = f"PyTorch here is {built} ({version}); the GPUs will not be used."
        shown_by = f'{interpreter.path} -c "import torch; print(torch.version.cuda)" prints None'
        return (Incompatibility(sentence, f"Install PyTorch with CUDA: {INSTALL_COMMAND}{wheels}", shown_by),)
    misfits = [not_covered(gpu, cuda, interpreter.torch_archs) for gpu in inventory.gpus]
    # A driver supports every CUDA of its own major version and older (CUDA Compatibility guide).
    if driver_cuda is not None and major(driver_cuda) < major(cuda):
        sentence = f"This torch needs CUDA {cuda}; the driver supports up to CUDA {driver_cuda}."
        advice = f"Update the NVIDIA driver, or install a matching torch: {INSTALL_COMMAND}{wheels}"
        misfits.insert(0, Incompatibility(sentence, advice))
    return tuple(dict.fromkeys(misfit for misfit in misfits if misfit is not None))


def unused_gpus(inventory: Inventory, interpreter: Interpreter | None) -> str:
    """Why the torch of the interpreter uses none of the GPUs; empty where it may use them."""
    misfits = () if interpreter is None else find_incompatibilities(inventory, interpreter)
    return next((misfit.sentence for misfit in misfits if misfit.shown_by), "")


def not_covered(gpu: Gpu, torch_cuda: str, archs: tuple[str, ...]) -> Incompatibility | None:
    """A GPU that this torch has no code for: trainings on it fail with "no kernel image is available"."""
    if gpu.capability is None:
        return None
    least = least_capability("torch-cuda-13" if major(torch_cuda) >= 13 else "torch")
    by_release = gpu.capability >= least or major(torch_cuda) < 12
    if build_supports(gpu.capability, archs) if archs else by_release:
        return None
    older = f"Older GPUs need a CUDA 12.6 build: {INSTALL_COMMAND}cu126"
    dropped = "CUDA 12 and all current torch wheels dropped it: install an old torch built for CUDA 11."
    return Incompatibility(
        f"This torch (CUDA {torch_cuda}) has no kernels for {gpu.name} ({describe_generation(gpu)}).",
        older if gpu.capability >= least_capability("torch") else dropped,
    )


def major(version: str) -> int:
    return int(version.partition(".")[0])


PROBE_SCRIPT = Path(__file__).with_name("probe_script.py")
MARK = "tuner-tui-interpreter "
VERSIONS_TIMEOUT_S = 20.0
FULL_TIMEOUT_S = 120.0
"""The first import of torch from a cold network disk can take more than a minute."""
MAX_OUTPUT_BYTES = 8 << 20


class Interpreter(Struct, frozen=True):
    """A Python and its training packages.

    `packages` maps the installed ones of interest by distribution name (`flash-attn`) to their versions. `torch_cuda`
    is the CUDA version that its torch was built with (None for a CPU build), `torch_archs` the architectures it has
    code for (`sm_90`, `compute_120`). `training_arguments` maps the field names of its `TrainingArguments` to their
    defaults; None where they were not asked for or could not be read. `problem` is a sentence.
    """

    path: str
    python_version: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    torch_cuda: str | None = None
    torch_archs: tuple[str, ...] = ()
    training_arguments: Mapping[str, Any] | None = None
    problem: str | None = None


def default_interpreter(environment: Mapping[str, str] | None = None, has_torch: bool | None = None) -> Path:
    """The interpreter to use when none is given:

    1. That of the activated environment (VIRTUAL_ENV, then CONDA_PREFIX), as it was activated in this very shell.
    2. The one this program runs in, where it has torch: the program was then installed into the training environment.
    3. `python3` on the PATH, which `python3 train.py` would start: the program then has its own environment, as `pipx`
       and `uvx` give it.
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
    """The versions of the Python and its packages, without importing any of them."""
    path = resolve_executable(path)
    answer, problem = ask_interpreter(path, ("versions",), timeout_s)
    return interpreter_from_answer(path, answer, problem)


def probe_interpreter(path: Path, cache_folder: Path | None = None, timeout_s: float = FULL_TIMEOUT_S) -> Interpreter:
    """Versions and the fields of `TrainingArguments`, from the cache while interpreter and packages are unchanged.

    `cache_folder` defaults to the user's cache folder.
    """
    path = resolve_executable(path)
    entry = _cache_entry(path, cache_folder)
    answer = entry.read()
    if answer is not None:
        return interpreter_from_answer(path, answer, None)
    answer, problem = ask_interpreter(path, ("versions", "fields"), timeout_s)
    if problem is None and (answer.get("problem") is None or "transformers" not in answer["packages"]):
        # Installing or removing a package changes the site-packages folders.
        entry.write(answer, stamped=[str(path), *answer.get("site_folders", [])])
    return interpreter_from_answer(path, answer, problem)


def is_cached(path: Path, cache_folder: Path | None = None) -> bool:
    """True when `probe_interpreter` answers from its cache, at once, instead of after seconds of imports."""
    return _cache_entry(resolve_executable(path), cache_folder).read() is not None


def resolve_executable(path: Path) -> Path:
    """The absolute path: a bare name (`python3.12`) is looked up in the PATH, `./venv/bin/python` is relative.

    Links are not followed: an environment's python is a link to one that has none of its packages.
    """
    if len(path.parts) == 1 and not path.exists():
        return Path(shutil.which(path.name) or path.absolute())
    return path.absolute()


def interpreter_from_answer(path: Path, answer: Mapping[str, Any], problem: str | None) -> Interpreter:
    interpreter = from_json(Interpreter, {**answer, "path": str(path)})
    problem = problem or package_problem(path, interpreter.packages, interpreter.problem)
    return replace(interpreter, path=str(path), problem=problem)


def package_problem(path: Path, packages: Mapping[str, str], import_error: str | None) -> str | None:
    """The sentence for missing or broken packages; None where torch is there and transformers imports."""
    if "torch" not in packages:
        install = f"{path} -m pip install torch transformers accelerate"
        return f"{path} has no torch: choose the Python of your training environment, or run {install}."
    if import_error is not None and "transformers" in packages:
        return f"{path} cannot import transformers: {import_error}."
    return None


def ask_interpreter(path: Path, stages: tuple[str, ...], timeout_s: float) -> tuple[dict[str, Any], str | None]:
    """The merged answers of the probe script's `stages`, and a sentence where it failed.

    Stages answered before a failure count: an interpreter that dies while importing transformers has already reported
    its versions.
    """
    problem = None
    try:
        command = [str(path), "-", *stages]  # the versions come at once, only imports take longer
        script = PROBE_SCRIPT.read_text("utf-8")
        output, code = run_interpreter(command, script, timeout_s, cwd="/", silent_s=VERSIONS_TIMEOUT_S)
        if code < 0:
            problem = f"{path} was ended by {signal.Signals(-code).name} while its packages were read."
        elif code > 0:
            problem = f"{path} exited with code {code} while its packages were read: is it Python 3.8 or newer?"
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode(errors="replace")
        problem = f"{path} did not answer within {error.timeout:.0f} s and was stopped; is its disk slow?"
    except EndlessOutputError:
        return {}, f"{path} printed endless output and was stopped: it does not seem to be Python 3.8 or newer."
    except FileNotFoundError:
        return {}, f"{path} does not exist: choose another interpreter."
    except PermissionError:
        return {}, f"You have no permission to run {path}."
    except OSError as error:
        return {}, f"{path} cannot run on this machine ({error.strerror})."
    answer: dict[str, Any] = {}
    for line in marked_lines(output, MARK):
        answer.update(json.loads(line))
    if problem is None and not answer:
        problem = f"{path} did not answer: it does not seem to be Python 3.8 or newer."
    return answer, problem


def run_interpreter(
    command: list[str], stdin: str, timeout_s: float, *, cwd: str | None = None, silent_s: float | None = None
) -> tuple[str, int]:
    """Standard output and exit code of `command`, which sees no GPU.

    Raises `OSError` where it cannot be started or prints without end, and `TimeoutExpired` with the output so far: also
    where there is none after `silent_s`.
    """
    # Two deadlines: a program that has not printed anything after `silent_s` is none that answers, one that has begun
    # may take as long as an import of torch from a cold disk.
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = run_command(
        command, timeout_s, silent_s=silent_s, stdin=stdin.encode(), env=env, cwd=cwd, max_bytes=MAX_OUTPUT_BYTES
    )
    return done.output.decode(errors="replace"), done.exit_code


def marked_lines(output: str, mark: str) -> list[str]:
    """The lines of `output` that begin with `mark`, without it; libraries may print others."""
    return [line.removeprefix(mark) for line in output.splitlines() if line.startswith(mark)]


def _cache_entry(path: Path, folder: Path | None) -> ProbeCacheEntry:
    return probe_cache_entry("interpreters", [str(path), sorted(PACKAGES)], folder)
