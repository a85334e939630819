"""Checks of one training before it starts: what its file needs and this machine does not have, each with the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner_tui.advice.preflight import PreflightCheck
from tuner_tui.core.units import GIB
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.hardware.interpreter.probe_script import DISTRIBUTIONS
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.memory.model_shape import ModelShape, count_parameters, known_shape
from tuner_tui.settings.dialects.dialect import Dialect
from tuner_tui.settings.dialects.requirements import NamedPath, named_paths, required_packages
from tuner_tui.settings.job import BuiltinJob, CommandJob, modelled_job
from tuner_tui.settings.model import Resolved, Settings

INSTALL: Mapping[str, str] = {"flash-attn": "flash-attn --no-build-isolation", "tensorboard": "tensorboard"}
"""What to give pip for a package, where the name alone does not build."""
TOOL_PACKAGES: Mapping[str, str] = {
    "axolotl": "axolotl", "llamafactory-cli": "llamafactory", "swift": "ms-swift", "trl": "trl", "litgpt": "litgpt",
    "tune": "torchtune", "accelerate": "accelerate", "deepspeed": "deepspeed", "torchrun": "torch",
}  # fmt: skip
"""Program to the package that brings it."""
OUTPUT_KEYS = ("output_dir", "out_dir", "trainer.default_root_dir")
OPTIMIZER_STATE_BYTES = 8
"""Bytes a trained parameter of the optimizer's state in a checkpoint: the two moments of Adam in fp32."""


@dataclass(frozen=True, slots=True)
class FileSystem:
    """What the checks ask the machine. Paths are relative to the folder that the training starts in."""

    exists: Callable[[str], bool]
    can_write: Callable[[str], bool]
    free_bytes: Callable[[str], int | None]
    find_program: Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class TrainingFile:
    """A tool's file: its path and values, the settings and the job that it brings, and its dialect."""

    path: Path
    values: Mapping[str, Any]
    resolved: Resolved
    job: BuiltinJob | CommandJob
    dialect: Dialect | None = None


def file_checks(
    file: TrainingFile, inventory: Inventory, interpreter: Interpreter, files: FileSystem, state_folder: str
) -> tuple[PreflightCheck, ...]:
    """The checks of one file, in the order in which a training would fail."""
    modelled = modelled_job(file.job)
    shape = None if modelled is None else known_shape(modelled.model, modelled.task)
    return (
        *program_checks(file.job, files),
        *package_checks(file, interpreter),
        *path_checks(file, files),
        *length_checks(file.resolved, shape),
        *checkpoint_checks(file, shape, files),
        *state_checks(state_folder, files),
        *logout_checks(inventory),
    )


def program_checks(job: BuiltinJob | CommandJob, files: FileSystem) -> Iterator[PreflightCheck]:
    """Whether the job's program, and the script that it starts, are there."""
    if isinstance(job, BuiltinJob):
        return
    scripts = [word for word in job.command[1:] if word.endswith(".py") and not word.startswith("-")]
    for script in scripts[:1]:
        if not files.exists(script):
            advice = "Start from the folder of the checkout, or give the command with your script after --."
            yield PreflightCheck("Program", "wrong", f"The script {script} is not there.", advice)
    if "/" in job.command[0] or files.find_program(job.command[0]) is not None:
        return
    program = job.command[0]
    package = TOOL_PACKAGES.get(program)
    advice = f"pip install {package}" if package else f"Add the folder of {program} to PATH."
    yield PreflightCheck("Program", "wrong", f"{program} was not found on PATH.", advice)


def package_checks(file: TrainingFile, interpreter: Interpreter) -> Iterator[PreflightCheck]:
    """Whether the interpreter has the packages that the file asks for."""
    if "torch" not in interpreter.packages:
        return  # nothing is known of it, which is a check of its own
    needed = {one.package: one.asked_by for one in required_packages(file.values) if one.package in DISTRIBUTIONS}
    if file.resolved.settings.peft_method != "none":
        needed.setdefault("peft", f"peft_method {file.resolved.settings.peft_method}")
    missing = {name: asked for name, asked in needed.items() if name not in interpreter.packages}
    for name, asked in missing.items():
        install = f"{interpreter.path} -m pip install {INSTALL.get(name, name)}"
        yield PreflightCheck(
            "Packages", "wrong", f"{asked} needs {name}, which is not installed in {interpreter.path}.", install
        )
    if needed and not missing:
        yield PreflightCheck("Packages", "good", f"{', '.join(needed)}: installed.")


