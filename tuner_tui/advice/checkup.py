"""What could go wrong before a training starts: the box, the Python that trains, the settings; each with advice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tuner_tui.advice.recommending.loading import SMALL_SHM_BYTES
from tuner_tui.advice.recommending.target import GIB, cards_of, held_bytes
from tuner_tui.advice.thresholds import DISK_FREE_BYTES
from tuner_tui.hardware.interpreter.compatibility import find_incompatibilities
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.hardware.inventory import GpuProblemKind, Inventory, Space
from tuner_tui.settings.fields import format_value
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.rules.check import find_problems

State = Literal["good", "warning", "wrong"]
LEAST_RAM_BYTES = 4 * GIB
NEEDED = ("torch", "transformers", "accelerate")
NO_CARD = (GpuProblemKind.NO_LIBRARY, GpuProblemKind.NO_DRIVER, GpuProblemKind.NO_GPU)
"""A box without a card is no mistake: trainings run on its processor."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `wrong` stops a training or makes it something else than asked for."""

    name: str
    state: State
    sentence: str
    advice: str = ""


def checkup(
    inventory: Inventory, interpreter: Interpreter, settings: Settings, job: BuiltinJob | CommandJob
) -> tuple[Check, ...]:
    """Everything that was looked at, in the order in which it matters."""
    return (
        *python(interpreter, job),
        *gpus(inventory),
        *fits(inventory, interpreter),
        *cores(inventory),
        memory(inventory),
        *shared_memory(inventory.shm),
        *disk(inventory.disk),
        *settings_checks(inventory, interpreter, settings, job),
    )


def python(interpreter: Interpreter, job: BuiltinJob | CommandJob) -> Iterator[Check]:
    """The Python that trains, and the packages it needs."""
    has = interpreter.packages
    if interpreter.problem is not None:
        yield Check("Python", "wrong", interpreter.problem)
    missing = missing_packages(interpreter, job)
    if missing and interpreter.problem is None:
        sentence = f"{interpreter.path} has no {' and no '.join(missing)}."
        yield Check("Python", "wrong", sentence, f"{interpreter.path} -m pip install {' '.join(missing)}")
    elif not missing:
        versions = " · ".join(f"{name} {has[name]}" for name in NEEDED if name in has)
        yield Check("Python", "good", f"Python {interpreter.python_version} with {versions}.")


def missing_packages(interpreter: Interpreter, job: BuiltinJob | CommandJob) -> tuple[str, ...]:
    """What the training needs and the interpreter does not have."""
    needed = NEEDED if isinstance(job, BuiltinJob) else ("torch",)
    return tuple(name for name in needed if name not in interpreter.packages)


def gpus(inventory: Inventory) -> Iterator[Check]:
    """The cards: whether they answer, which a training sees, who else is on them."""
    for problem in inventory.problems:
        none = problem.kind in NO_CARD
        yield Check("GPU", "warning" if none else "wrong", problem.sentence, problem.advice)
    visible = inventory.cuda_visible_devices
    cards = cards_of(inventory)
    if inventory.gpus and not cards:
        sentence = f"CUDA_VISIBLE_DEVICES={visible} hides every card: a training started here runs on the CPU."
        yield Check("GPU", "wrong", sentence, "Unset it, or set it to the numbers of the cards to use.")
    elif cards:
        names = ", ".join(f"{card.index} {card.name}" for card in cards)
        rest = f" ({len(inventory.gpus) - len(cards)} hidden)" if len(cards) < len(inventory.gpus) else ""
        yield Check("GPU", "good", f"A training sees {names}{rest}.")
    if len({card.name for card in cards}) > 1:
        advice = f"CUDA_VISIBLE_DEVICES={cards[0].index} takes the first alone."
        yield Check("GPU", "warning", "The cards differ: the weakest sets the pace and the precision.", advice)
    for card in cards:
        if held := held_bytes(card):
            sentence = f"Other programs hold {held / GIB:.1f} GiB of GPU {card.index}."
            yield Check("GPU", "warning", sentence, "Close other notebooks; `tuner-tui detect` names the processes.")


def fits(inventory: Inventory, interpreter: Interpreter) -> Iterator[Check]:
    """Whether the interpreter's torch runs on the cards."""
    found = find_incompatibilities(inventory, interpreter)
    yield from (Check("torch and GPU", "wrong", one.sentence, one.advice) for one in found)
    if inventory.gpus and "torch" in interpreter.packages and not found:
        yield Check("torch and GPU", "good", "This torch has code for every card, and the driver runs its CUDA.")


def cores(inventory: Inventory) -> Iterator[Check]:
    """The cores that affinity and cgroup leave."""
    cpu = inventory.cpu
    usable = "1 core is" if cpu.usable_cores == 1 else f"{cpu.usable_cores} cores are"
    if cpu.usable_cores < cpu.logical_cores:
        sentence = f"{usable} usable of {cpu.logical_cores}: affinity or a cgroup quota takes the rest."
        advice = "os.cpu_count() does not know: rules such as cpu_count() - 2 start too many loader workers."
        yield Check("Cores", "warning", sentence, advice)
    elif cpu.usable_cores <= 2 and inventory.gpus:
        sentence = f"{usable} usable: preparing batches competes with the training."
        yield Check("Cores", "warning", sentence, "Tokenise ahead; more cores feed the GPU better.")
    else:
        yield Check("Cores", "good", f"{usable} usable.")


def memory(inventory: Inventory) -> Check:
    """Host memory."""
    usable = inventory.memory.usable_bytes
    available = inventory.memory.available_bytes
    free = usable if available is None else min(usable, available)
    sentence = f"{free / GIB:.1f} GiB of memory are available."
    if free < LEAST_RAM_BYTES:
        advice = "Loading a model takes its weights in host memory first, and each loader worker some hundred MB."
        return Check("Memory", "warning", sentence, advice)
    return Check("Memory", "good", sentence)


def shared_memory(shm: Space | None) -> Iterator[Check]:
    """Room for the batches that loader workers hand over."""
    if shm is None:
        return
    sentence = f"{shm.free_bytes / 2**20:,.0f} MiB are free in /dev/shm."
    if shm.free_bytes >= SMALL_SHM_BYTES:
        yield Check("Shared memory", "good", sentence)
        return
    advice = "Loader workers pass batches through it and die of a bus error when it is full: docker run --shm-size=8g."
    yield Check("Shared memory", "warning", sentence, advice)


def disk(space: Space | None) -> Iterator[Check]:
    """Room for checkpoints."""
    if space is None:
        return
    sentence = f"{space.free_bytes / GIB:,.1f} GiB are free in {space.path}, where runs are kept."
    if space.free_bytes >= DISK_FREE_BYTES.value:
        yield Check("Disk", "good", sentence)
        return
    advice = "A checkpoint takes about three times the weights; TUNER_STATE_DIR puts runs elsewhere."
    yield Check("Disk", "wrong", sentence, advice)


def settings_checks(
    inventory: Inventory, interpreter: Interpreter, settings: Settings, job: BuiltinJob | CommandJob
) -> Iterator[Check]:
    """Whether the settings fit together, and fit the box."""
    cores_here = inventory.cpu.usable_cores
    found = find_problems(settings, gpus=cards_of(inventory), interpreter=interpreter, job=job, cores=cores_here)
    for problem in found:
        right = " ".join(f"--set {name}={format_value(name, value)}" for name, value in problem.right.items())
        state: State = "wrong" if problem.severity == "error" else "warning"
        yield Check("Settings", state, problem.sentence, right)
    if not found:
        yield Check("Settings", "good", "The settings fit together, and fit this box.")
