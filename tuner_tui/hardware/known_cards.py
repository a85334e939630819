"""GPUs by name (`gpus.yaml`): what a driver does not report, and GPUs to plan for, such as `2x3090` or `A100-80GB`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tuner_tui.core.files import read_data_file
from tuner_tui.core.units import GIB, format_size, parse_size
from tuner_tui.hardware.capabilities import abilities, parse_capability
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Capability, Gpu, Inventory

FILE = Path(__file__).with_name("gpus.yaml")
MAX_CARDS = 64
PROCESSOR = "cpu"
"""Named in place of a GPU for a training without one."""
ASSUMED_CUDA = "13.0"
"""CUDA version assumed for the interpreter there, whose torch may be a CPU build here."""
_COUNT = re.compile(r"(?:(\d{1,3}) ?[x×*] ?)?(.+)", re.IGNORECASE)
_BRANDS = re.compile("^(nvidia|tesla|quadro|geforce|rtx|gtx)+")
_VARIANTS = re.compile(
    r"\b(sxm\d?|pcie|nvl|hbm\d?e?|oam|fhhl|generation|blackwell|(server|workstation) edition|gpus?)\b"
)
"""Words after a name that change neither the generation nor, where one size is sold, the memory."""
_OTHER_MAKERS = re.compile(r"amd|instinct|mi\d{2,3}|radeon|rx ?\d{4}|gaudi|intel|arc|tpu|trainium|apple|ascend")


@dataclass(frozen=True, slots=True)
class KnownCard:
    """One card; `name` as the driver reports it, without maker and brand."""

    name: str
    memory_gib: tuple[int, ...]
    architecture: str
    capability: Capability

    @property
    def memory_bytes(self) -> int | None:
        """The memory; None where the name is sold with several sizes."""
        return self.memory_gib[0] * GIB if len(self.memory_gib) == 1 else None


@cache
def known_cards() -> tuple[KnownCard, ...]:
    """All cards of `gpus.yaml`."""
    return tuple(
        KnownCard(row["name"], tuple(row["memory"]), row["architecture"], parse_capability(row["capability"]))
        for row in read_data_file(FILE)
    )


def known_card(driver_name: str) -> KnownCard | None:
    """The card with the longest name that `driver_name` contains as whole words; None for an unknown card.

    A laptop's card shares name and generation with the desktop card, but not its memory.
    """
    named = [card for card in known_cards() if re.search(rf"(?i)\b{re.escape(card.name)}(?!\w)", driver_name)]
    card = max(named, key=lambda card: len(card.name), default=None)
    return replace(card, memory_gib=()) if card is not None and "laptop" in driver_name.lower() else card


class UnknownCardError(ValueError):
    """A card that is neither known by name nor a size of memory. The message is for the user."""


@dataclass(frozen=True, slots=True)
class PlannedCards:
    """`gpus` of one kind, all unused; `label` is the kind with its count and memory: `2 × RTX 3090 24 GiB`.

    Without GPUs it stands for this machine's processor.
    """

    label: str
    gpus: tuple[Gpu, ...]


def parse_cards(text: str) -> tuple[PlannedCards, ...]:
    """The cards that a comma-separated list names, in its order; `cpu` is none. Raises `UnknownCardError`.

    A name that is sold with several sizes of memory stands for each of them, unless it carries one (`A100-40GB`).
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if not entries:
        raise UnknownCardError("Name a GPU, such as T4, 3090, A100-80GB or 24GiB.")
    return tuple(planned for entry in entries for planned in _parse_entry(entry))


def _parse_entry(entry: str) -> Iterator[PlannedCards]:
    if entry.lower() == PROCESSOR:
        yield PlannedCards("this machine's processor", ())
        return
    match = _COUNT.fullmatch(entry)
    assert match is not None
    count, name = int(match[1] or 1), match[2]
    if not 1 <= count <= MAX_CARDS:
        raise UnknownCardError(f"{entry!r} names {count} GPUs; 1 to {MAX_CARDS} can be planned.")
    try:
        card, sizes = _find(name)
    except UnknownCardError:
        size = parse_size(name) if name[0].isdigit() and name[-1].isalpha() else None
        if not size:
            raise
        yield _planned(count, Gpu(0, "card", memory_total_bytes=size), f"{format_size(size)} GPU")
        return
    if not sizes:
        raise UnknownCardError(f"{card.name} is sold with different memory sizes; give the size, such as 64GiB.")
    for size in (gib * GIB for gib in sizes):
        gpu = Gpu(0, card.name, None, card.architecture, card.capability, size)
        yield _planned(count, gpu, f"{card.name} {format_size(size)}")


def _find(name: str) -> tuple[KnownCard, tuple[int, ...]]:
    """The card and the sizes of memory in GiB that `name` can mean."""
    spellings, wanted = _spellings(), _short_names(name)
    for spelling in wanted:
        if spelling in spellings:
            return spellings[spelling]
    if _OTHER_MAKERS.match(name.lower()):
        raise UnknownCardError(f"{name!r} is not an NVIDIA GPU; other GPUs are not supported.")
    similar = difflib.get_close_matches(wanted[0], spellings, n=3)
    near = next((spelling for spelling in similar if _digits(spelling).startswith(_digits(wanted[0]))), None)
    hint = f"; did you mean {spellings[near][0].name}?" if near else "; a memory size such as 24GiB also works."
    raise UnknownCardError(f"{name!r} is not a known NVIDIA GPU{hint}")


@cache
def _spellings() -> dict[str, tuple[KnownCard, tuple[int, ...]]]:
    """The cards and their memory in GiB by squeezed names, plain (`a100`) and with a size (`a10080gb`)."""
    spellings: dict[str, tuple[KnownCard, tuple[int, ...]]] = {}
    for card in known_cards():
        for short in _short_names(card.name):
            spellings.setdefault(short, (card, card.memory_gib))
            for gib in card.memory_gib:
                spellings |= {f"{short}{gib}{unit}": (card, (gib,)) for unit in ("", "g", "gb", "gib")}
    return spellings


def _digits(name: str) -> str:
    return "".join(re.findall(r"\d", name))


def _short_names(name: str) -> tuple[str, str]:
    """The name in lower case without maker, brand and separators, with its variant and without: `a100sxm4`, `a100`."""
    spaced = re.sub("[^a-z0-9]+", " ", name.lower())
    whole, plain = (_BRANDS.sub("", text.replace(" ", "")) for text in (spaced, _VARIANTS.sub("", spaced)))
    return whole, plain


def _planned(count: int, gpu: Gpu, label: str) -> PlannedCards:
    gpu = replace(gpu, abilities=abilities(gpu))
    gpus = tuple(replace(gpu, index=index) for index in range(count))
    return PlannedCards(f"{count} × {label}" if count > 1 else label, gpus)


def planned_inventory(inventory: Inventory, cards: PlannedCards) -> Inventory:
    """This machine with `cards` in place of its own, all visible and unused; processor and memory stay."""
    return replace(inventory, gpus=cards.gpus, problems=(), cuda_visible_devices=None)


def planned_interpreter(interpreter: Interpreter) -> Interpreter:
    """The interpreter as if its torch had a CUDA build with code for any card."""
    packages = {name: version.partition("+cpu")[0] for name, version in interpreter.packages.items()}
    return replace(interpreter, packages=packages, torch_cuda=interpreter.torch_cuda or ASSUMED_CUDA, torch_archs=())
