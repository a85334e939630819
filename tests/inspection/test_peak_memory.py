"""What allocations are for, by the examples of the table, and what is said of recorded peaks.

The files in `recorded_peaks` are reductions of snapshots in public repositories, recorded on real GPUs: a full step of
kkaitlyn111/cs336-a2-systems, its forward pass in mixed precision, and a notebook of cranberrii/ftcourse. Their paths
were shortened.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes.allocator import FakeAllocator
from tuner_tui.core.files import read_data_file
from tuner_tui.inspection.peak_memory import TABLE, RecordedPeak, RecordedStack, classify_allocation, parse_peak
from tuner_tui.inspection.process_dump import StackFrame
from tuner_tui.observer.site._tuner_observer.allocator_history import reduce_snapshot

GIB = 2**30
DOCUMENT = read_data_file(TABLE)
KEYS = {"part", "kind", "file", "function", "module", "within", "outermost", "example", "counter_example"}
MIB = 2**20
LOSS = ("cross_entropy /v/lib/python3.11/site-packages/torch/nn/functional.py:3", "main /u/train.py:88")
LAYER = ("relu /v/lib/python3.11/site-packages/torch/nn/functional.py:1", "forward /u/net.py:7", "main /u/train.py:40")


def classified(calls: list[str]) -> tuple[str, str]:
    """What calls written as `function file`, the innermost first, are for."""
    module = calls[0].removeprefix("module ") if calls[0].startswith("module ") else ""
    frames = [StackFrame(file, 7, name) for name, _, file in (call.partition(" ") for call in calls[bool(module) :])]
    return classify_allocation(RecordedStack(1, module=module), tuple(frames))


@pytest.mark.parametrize("rule", DOCUMENT["rules"], ids=lambda rule: rule["kind"])
def test_examples_of_the_table(rule: dict[str, Any]) -> None:
    assert set(rule) <= KEYS
    assert classified(rule["example"]) == (rule["part"], rule["kind"])
    assert classified(rule["counter_example"]) != (rule["part"], rule["kind"])


def test_each_change_is_for_a_kind() -> None:
    kinds = {rule["kind"] for rule in DOCUMENT["rules"]} | {"gradients"}
    assert set(DOCUMENT["changes"]) <= kinds
    assert all(0 < row["share"] <= 1 and row["source"] for row in DOCUMENT["changes"].values())


def peak_of(gpu: FakeAllocator, **options: Any) -> RecordedPeak:
    return parse_peak(json.dumps(reduce_snapshot(gpu.snapshot(), **options)).encode())


def test_the_largest_and_the_change_that_removes_it() -> None:
    gpu = FakeAllocator()
    weights = gpu.allocate(2 * GIB)
    gpu.allocate(GIB, LAYER, "net.*.mlp")
    gpu.fail(5 * GIB, LOSS)
    gpu.allocate(5 * GIB, LOSS, "lm_head")
    peak = peak_of(gpu, owners={weights: "weights"})
    assert peak.sentence == "largest at the peak: lm_head logits and loss, 5.0 GiB, train.py:88 (forward)"
    assert peak.change is not None
    assert (peak.change.saved_bytes, peak.change.change[:20]) == (5 * GIB // 2, "half the micro batch")
    assert peak.breakdown.by(lambda part: part.step_part) == {"forward": 6 * GIB, "backward": 2 * GIB}
    assert peak.breakdown.by(lambda part: part.line)["net.py:7"] == GIB
    failed = peak_of(gpu, owners={weights: "weights"}, failed=True)
    assert failed.sentence == "largest at the peak: weights, 2.0 GiB, backward"
    assert failed.breakdown.parts[0].kind == "asked for and refused"


def growing(steps: int, kept: bool) -> RecordedPeak:
    """A loop that keeps what its loss was computed from, or does not."""
    gpu, ends = FakeAllocator(), list[float]()
    gpu.allocate(
        100 * MIB, ("convert /v/lib/python3.11/site-packages/torch/nn/modules/module.py:1", "main /u/train.py:9")
    )
    for _ in range(steps):
        address = gpu.allocate(12 * MIB, LAYER)
        if not kept:
            gpu.free(address)
        ends.append(gpu.now_us + 0.5)
    gpu.allocate(12 * MIB, LAYER)
    return peak_of(gpu, steps_us=ends)


def test_a_line_that_grows() -> None:
    peak = growing(20, kept=True)
    assert peak.growth is not None
    assert peak.growth.sentence == "grows by 12.0 MiB each step at net.py:7"
    assert peak.change is not None
    assert peak.change.change == "`.item()` or `.detach()` for what is kept: grows by 12.0 MiB each step at net.py:7"
    assert peak.change.saved_bytes == 240 * MIB


@pytest.mark.parametrize("peak", [growing(20, kept=False), growing(2, kept=True)])
def test_what_does_not_grow(peak: RecordedPeak) -> None:
    assert peak.growth is None


def test_weights_are_kept_and_do_not_grow() -> None:
    stack = RecordedStack(GIB, (0,), owner="optimizer states", earlier_bytes=GIB, earlier_steps=9)
    assert RecordedPeak(GIB, GIB, (stack,), (("/u/opt.py", 3, "step"),)).growth is None


def test_gaps_and_other_processes_are_named_apart() -> None:
    peak = RecordedPeak(
        6 * GIB, 8 * GIB, (RecordedStack(GIB, owner="refused"),), (), free_bytes=3 * GIB, total_bytes=16 * GIB
    )
    assert (peak.fragmented_bytes, peak.outside_bytes) == (3 * GIB, 5 * GIB)
    assert replace(peak, free_bytes=None).outside_bytes is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"peak_bytes": 0, "reserved_bytes": 1, "frames": [], "stacks": []}',
        b'{"peak_bytes": 1, "reserved_bytes": 1, "frames": [], "stacks": [{"bytes": 1, "frames": [4]}]}',
    ],
)
def test_a_broken_file_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_peak(content)


@pytest.mark.parametrize(
    ("name", "peak_bytes", "parts", "sentence", "change"),
    [
        (
            "full_step_own_adamw", 54_868_051_972,
            {"optimizer": 0.50, "backward": 0.25, "before the recording": 0.25},
            "largest at the peak: temporary in backward, 12.7 GiB, backward", "half the micro batch",
        ),
        (
            "forward_mixed_precision", 23_873_313_792, {"before the recording": 0.57, "forward": 0.43},
            "largest at the peak: activations, 7.4 GiB, transformer.py:22 (forward)", "gradient checkpointing",
        ),
        (
            "qlora_notebook", 5_876_132_840, {"forward": 0.77, "before the recording": 0.19, "backward": 0.04},
            "largest at the peak: activations, 4.1 GiB, 3105878423.py:21 (forward)", "gradient checkpointing",
        ),
    ],
)  # fmt: skip
def test_recorded_peaks(name: str, peak_bytes: int, parts: dict[str, float], sentence: str, change: str) -> None:
    content = (Path(__file__).parent / "recorded_peaks" / f"{name}.json").read_bytes()
    peak = parse_peak(content)
    assert len(content) < 16_000
    assert (peak.peak_bytes, peak.breakdown.total) == (peak_bytes, peak_bytes)
    shares = {part: size / peak_bytes for part, size in peak.breakdown.by(lambda part: part.step_part).items()}
    assert {part: share for part, share in shares.items() if share > 0.01} == pytest.approx(parts, abs=0.01)
    assert peak.sentence == sentence
    assert peak.change is not None
    assert peak.change.change == change
