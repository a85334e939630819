from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tuner_tui.core.units import GIB
from tuner_tui.hardware.capabilities import supports
from tuner_tui.hardware.known_gpus import UnknownGpuError, known_gpu, known_gpus, parse_planned_gpus

EXAMPLES = yaml.load(Path(__file__).with_name("known_gpus.yaml").read_text(), yaml.CSafeLoader)


@pytest.mark.parametrize(("driver_name", "name", "capability", "memory_gib"), EXAMPLES["names as drivers write them"])
def test_names_as_drivers_write_them(driver_name: str, name: str, capability: list[int], memory_gib: int | None):
    gpu = known_gpu(driver_name)
    assert gpu is not None
    assert (gpu.name, gpu.capability) == (name, tuple(capability))
    assert gpu.memory_bytes == (None if memory_gib is None else memory_gib * GIB)


@pytest.mark.parametrize("stranger", ["NVIDIA A1000", "NVIDIA A10M", "AMD Instinct MI300X", "Quadro M4000", ""])
def test_a_stranger_is_not_guessed(stranger: str):
    assert known_gpu(stranger) is None


FIELD_NOTES = {
    "K80": (False, False, False), "V100": (True, False, False), "T4": (True, False, False), "A100": (True, True, True),
    "A10": (True, True, True), "RTX 3070": (True, True, True), "RTX 3090": (True, True, True),
    "RTX 4090": (True, True, True),
}  # fmt: skip


@pytest.mark.parametrize(("name", "precisions"), FIELD_NOTES.items())
def test_precisions_are_those_the_field_notes_give(name: str, precisions: tuple[bool, bool, bool]):
    gpus = parse_planned_gpus(name)[0].gpus
    assert tuple(supports(gpus, feature) for feature in ("fp16", "bf16", "tf32")) == precisions


def test_every_name_is_there_once():
    assert len({gpu.name for gpu in known_gpus()}) == len(known_gpus())


@pytest.mark.parametrize(
    ("text", "memory_gib", "capability"),
    [
        ("T4", [16], (7, 5)),
        ("3090", [24], (8, 6)),
        ("NVIDIA GeForce RTX 3090", [24], (8, 6)),
        ("A100", [40, 80], (8, 0)),
        ("a100-80gb", [80], (8, 0)),
        ("A100 40", [40], (8, 0)),
        ("4070 Ti SUPER", [16], (8, 9)),
        ("24GiB", [24], None),
        ("GTX 1060", [3, 6], (6, 1)),
        ("RTX 2060", [6, 12], (7, 5)),
        ("GB10", None, None),
        ("A10G", [24], (8, 6)),
        ("4070Ti", [12], (8, 9)),
        ("rtx6000ada", [48], (8, 9)),
        ("Quadro RTX 8000", [48], (7, 5)),
        ("Tesla V100-SXM2-16GB", [16], (7, 0)),
        ("NVIDIA H100 80GB HBM3", [80], (9, 0)),
        ("H100-NVL", [94], (9, 0)),
        ("GH200", [96, 144], (9, 0)),
        ("RTX PRO 6000 Server Edition", [96], (12, 0)),
        ("A100 80GB PCIe", [80], (8, 0)),
        ("B300", [288], (10, 3)),
    ],
)
def test_a_name_or_a_size(text: str, memory_gib: list[int] | None, capability: tuple[int, int] | None) -> None:
    if memory_gib is None:
        with pytest.raises(UnknownGpuError, match="give the size"):
            parse_planned_gpus(text)
        return
    planned = parse_planned_gpus(text)
    assert [gpus.gpus[0].memory_total_bytes for gpus in planned] == [gib * GIB for gib in memory_gib]
    assert {gpus.gpus[0].capability for gpus in planned} == {capability}


def test_a_list_with_counts() -> None:
    t4, eight = parse_planned_gpus("T4, 8xH200")
    assert (len(t4.gpus), len(eight.gpus)) == (1, 8)
    assert [gpu.index for gpu in eight.gpus] == list(range(8))
    assert eight.label == "8 × H200 141 GiB"
    assert [len(gpus.gpus) for gpus in parse_planned_gpus("T4, cpu")] == [1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("309O", "did you mean RTX 3090"),
        ("", "Name a GPU"),
        ("999xT4", "1 to 64"),
        ("A100-16GB", "not a known NVIDIA GPU"),
        # A number that differs is another GPU.
        ("MI300X", "not an NVIDIA GPU"),
        ("RX 7900 XTX", "not an NVIDIA GPU"),
        ("GTX 970", "not a known NVIDIA GPU; a memory size"),
    ],
)
def test_what_is_not_a_gpu(text: str, message: str) -> None:
    with pytest.raises(UnknownGpuError, match=message):
        parse_planned_gpus(text)


@pytest.mark.parametrize(("name", "gib"), [("K80", 12), ("V100", 16), ("A100", 40)])
def test_of_the_sizes_of_a_gpu_the_smallest_comes_first(name: str, gib: int) -> None:
    assert next(gpu for gpu in known_gpus() if gpu.name == name).memory_gib[0] == gib
