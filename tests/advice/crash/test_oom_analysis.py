"""Fragmentation, other processes and the run's own memory limit in out-of-memory errors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.advice.crash.test_cause import read
from tests.fakes.situations import box, card
from tuner_tui.advice.crash.cause import crash_findings
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.situation import Situation
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Exited, Finished, OutOfMemory
from tuner_tui.settings.model import Settings

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.68 "
    "GiB of which 211.06 MiB is free. Process 811 has 9.50 GiB memory in use. Of the allocated memory 12.1 GiB is "
    "allocated by PyTorch, and {} is reserved by PyTorch but unallocated."
)


def titles(message: str) -> list[str]:
    return [remedy.title for remedy in read(message)[0].remedies]


def test_fragmentation_comes_first_where_the_figures_show_it() -> None:
    assert "expandable_segments" in titles(MESSAGE.format("1.20 GiB"))[1], "the other process on the card comes first"
    assert not any("expandable_segments" in title for title in titles(MESSAGE.format("88.41 MiB")))


def test_others_on_the_card_are_evidence() -> None:
    (finding,) = read(MESSAGE.format("88.41 MiB"))
    assert "process 811 uses 9.50 GiB of the GPU" in finding.evidence


GIB = 2**30
HOST = (
    "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."
)
CAPPED = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.68 GiB of which 14.1 GiB is "
    "free. 6.00 GiB allowed; Of the allocated memory 5.1 GiB is allocated by PyTorch."
)
WHOLE_CARD = CAPPED.replace("6.00 GiB allowed; ", "")


def out_of_memory_finding(message: str, inventory: Inventory, limit: int | None = 6 * GIB, **exited: Any) -> Finding:
    state = RunState(
        launched_t=1.0,
        exited=Exited(t=9.0, **{"exit_code": 1, **exited}),
        finished=Finished(t=9.0, outcome="out-of-memory"),
        out_of_memory=OutOfMemory(t=8.0, message=message, where="training", step=7),
    )
    (finding,) = crash_findings(Situation(state, 10.0, Settings(), inventory, memory_limit_bytes=limit))
    return finding


@pytest.mark.parametrize(("message", "inventory"), [(HOST, box()), (CAPPED, box(card()))], ids=["host", "card"])
def test_the_limit_is_the_cause(message: str, inventory: Inventory) -> None:
    finding = out_of_memory_finding(message, inventory)
    assert "own limit of 6 GiB" in finding.sentence
    assert "6 GiB" in finding.remedies[-1].title
    assert finding.remedies[0].change, "a smaller micro batch comes first"


@pytest.mark.parametrize(
    ("message", "inventory", "limit", "exited"),
    [
        (HOST, box(), None, {}),
        (HOST, box(card()), 6 * GIB, {}),
        (WHOLE_CARD, box(card()), 6 * GIB, {}),
        (HOST, box(), 6 * GIB, {"oom_kill": True}),
    ],
    ids=["no limit", "host of a machine with a card", "the card itself", "killed by the kernel"],
)
def test_what_is_full_without_the_limit_is_named_itself(
    message: str, inventory: Inventory, limit: int | None, exited: dict[str, Any]
) -> None:
    finding = out_of_memory_finding(message, inventory, limit, **exited)
    assert "limit of" not in finding.sentence
    assert finding.sentence.endswith("full")