def path_checks(file: TrainingFile, files: FileSystem) -> Iterator[PreflightCheck]:
    """Whether the files and folders that the file names are there."""
    named = named_paths(file.values, file.dialect)
    missing = [one for one in named if not files.exists(one.path)]
    for one in missing:
        sentence = f"{one.key}: the {one.kind} {one.path} does not exist."
        yield PreflightCheck("Files", "wrong", sentence, _remedy(one, file, files))
    if named and not missing:
        yield PreflightCheck("Files", "good", "All files and folders named in the file exist.")


def _remedy(missing: NamedPath, file: TrainingFile, files: FileSystem) -> str:
    """The folder near the file from which the path would be found, else what to change."""
    for folder in [*file.path.absolute().parents][:4]:
        if not missing.path.startswith(("/", "~")) and files.exists(str(folder / missing.path)):
            return f"Start from the folder the path is relative to: cd {folder}"
    return f"Create it, or change {missing.key} in {file.path}."


def length_checks(resolved: Resolved, shape: ModelShape | None) -> Iterator[PreflightCheck]:
    """Whether samples may be longer than the model's positions."""
    length = resolved.settings.max_length
    if shape is None or "max_length" not in resolved.chosen:
        return
    if length > shape.positions:
        sentence = f"max_length {length:,} is more than the {shape.positions:,} positions of {shape.name}."
        yield PreflightCheck("Length", "wrong", sentence, f"--set max_length={shape.positions}")
    else:
        yield PreflightCheck("Length", "good", f"{shape.name} has positions for {length:,} tokens.")


def checkpoint_checks(file: TrainingFile, shape: ModelShape | None, files: FileSystem) -> Iterator[PreflightCheck]:
    """Whether the checkpoints fit the disk that they are written to."""
    settings, chosen = file.resolved.settings, file.resolved.chosen
    if shape is None or settings.save_strategy == "no":
        return
    folder = next((str(file.values[key]) for key in OUTPUT_KEYS if isinstance(file.values.get(key), str)), ".")
    free = files.free_bytes(folder)
    if free is None:
        return
    size = checkpoint_bytes(shape, settings)
    limit = settings.save_total_limit if "save_total_limit" in chosen else None
    saves = _saves(settings)
    kept = saves if limit is None else limit + 1  # the next is written before the oldest goes
    count = min(saves, kept) if saves is not None and kept is not None else kept or 1
    sentence = (
        f"{count} checkpoint{'s' if count > 1 else ''} of about {size / GIB:.1f} GiB; {free / GIB:,.1f} GiB are free "
        f"for {folder}."
    )
    if size * count <= free:
        yield PreflightCheck("Checkpoints", "good", sentence)
    else:
        keep = max(1, int(free / size) - 1)
        yield PreflightCheck(
            "Checkpoints", "wrong", sentence, f"--set save_total_limit={keep}, or another output folder."
        )


def checkpoint_bytes(shape: ModelShape, settings: Settings) -> float:
    """The size of a checkpoint: what is trained, and the state of its optimizer."""
    counts = count_parameters(shape, settings)
    if settings.peft_method != "none":
        return float(counts.trainable * (4 + OPTIMIZER_STATE_BYTES))
    return float(counts.total * shape.weight_bytes + counts.trainable * OPTIMIZER_STATE_BYTES)


def _saves(settings: Settings) -> int | None:
    """How many checkpoints the training writes; None where that depends on the number of samples."""
    if settings.save_strategy == "steps":
        return None if settings.max_steps is None else max(1, -(-settings.max_steps // settings.save_steps))
    return None if settings.max_steps is not None else max(1, round(settings.num_train_epochs))


def state_checks(folder: str, files: FileSystem) -> Iterator[PreflightCheck]:
    """Whether runs can be recorded."""
    if not files.can_write(folder):
        sentence = f"{folder}, where runs are stored, is not writable."
        yield PreflightCheck("State folder", "wrong", sentence, "export TUNER_STATE_DIR=/another/folder")


def logout_checks(inventory: Inventory) -> Iterator[PreflightCheck]:
    """Whether the training outlives the session."""
    if inventory.logout_warning is not None:
        sentence, _, advice = inventory.logout_warning.partition(" To keep ")
        yield PreflightCheck("Logout", "warning", sentence, f"To keep {advice}" if advice else "")
