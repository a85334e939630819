"""What an out-of-memory message says beside the fact."""

from __future__ import annotations

from tests.advice.test_corpus import read

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.68 "
    "GiB of which 211.06 MiB is free. Process 811 has 9.50 GiB memory in use. Of the allocated memory 12.1 GiB is "
    "allocated by PyTorch, and {} is reserved by PyTorch but unallocated."
)


def titles(message: str) -> list[str]:
    return [remedy.title for remedy in read(message)[0].remedies]


def test_fragmentation_comes_first_where_the_figures_show_it() -> None:
    assert "expandable_segments" in titles(MESSAGE.format("1.20 GiB"))[0]
    assert not any("expandable_segments" in title for title in titles(MESSAGE.format("88.41 MiB")))


def test_others_on_the_card_are_evidence() -> None:
    (finding,) = read(MESSAGE.format("88.41 MiB"))
    assert "process 811 holds 9.50 GiB of the card" in finding.evidence
