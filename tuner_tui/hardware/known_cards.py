"""Memory and compute capability of cards by name, for drivers that do not report them.

Memory in GiB as sold (several sizes where one name is sold with several, none where no source was at hand). Sources:
three digits are the field notes that the shipped presets come from. `list` is NVIDIA's list of compute capabilities
(https://developer.nvidia.com/cuda-gpus and https://developer.nvidia.com/cuda-legacy-gpus), with the memory by
https://github.com/huggingface/huggingface.js, packages/tasks/src/hardware-nvidia.ts, whose capabilities are the same;
`mig` is NVIDIA's MIG User Guide, supported GPUs; `runpod` https://docs.runpod.io/references/gpu-types for the memory;
`wikipedia` its list of NVIDIA's GPUs for the sizes of the P100.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuner_tui.core.units import GIB


@dataclass(frozen=True, slots=True)
class KnownCard:
    """One card; `name` as the driver reports it, without maker and brand."""

    name: str
    memory_gib: tuple[int, ...]
    architecture: str
    capability: tuple[int, int]
    source: str

    @property
    def memory_bytes(self) -> int | None:
        """The memory; None where the name is sold with several sizes."""
        return self.memory_gib[0] * GIB if len(self.memory_gib) == 1 else None


LIST, MIG = "list", "mig"
CARDS = (
    KnownCard("K80", (12,), "Kepler", (3, 7), "004"),
    KnownCard("P100", (12, 16), "Pascal", (6, 0), "list, wikipedia"),
    KnownCard("P40", (24,), "Pascal", (6, 1), LIST),
    KnownCard("GTX 1080 Ti", (11,), "Pascal", (6, 1), LIST),
    KnownCard("V100", (16, 32), "Volta", (7, 0), "001, 004"),
    KnownCard("T4", (16,), "Turing", (7, 5), "001, 004"),
    KnownCard("RTX 2080 Ti", (11,), "Turing", (7, 5), LIST),
    KnownCard("TITAN RTX", (24,), "Turing", (7, 5), LIST),
    KnownCard("A100", (40, 80), "Ampere", (8, 0), "001, 004"),
    KnownCard("A30", (24,), "Ampere", (8, 0), MIG),
    KnownCard("A10", (24,), "Ampere", (8, 6), "001"),
    KnownCard("A40", (48,), "Ampere", (8, 6), LIST),
    KnownCard("RTX A4000", (16,), "Ampere", (8, 6), LIST),
    KnownCard("RTX A5000", (24,), "Ampere", (8, 6), "list, runpod"),
    KnownCard("RTX A6000", (48,), "Ampere", (8, 6), LIST),
    KnownCard("RTX 3060", (8, 12), "Ampere", (8, 6), LIST),
    KnownCard("RTX 3060 Ti", (8,), "Ampere", (8, 6), LIST),
    KnownCard("RTX 3070", (8,), "Ampere", (8, 6), "000, 002"),
    KnownCard("RTX 3070 Ti", (8,), "Ampere", (8, 6), LIST),
    KnownCard("RTX 3080", (10, 12), "Ampere", (8, 6), LIST),
    KnownCard("RTX 3080 Ti", (12,), "Ampere", (8, 6), LIST),
    KnownCard("RTX 3090", (24,), "Ampere", (8, 6), "003, 004"),
    KnownCard("RTX 3090 Ti", (24,), "Ampere", (8, 6), LIST),
    KnownCard("L4", (24,), "Ada", (8, 9), LIST),
    KnownCard("L40", (48,), "Ada", (8, 9), LIST),
    KnownCard("L40S", (48,), "Ada", (8, 9), LIST),
    KnownCard("RTX 6000 Ada Generation", (48,), "Ada", (8, 9), LIST),
    KnownCard("RTX 4060", (8,), "Ada", (8, 9), LIST),
    KnownCard("RTX 4060 Ti", (8, 16), "Ada", (8, 9), LIST),
    KnownCard("RTX 4070", (12,), "Ada", (8, 9), LIST),
    KnownCard("RTX 4070 SUPER", (12,), "Ada", (8, 9), LIST),
    KnownCard("RTX 4070 Ti", (12,), "Ada", (8, 9), LIST),
    KnownCard("RTX 4070 Ti SUPER", (16,), "Ada", (8, 9), LIST),
    KnownCard("RTX 4080", (16,), "Ada", (8, 9), LIST),
    KnownCard("RTX 4080 SUPER", (16,), "Ada", (8, 9), LIST),
    KnownCard("RTX 4090", (24,), "Ada", (8, 9), "004"),
    KnownCard("H100", (80, 94), "Hopper", (9, 0), MIG),
    KnownCard("H200", (141,), "Hopper", (9, 0), MIG),
    KnownCard("GH200", (), "Hopper", (9, 0), LIST),
    KnownCard("B200", (180,), "Blackwell", (10, 0), MIG),
    KnownCard("GB200", (186,), "Blackwell", (10, 0), MIG),
    KnownCard("RTX 5050", (8,), "Blackwell", (12, 0), LIST),
    KnownCard("RTX 5060", (8,), "Blackwell", (12, 0), LIST),
    KnownCard("RTX 5060 Ti", (8, 16), "Blackwell", (12, 0), LIST),
    KnownCard("RTX 5070", (12,), "Blackwell", (12, 0), LIST),
    KnownCard("RTX 5070 Ti", (16,), "Blackwell", (12, 0), LIST),
    KnownCard("RTX 5080", (16,), "Blackwell", (12, 0), LIST),
    KnownCard("RTX 5090", (32,), "Blackwell", (12, 0), LIST),
    KnownCard("RTX PRO 6000 Blackwell", (96,), "Blackwell", (12, 0), MIG),
    KnownCard("GB10", (), "Blackwell", (12, 1), LIST),
)


def known_card(driver_name: str) -> KnownCard | None:
    """The card with the longest name that `driver_name` contains as whole words; None for an unknown card.

    A laptop's card shares name and generation with the desktop card, but not its memory.
    """
    found = [card for card in CARDS if re.search(rf"\b{re.escape(card.name)}(?![\w])", driver_name, re.IGNORECASE)]
    card = max(found, key=lambda card: len(card.name), default=None)
    if card is not None and "laptop" in driver_name.lower():
        return KnownCard(card.name, (), card.architecture, card.capability, card.source)
    return card
