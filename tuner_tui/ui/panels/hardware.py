"""The hardware panel: GPUs and their abilities, processor, memory, disk and the Python that trains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from textual.reactive import reactive

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import UNKNOWN, format_size
from tuner_tui.ui.terminal.base_widgets import Canvas
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import BAD, GOOD, WARN, Row, TextSpan, line, shorten

if TYPE_CHECKING:
    from tuner_tui.hardware.interpreter.probe import Interpreter
    from tuner_tui.hardware.inventory import Ability, Gpu, GpuProblem, Inventory


LABEL = 9
ROOM_FOR_REASONS = 60
MOST_IN_USE_ROWS = 2


def hardware_rows(inventory: Inventory | None, interpreter: Interpreter | None, width: int) -> list[Row]:
    """Return all that is known of the machine, problems first."""
    if inventory is None:
        return [Row(line(TextSpan("Reading the hardware …", "dim")))]
    rows = [row for problem in inventory.problems for row in _problem(problem, width)]
    if interpreter is not None:
        rows += _wrong_interpreter(inventory, interpreter, width)
    if inventory.logout_warning is not None:
        rows += [
            Row(line(TextSpan(f"{WARN if i == 0 else ' '} {text}", "warn")))
            for i, text in enumerate(wrap_text(inventory.logout_warning, max(1, width - 2)))
        ]
    for alike in group_equal_gpus(inventory.gpus):
        rows += _gpu(alike, width)
    if inventory.gpus:
        rows.append(
            _labelled(
                "driver",
                f"{inventory.driver_version or UNKNOWN}  CUDA {inventory.cuda_version or UNKNOWN}",
                width,
            )
        )
    return rows + _host(inventory, width) + _interpreter(interpreter, width)


def hardware_summary(inventory: Inventory) -> str:
    """Return the machine in one line, such as `2 × H100 80GB HBM3 · 32 cores · 256 GiB RAM`."""
    cards = [
        f"{f'{len(group)} × ' if len(group) > 1 else ''}{group[0].name.removeprefix('NVIDIA ')}"
        for group in group_equal_gpus(inventory.gpus)
    ]
    cores, memory = inventory.cpu.usable_cores, inventory.memory.usable_bytes
    return " · ".join([*(cards or ["no GPU"]), f"{cores} cores", f"{f.whole_gib(memory)} GiB RAM"])


def group_equal_gpus(gpus: Iterable[Gpu]) -> list[list[Gpu]]:
    """Group GPUs of the same kind, so that eight equal ones take the room of one."""
    groups: dict[tuple[object, ...], list[Gpu]] = {}
    for gpu in gpus:
        key = (gpu.name, gpu.capability, gpu.memory_total_bytes, gpu.power_limit_w, gpu.mig, gpu.abilities)
        groups.setdefault(key, []).append(gpu)
    return list(groups.values())


def _problem(problem: GpuProblem, width: int) -> list[Row]:
    sentence = [
        Row(line(TextSpan(f"{WARN if i == 0 else ' '} {text}", "warn")))
        for i, text in enumerate(wrap_text(problem.sentence, width - 2))
    ]
    return sentence + [Row(line(f"  {text}")) for text in wrap_text(problem.advice, max(1, width - 2))]


def _gpu(cards: Sequence[Gpu], width: int) -> list[Row]:
    first = cards[0]
    numbers = str(first.index) if len(cards) == 1 else f"{len(cards)} ×"
    facts = [
        f"{f.gib(first.memory_total_bytes)} GiB",
        f"cc {f.capability(first.capability)}",
        first.architecture or "",
        f"{f.integer(first.power_limit_w)} W",
        "MIG on" if first.mig else "",
    ]
    rows = [
        Row(line(TextSpan(f"{numbers} ", "strong"), shorten(first.name, width - len(numbers) - 1))),
        Row(line("  ", shorten("  ".join(fact for fact in facts if fact), width - 2))),
    ]
    rows += _abilities(first.abilities, width)
    return rows + _in_use(cards, width)


def _abilities(abilities: Sequence[Ability], width: int) -> list[Row]:
    """Return the abilities of a GPU, with reasons where there is room."""
    if width >= ROOM_FOR_REASONS:
        return [
            Row(
                line(
                    "  ",
                    TextSpan(f"{_mark(one)} {one.name:<7}", "" if one.able else "dim"),
                    TextSpan(shorten(one.reason, width - 11), "dim"),
                )
            )
            for one in abilities
        ]
    marks = "  ".join(f"{_mark(one)}{one.name}" for one in abilities)
    return [Row(line(f"  {text}")) for text in wrap_text(marks, max(8, width - 2))]


def _mark(ability: Ability) -> str:
    return "?" if ability.able is None else GOOD if ability.able else BAD


def _in_use(cards: Sequence[Gpu], width: int) -> list[Row]:
    """Return the processes that use GPU memory: a row per GPU, or one row for many GPUs."""
    used = [card for card in cards if card.processes]
    groups = [used] if len(used) > MOST_IN_USE_ROWS else [[card] for card in used]
    return [Row(line("  ", shorten(_held(group), max(0, width - 2)))) for group in groups]


def _held(cards: Sequence[Gpu]) -> str:
    names = dict.fromkeys(process.command or f"pid {process.pid}" for card in cards for process in card.processes)
    known = [card.memory_used_bytes for card in cards if card.memory_used_bytes is not None]
    whose = f"GPU {cards[0].index}" if len(cards) == 1 else f"{len(cards)} GPUs"
    return f"{whose}: {f.gib(sum(known) if known else None)} GiB used by {', '.join(names)}"


def _labelled(label: str, text: str, width: int) -> Row:
    return Row(line(TextSpan(label.ljust(LABEL), "dim"), shorten(text, max(0, width - LABEL))))


def _host(inventory: Inventory, width: int) -> list[Row]:
    cpu, memory = inventory.cpu, inventory.memory
    rows = [
        _labelled("CPU", cpu.model or UNKNOWN, width),
        _labelled(
            "cores",
            f"{cpu.usable_cores} usable of {cpu.logical_cores} ({f.count(cpu.physical_cores)} physical)",
            width,
        ),
        _labelled("RAM", f"{format_size(memory.usable_bytes)} usable of {format_size(memory.total_bytes)}", width),
    ]
    if inventory.shm is not None:
        rows.append(_labelled("shm", f"{format_size(inventory.shm.free_bytes)} free", width))
    if inventory.disk is not None:
        rows.append(_labelled("disk", f"{format_size(inventory.disk.free_bytes)} free at {inventory.disk.path}", width))
    return rows


def _wrong_interpreter(inventory: Inventory, interpreter: Interpreter, width: int) -> list[Row]:
    """Return a row per problem of the Python that trains; the troubleshooting panel has the details."""
    from tuner_tui.hardware.interpreter.probe import find_incompatibilities  # not needed for the first frame

    wrong = [misfit.sentence for misfit in find_incompatibilities(inventory, interpreter)]
    wrong += [] if interpreter.problem is None else [interpreter.problem]
    return [Row(line(TextSpan(shorten(f"{WARN} {sentence}", width), "warn"))) for sentence in wrong]


def _interpreter(interpreter: Interpreter | None, width: int) -> list[Row]:
    if interpreter is None:
        return [_labelled("Python", "reading its packages …", width)]
    rows = [_labelled("Python", f"{interpreter.python_version or UNKNOWN}  {interpreter.path}", width)]
    versions = "  ".join(f"{name} {version}" for name, version in interpreter.packages.items() if version)
    return rows + [
        _labelled("packages" if i == 0 else "", text, width)
        for i, text in enumerate(wrap_text(versions, max(1, width - LABEL)))
    ]


class HardwarePanel(Canvas, can_focus=True):
    """Shows `inventory` and `interpreter`; None while they are being read."""

    REDRAW_ON = ("inventory", "interpreter")

    inventory: reactive[Inventory | None] = reactive(None, repaint=False)
    interpreter: reactive[Interpreter | None] = reactive(None, repaint=False)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        return hardware_rows(self.inventory, self.interpreter, width)
