"""Cards that are not in this machine, to plan a training for them: `T4`, `2x3090`, `A100-80GB`, `24GiB`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tuner_tui.core.units import GIB, format_size, parse_size
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Gpu, Inventory, abilities
from tuner_tui.hardware.known_cards import CARDS, KnownCard

MAX_CARDS = 64
ASSUMED_CUDA = "13.0"
"""CUDA version assumed for the interpreter there, whose torch may be a CPU build here."""
_COUNT = re.compile(r"(?:(\d{1,3}) ?[x×*] ?)?(.+)", re.IGNORECASE)
_SIZED = re.compile(r"(.+?)[- ]?(\d{1,3}) ?(?:gi?b?)?", re.IGNORECASE)
_BRANDS = ("nvidia ", "tesla ", "geforce ", "rtx ", "gtx ")


class UnknownCardError(ValueError):
    """A card that is neither known by name nor a size of memory. The message is for the user."""


@dataclass(frozen=True, slots=True)
class PlannedCards:
    """`gpus` of one kind, all unused; `label` is the kind with its count and memory: `2 × RTX 3090 24 GiB`."""

    label: str
    gpus: tuple[Gpu, ...]


def parse_cards(text: str) -> tuple[PlannedCards, ...]:
    """The cards that a comma-separated list names, in its order. Raises `UnknownCardError`.

    A name that is sold with several sizes of memory stands for each of them, unless it carries one (`A100-40GB`).
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if not entries:
        raise UnknownCardError("Name a GPU, such as T4, 3090, A100-80GB or 24GiB.")
    return tuple(found for entry in entries for found in _parse_entry(entry))


def _parse_entry(entry: str) -> Iterator[PlannedCards]:
    match = _COUNT.fullmatch(entry)
    assert match is not None
    count, name = int(match[1] or 1), match[2]
    if not 1 <= count <= MAX_CARDS:
        raise UnknownCardError(f"{entry!r} names {count} GPUs; 1 to {MAX_CARDS} can be planned.")
    if name[0].isdigit() and re.search(r"[a-z]$", name, re.IGNORECASE) and (size := parse_size(name)):
        yield _planned(count, "card", None, size)
        return
    card, sizes = _find(name)
    if not sizes:
        raise UnknownCardError(f"{card.name} is sold with different memory sizes; give the size, such as 64GiB.")
    for gib in sizes:
        yield _planned(count, card.name, card, gib * GIB)


def _find(name: str) -> tuple[KnownCard, tuple[int, ...]]:
    """The card and the sizes of memory in GiB that `name` can mean."""
    wanted = _short(name)
    for card in CARDS:
        if _short(card.name) == wanted:
            return card, card.memory_gib
    sized = _SIZED.fullmatch(wanted)
    for card in CARDS:
        if sized is not None and _short(card.name) == sized[1] and int(sized[2]) in card.memory_gib:
            return card, (int(sized[2]),)
    near = difflib.get_close_matches(wanted, [_short(card.name) for card in CARDS], n=1)
    hint = f"; did you mean {near[0].upper()}?" if near else "; a memory size such as 24GiB also works."
    raise UnknownCardError(f"{name!r} is not a known GPU{hint}")


def _short(name: str) -> str:
    """The name in lower case without maker, brand and separators: `nvidia-rtx-3090` is `3090`."""
    short = " ".join(name.lower().replace("-", " ").replace("_", " ").split())
    for brand in _BRANDS:
        short = short.removeprefix(brand)
    return short


def _planned(count: int, name: str, known: KnownCard | None, memory_bytes: int) -> PlannedCards:
    capability = None if known is None else known.capability
    architecture = None if known is None else known.architecture
    gpus = tuple(
        Gpu(
            index,
            name,
            architecture=architecture,
            capability=capability,
            memory_total_bytes=memory_bytes,
            abilities=abilities(capability, architecture),
        )
        for index in range(count)
    )
    label = f"{name} {format_size(memory_bytes)}" if known is not None else f"{format_size(memory_bytes)} GPU"
    return PlannedCards(f"{count} × {label}" if count > 1 else label, gpus)


def planned_inventory(inventory: Inventory, cards: PlannedCards) -> Inventory:
    """This machine with `cards` in place of its own, all visible and unused; processor and memory stay."""
    return replace(inventory, gpus=cards.gpus, problems=(), cuda_visible_devices=None)


def planned_interpreter(interpreter: Interpreter) -> Interpreter:
    """The interpreter as if its torch had a CUDA build with code for any card."""
    packages = {name: version.partition("+cpu")[0] for name, version in interpreter.packages.items()}
    return replace(interpreter, packages=packages, torch_cuda=interpreter.torch_cuda or ASSUMED_CUDA, torch_archs=())
