"""The numbers in out-of-memory errors, and the run's own memory limit."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import asdict

from tests.advice.crash.outputs import read, read_yaml
from tests.fakes.situations import box, make_gpu
from tuner_tui.advice.crash.findings import crash_findings
from tuner_tui.advice.crash.oom_analysis import FILE, explain_figures, other_processes, read_figures
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.situation import Situation
from tuner_tui.core.units import parse_size
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.inspection.peak_memory import RecordedPeak, RecordedStack
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Exited, Finished, OutOfMemory
from tuner_tui.settings.job import CommandJob, Job
from tuner_tui.settings.model import Settings

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.68 "
    "GiB of which 211.06 MiB is free. Process 811 has 9.50 GiB memory in use. Of the allocated memory 12.1 GiB is "
    "allocated by PyTorch, and {} is reserved by PyTorch but unallocated."
)
ALONE = MESSAGE.replace("Process 811 has 9.50 GiB memory in use. ", "").replace("23.68", "14.00")


@pytest.mark.parametrize("row", read_yaml(FILE)["examples"], ids=lambda row: f"{row['source']}: {row['message'][:40]}")
def test_the_figures_of_a_message_and_what_they_say(row: dict[str, Any]) -> None:
    figures = read_figures(row["message"])
    sizes = {
        name: None if value is None else value if name == "backend" else parse_size(value.replace("bytes", "B"))
        for name, value in row["figures"].items()
    }
    assert {name: value for name, value in asdict(figures).items() if name in sizes} == sizes
    reading = explain_figures(figures)
    assert [offer.title for offer in reading.remedies] == [remedy(name).title for name in row.get("first", [])]
    assert reading.is_whole == row.get("whole", False)
    assert len(reading.evidence) + (reading.sentence is not None) >= len(reading.remedies) - 1


@pytest.mark.parametrize(
    ("message", "offers_bitsandbytes"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.", True),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 MiB.", False),
        ("RuntimeError: MPS backend out of memory (MPS allocated: 9.00 GiB). Tried to allocate 20.00 MiB.", False),
        ("torch.OutOfMemoryError: XPU out of memory. Tried to allocate 20.00 MiB.", False),
    ],
)
def test_bitsandbytes_is_offered_where_it_runs(message: str, offers_bitsandbytes: bool) -> None:
    texts = " ".join(f"{offer.title} {offer.why}" for offer in read(message)[0].remedies)
    assert ("bitsandbytes" in texts) == offers_bitsandbytes
    assert "micro batch" in texts


def titles(message: str) -> list[str]:
    return [remedy.title for remedy in read(message)[0].remedies]


def test_fragmentation_comes_first_where_the_figures_show_it() -> None:
    assert "expandable_segments" in titles(ALONE.format("1.40 GiB"))[0]
    first, second, *_ = titles(MESSAGE.format("1.40 GiB"))
    assert "other process" in first
    assert "expandable_segments" in second
    assert not any("expandable_segments" in title for title in titles(MESSAGE.format("88.41 MiB")))


def test_others_on_the_gpu_are_evidence() -> None:
    (finding,) = read(MESSAGE.format("88.41 MiB"))
    assert "process 811 uses 9.50 GiB of the GPU" in finding.evidence


@pytest.mark.parametrize(
    # 512 MiB were asked for.
    ("unallocated", "position"),
    [("1.40 GiB", 0), ("512.00 MiB", 0), ("511.00 MiB", None), ("0 bytes", None)],
)
def test_as_much_held_unused_as_was_asked_for_is_fragmented(unallocated: str, position: int | None) -> None:
    offered = ["expandable_segments" in title for title in titles(ALONE.format(unallocated))]
    assert (offered.index(True) if any(offered) else None) == position


OLD = (
    "CUDA out of memory. Tried to allocate 98.00 MiB (GPU 0; 15.90 GiB total capacity; {} already allocated; {} free; "
)
NEW = "CUDA out of memory. GPU 0 has a total capacity of {} of which {} is free. Including non-PyTorch memory, this "


@pytest.mark.parametrize(
    ("message", "others"),
    [
        # 24 - 4 - 19.5 = 0.5 GiB is more than 500 MB; 24 - 4 - 19.6 = 0.4 GiB is less.
        (NEW.format("24.00 GiB", "4.00 GiB") + "process has 19.50 GiB memory in use.", "0.5 GiB"),
        (NEW.format("24.00 GiB", "4.00 GiB") + "process has 19.60 GiB memory in use.", None),
        # 15.9 - 1 - (8 + 2 for the context) = 4.9 GiB
        (OLD.format("7.50 GiB", "1.00 GiB") + "8.00 GiB reserved in total by PyTorch)", "4.9 GiB"),
        (OLD.format("7.50 GiB", "1.00 GiB") + "12.90 GiB reserved in total by PyTorch)", None),
        (OLD.format("7.50 GiB", "1.00 GiB") + "0.50 GiB cached)", "4.9 GiB"),
        ("CUDA error: out of memory", None),
    ],
)
def test_what_others_hold_is_what_the_figures_leave(message: str, others: str | None) -> None:
    assert other_processes(read_figures(message)) == (
        () if others is None else (f"about {others} of the GPU are used by other processes",)
    )


@pytest.mark.parametrize(
    ("size", "named"),
    [("476.84 MiB", True), ("476.83 MiB", False), ("1023.00 TiB", True), ("17179869184.00 GiB", False)],
)
def test_a_process_counts_from_500_mb_and_below_what_no_gpu_has(size: str, named: bool) -> None:
    assert bool(other_processes(read_figures(f"Process 811 has {size} memory in use."))) == named


GIB = 2**30
HOST = (
    "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."
)
CAPPED = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.68 GiB of which 14.1 GiB is "
    "free. 6.00 GiB allowed; Of the allocated memory 5.1 GiB is allocated by PyTorch."
)
WHOLE_GPU = CAPPED.replace("6.00 GiB allowed; ", "")
FULL_GPU = WHOLE_GPU.replace("14.1 GiB is free", "0.1 GiB is free").replace("5.1 GiB is", "22.1 GiB is")


def out_of_memory_finding(
    message: str,
    inventory: Inventory,
    limit: int | None = 6 * GIB,
    peaks: tuple[RecordedPeak, ...] = (),
    where: str = "training",
    job: Job | None = None,
    **exited: Any,
) -> Finding:
    state = RunState(
        launched_t=1.0,
        exited=Exited(t=9.0, **{"exit_code": 1, **exited}),
        finished=Finished(t=9.0, outcome="out-of-memory"),
        out_of_memory=OutOfMemory(t=8.0, message=message, where=where, step=7),
    )
    (finding,) = crash_findings(
        Situation(state, 10.0, Settings(), inventory, memory_limit_bytes=limit, peaks=peaks, job=job)
    )
    return finding


def test_a_variable_that_the_job_sets_already_is_no_remedy() -> None:
    job = CommandJob(command=("python", "bake.py"))
    offer, *others = out_of_memory_finding(ALONE.format("1.40 GiB"), box(make_gpu()), None, job=job).remedies
    assert "expandable_segments" in offer.title
    again = out_of_memory_finding(ALONE.format("1.40 GiB"), box(make_gpu()), None, job=offer.applied_to(job))
    assert list(again.remedies) == others


@pytest.mark.parametrize(("message", "inventory"), [(HOST, box()), (CAPPED, box(make_gpu()))], ids=["host", "gpu"])
def test_the_limit_is_the_cause(message: str, inventory: Inventory) -> None:
    finding = out_of_memory_finding(message, inventory)
    assert "own limit of 6 GiB" in finding.sentence
    assert "6 GiB" in finding.remedies[-1].title
    assert finding.remedies[0].change, "a smaller micro batch comes first"


@pytest.mark.parametrize(
    ("message", "inventory", "limit", "exited"),
    [
        (HOST, box(), None, {}),
        (HOST, box(make_gpu()), 6 * GIB, {}),
        (WHOLE_GPU, box(make_gpu()), 6 * GIB, {}),
        (HOST, box(), 6 * GIB, {"oom_kill": True}),
    ],
    ids=["no limit", "host of a machine with a GPU", "the GPU itself", "killed by the kernel"],
)
def test_what_is_full_without_the_limit_is_named_itself(
    message: str, inventory: Inventory, limit: int | None, exited: dict[str, Any]
) -> None:
    finding = out_of_memory_finding(message, inventory, limit, **exited)
    assert "limit of" not in finding.sentence
    assert finding.sentence.endswith("full")


STEP = ("/v/lib/python3.11/site-packages/torch/optim/adamw.py", 3, "_init_group")
FORWARD = ("/home/u/net.py", 7, "forward")


@pytest.mark.parametrize(
    ("held", "evidence", "first"),
    [
        (RecordedStack(GIB, (0,)), "largest at the peak: optimizer states, 1.0 GiB, optimizer", "8bit"),
        (RecordedStack(GIB, (1,)), "largest at the peak: activations, 1.0 GiB, net.py:7 (forward)", "checkpointing"),
        (RecordedStack(GIB, (1,), "lm_head"), "lm_head logits and loss, 1.0 GiB, net.py:7 (forward)", "batch"),
    ],
)
def test_what_removes_the_largest_that_was_held_comes_first(held: RecordedStack, evidence: str, first: str) -> None:
    recorded = RecordedPeak(GIB, GIB, (held,), (STEP, FORWARD))
    finding = out_of_memory_finding(FULL_GPU, box(make_gpu()), None, (recorded,))
    assert finding.evidence[-1].endswith(evidence)
    assert first in finding.remedies[0].title
    usual = out_of_memory_finding(FULL_GPU, box(make_gpu()), None).remedies
    assert {remedy.title for remedy in finding.remedies} == {remedy.title for remedy in usual}


def test_a_line_that_grew_is_evidence_and_the_leak_comes_first() -> None:
    held = RecordedStack(GIB, (1,), earlier_bytes=GIB, earlier_steps=64)
    finding = out_of_memory_finding(
        WHOLE_GPU, box(make_gpu()), None, (RecordedPeak(GIB, GIB, (held,), (STEP, FORWARD)),)
    )
    assert finding.evidence[-1] == "grows by 16.0 MiB each step at net.py:7"
    assert "detach" in f"{finding.remedies[0].title} {finding.remedies[0].why}"


@pytest.mark.parametrize(("phase", "where"), [("starting", None), ("loading-model", "loading")])
def test_a_start_of_which_nothing_else_was_observed_is_no_loading(phase: str, where: str | None) -> None:
    finding = out_of_memory_finding(FULL_GPU, box(make_gpu()), limit=None, where=phase)
    assert finding.where == where
    assert any("micro batch" in remedy.title for remedy in finding.remedies) == (where is None)
