"""Findings do not flicker."""

from __future__ import annotations

from msgspec.structs import replace

from tuner_tui.advice.diagnose import FindingHysteresis
from tuner_tui.advice.finding import Finding, Remedy

WAIT = Finding("data-wait", "warning", "waits", (), "certain")
CRASH = Finding("gpu-oom", "failed", "full", (), "certain")
STEADY = FindingHysteresis(appear_s=4, vanish_s=10)


def after(*looks: tuple[float, tuple[Finding, ...]], start: FindingHysteresis = STEADY) -> FindingHysteresis:
    """The watch after the diagnoses `looks`, each with its time."""
    for now_s, findings in looks:
        start = start.after(findings, now_s)
    return start


def test_a_finding_appears_after_it_held() -> None:
    assert after((0, (WAIT,)), (3, (WAIT,))).shown == ()
    assert after((0, (WAIT,)), (3, (WAIT,)), (4, (WAIT,))).shown == (WAIT,)


def test_a_finding_that_comes_and_goes_never_appears() -> None:
    looks = [(float(second), (WAIT,) if second % 3 else ()) for second in range(60)]
    assert after(*looks).shown == ()


def test_a_shown_finding_stays_through_a_gap_and_goes_at_last() -> None:
    shown = after((0, (WAIT,)), (4, (WAIT,)))
    assert after((10, ()), start=shown).shown == (WAIT,)
    assert after((10, ()), (12, (WAIT,)), (20, ()), start=shown).shown == (WAIT,)
    assert after((15, ()), start=shown).shown == ()


def test_a_failure_shows_at_once_and_a_repaired_one_goes_at_once() -> None:
    assert after((0, (CRASH,))).shown == (CRASH,)
    assert after((0, (CRASH,)), (1, ())).shown == ()


def test_the_newest_figures_are_shown() -> None:
    newer = Finding("data-wait", "warning", "waits more", (), "certain")
    assert after((0, (WAIT,)), (5, (newer,))).shown == (newer,)


def test_findings_change_places_after_a_while_or_when_one_ends() -> None:
    busy = Finding("cpu-full", "warning", "full", (), "certain")
    shown = after((0, (WAIT, busy)), (4, (WAIT, busy)))
    assert after((5, (busy, WAIT)), (20, (busy, WAIT)), start=shown).shown == (WAIT, busy)
    assert after((5, (busy, CRASH, WAIT)), start=shown).shown == (CRASH, WAIT, busy)
    assert after((35, (busy, WAIT)), start=shown).shown == (busy, WAIT)
    nan = Finding("nan", "warning", "nan", (), "certain")
    assert after((5, (nan, busy, WAIT)), start=shown).shown == (nan, WAIT, busy), "every further step is wasted"
    slow = Finding("slow-disk", "warning", "slow", (), "certain")
    three = after((5, (slow, busy, WAIT)), (9, (slow, busy, WAIT)), start=shown)
    assert three.shown == (WAIT, busy, slow)
    assert after((19, (slow, busy)), start=three).shown == (slow, busy)


def test_findings_that_cost_about_as_much_keep_their_places() -> None:
    waits, queues, more = (
        Finding(cause, "warning", cause, (), "certain", lost_share=share)
        for cause, share in (("data-wait", 0.40), ("cpu-contended", 0.45), ("cpu-contended", 0.60))
    )
    shown = after((0, (waits, queues)), (4, (waits, queues)))
    assert after((60, (queues, waits)), (120, (queues, waits)), start=shown).shown == (waits, queues)
    assert after((60, (more, waits)), start=shown).shown == (more, waits)
    workers = Remedy("workers 0 → 4", "it helps", change={"dataloader_num_workers": 4}, speed=(1.0, 1.3))
    helped = replace(waits, cause="slow-disk", remedies=(workers,))
    assert after((60, (helped, more)), (64, (helped, more)), start=after((0, (more,)), (4, (more,)))).shown == (
        helped,
        more,
    )


def test_a_location_that_changes_to_and_fro_does_not_flicker() -> None:
    elsewhere = replace(WAIT, where="others")
    changing = after(*((t, (elsewhere if t // 5 % 2 else WAIT,)) for t in range(30)))
    assert [finding.where for finding in changing.shown] == [WAIT.where]
    for_good = after(*((t, (elsewhere,)) for t in range(30, 45)), start=changing)
    assert [finding.where for finding in for_good.shown] == ["others"]


def test_a_remedy_that_is_shown_keeps_its_value_until_another_is_offered() -> None:
    def waits(name: str, workers: int) -> tuple[Finding, ...]:
        offered = Remedy(f"workers 0 → {workers}", "", {"dataloader_num_workers": workers}, name=name)
        return (Finding("data-wait", "warning", "waits", (), "certain", remedies=(offered,)),)

    read = after((0, waits("more-workers", 8)), (4, waits("more-workers", 4)))
    assert read.shown == waits("more-workers", 4)
    assert after((5, waits("more-workers", 6)), start=read).shown == waits("more-workers", 4)
    assert after((5, waits("fewer-workers", 2)), start=read).shown == waits("fewer-workers", 2)
