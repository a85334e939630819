"""Findings on lost time: their order by cost, code between steps, CPU contention, runs without a step."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes.situations import GB, PID, box, samples, situation, training
from tuner_tui.advice.diagnose import diagnose, in_past_tense, rank_findings
from tuner_tui.advice.finding import Finding, FindingSeverity, Remedy
from tuner_tui.advice.findings.step_time import worker_warning
from tuner_tui.hardware.sample import ProcessSample, Sample
from tuner_tui.runs.events import types as ev
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.supervise.outcome import determine_outcome
from tuner_tui.settings.model import Settings

BETWEEN = {"between_share": 0.5}
ON_CPU = {"device": "cpu"}
ON_GPU = {"device": "cuda:0"}


def on_cpu(
    queue_pct: float | None, workers: tuple[float, ...] = (), own_pct: float = 50.0, could_run: float | None = None
) -> tuple[Sample, ...]:
    """A full machine of two cores without a GPU. `could_run` is the share of looks at which the trainer could."""
    taken = samples(cpu_pct=100.0, workers=workers)
    return tuple(
        replace(sample, processes=(_main(own_pct, queue_pct, could_run, n), *sample.processes[1:]))
        for n, sample in enumerate(taken)
    )


def _main(own_pct: float, queue_pct: float | None, could_run: float | None, number: int) -> ProcessSample:
    state = None if could_run is None else "R" if number % 10 < could_run * 10 else "S"
    return ProcessSample(PID, "main", own_pct, GB, cpu_queue_pct=queue_pct, state=state)


def causes_and_locations(**changes: Any) -> list[tuple[str, str | None]]:
    """Cause and place of what is found on a machine of two cores."""
    return [(finding.cause, finding.where) for finding in diagnose(situation(inventory=box(cores=2), **changes))]


def costing(cause: str, lost_share: float | None, severity: FindingSeverity = "warning", **remedy: Any) -> Finding:
    remedies = (Remedy("a change", "it helps", **remedy),) if remedy else ()
    return Finding(cause, severity, cause, (), "certain", lost_share=lost_share, remedies=remedies)


THREADS: dict[str, Any] = {"env": {"OMP_NUM_THREADS": "2"}}
WORKERS: dict[str, Any] = {"change": {"dataloader_num_workers": 4}, "speed": (1.0, 1.3)}


@pytest.mark.parametrize(
    ("findings", "order"),
    [
        ((costing("a", 0.3), costing("b", 0.6)), "ba"),
        ((costing("a", None), costing("b", 0.3), costing("c", None), costing("d", 0.6)), "adcb"),
        ((costing("a", 0.9, "hint"), costing("b", 0.3)), "ba"),
        ((costing("a", 0.5), costing("b", 0.5)), "ab"),
        ((costing("a", 0.6, **THREADS), costing("b", 0.3, **WORKERS)), "ba"),
        ((costing("a", 0.6, **WORKERS), costing("b", 0.3, **WORKERS)), "ab"),
        ((costing("a", 0.6), costing("b", 0.3, speed=(1.0, 1.3))), "ab"),  # it is done by hand
    ],
)
def test_of_one_severity_the_dearest_comes_first(findings: tuple[Finding, ...], order: str) -> None:
    assert "".join(finding.cause for finding in rank_findings(findings)) == order


@pytest.mark.parametrize(
    ("state", "queue_pct", "order"),
    [
        (training(rates={"data_wait_share": 0.8}), 30.0, ["data-wait", "cpu-contended"]),
        (training(rates={"data_wait_share": 0.3}), 60.0, ["cpu-contended", "data-wait"]),
        (training(steps={"eval_s": 600.0}), 40.0, ["evaluation-share", "cpu-contended"]),
        (training(steps={"save_s": 90.0}), 60.0, ["cpu-contended", "save-share"]),
        (training(rates=BETWEEN, in_effect=ON_CPU), 30.0, ["between-steps", "cpu-contended"]),
    ],
)
def test_on_a_machine_that_others_use_both_are_reported(state: Any, queue_pct: float, order: list[str]) -> None:
    assert [cause for cause, _ in causes_and_locations(state=state, samples=on_cpu(queue_pct))] == order


@pytest.mark.parametrize(
    ("whole", "sentence", "severity"),
    [(None, "80 % of the time", "warning"), (0.4, "40 % of the time", "warning"), (0.05, "5 % of the time", "hint")],
)
def test_after_the_end_the_wait_for_a_core_is_that_of_the_whole_run(
    whole: float | None, sentence: str, severity: str
) -> None:
    findings = diagnose(situation(state=training(), samples=on_cpu(80.0), core_wait_share=whole))
    (contended,) = (each for each in findings if each.cause == "cpu-contended")
    assert contended.sentence.endswith(sentence)
    assert (contended.lost_share, contended.severity) == (whole or 0.8, severity)


@pytest.mark.parametrize(
    ("queue_pct", "workers", "where"),
    [
        (80.0, (), "main-process"),
        (40.0, (), "main-process"),
        (80.0, (1.0, 1.0), "others"),
        (40.0, (1.0, 1.0), "workers"),
    ],
)
def test_a_loader_that_sleeps_waits_for_no_core_that_others_use(
    queue_pct: float, workers: tuple[float, ...], where: str
) -> None:
    findings = causes_and_locations(
        state=training(rates={"data_wait_share": 0.6}),
        samples=on_cpu(queue_pct, workers, own_pct=15.0),
        settings=Settings(dataloader_num_workers=len(workers)),
    )
    assert ("data-wait", where) in findings


@pytest.mark.parametrize(("sampled", "offered"), [(True, False), (False, True)])
def test_more_prefetch_gains_nothing_where_the_workers_sleep(sampled: bool, offered: bool) -> None:
    (finding,) = diagnose(
        situation(
            state=training(rates={"data_wait_share": 0.6}),
            samples=on_cpu(5.0, (1.0, 1.0), own_pct=15.0) if sampled else (),
            settings=Settings(dataloader_num_workers=2),
        )
    )
    assert finding.cause == "data-wait"
    assert ("more-prefetch" in [remedy.name for remedy in finding.remedies]) == offered


@pytest.mark.parametrize(
    ("looks", "own_pct", "expected"), [(0.9, 30.0, True), (0.5, 45.0, False), (0.9, 400.0, False), (None, 30.0, False)]
)
def test_where_the_queue_is_not_counted_looks_at_the_process_tell(
    looks: float | None, own_pct: float, expected: bool
) -> None:
    taken = on_cpu(None, own_pct=own_pct, could_run=looks)
    findings = diagnose(situation(samples=taken, inventory=box(cores=16)))
    assert [(problem.cause, problem.confidence) for problem in findings] == (
        [("cpu-contended", "likely")] if expected else []
    )


@pytest.mark.parametrize(
    ("workers", "where"), [((3.0,) * 4, "workers"), ((25.0,) * 4, "cpu")], ids=["that-wait", "that-work"]
)
def test_workers_are_too_many_only_where_it_is_they_who_fill_the_cores(workers: tuple[float, ...], where: str) -> None:
    waiting = training(rates={"data_wait_share": 0.6})
    ((cause, location),) = causes_and_locations(state=waiting, samples=on_cpu(5.0, workers))
    assert (cause, location) == ("too-many-workers" if where == "cpu" else "data-wait", where)


@pytest.mark.parametrize(("load", "expected"), [(3.0, None), (60.0, "too-many-workers")])
def test_workers_that_only_wait_are_not_too_many_whatever_pytorch_warns_of(load: float, expected: str | None) -> None:
    log = (
        "UserWarning: This DataLoader will create 4 worker processes in total. Our suggested max number of worker in "
        "current system is 2, which is smaller than what this DataLoader is going to create.",
    )
    finished = ev.Finished(t=1e6, outcome="completed", sentence="Completed.")
    ended = replace(training(rates={"data_wait_share": 0.4}), finished=finished)
    finding = worker_warning(situation(state=ended, samples=on_cpu(5.0, (load,) * 4), log=log))
    assert (None if finding is None else finding.cause) == expected
    if finding is not None:
        assert in_past_tense(finding).evidence == finding.evidence == ("PyTorch's suggestion: at most 2",)


@pytest.mark.parametrize(("workers", "expected"), [(12, "too-many-workers"), (3, "data-wait")])
def test_far_too_many_workers_queue_where_others_have_the_cores(workers: int, expected: str) -> None:
    queueing = tuple(
        replace(
            sample, processes=(*sample.processes[:1], *(replace(w, cpu_queue_pct=70.0) for w in sample.processes[1:]))
        )
        for sample in on_cpu(5.0, (6.0,) * workers)
    )
    assert [
        cause for cause, _ in causes_and_locations(state=training(rates={"data_wait_share": 0.6}), samples=queueing)
    ] == [expected]


@pytest.mark.parametrize(
    ("part", "in_effect", "taken", "expected"),
    [
        (0.5, ON_CPU, samples(), True),
        (0.5, ON_CPU, samples(gpu={}), True),
        (0.5, ON_GPU, samples(gpu={}), False),
        (0.5, ON_GPU, samples(gpu={"utilisation_pct": 30.0}), True),
        (0.5, ON_GPU, samples(gpu={"utilisation_pct": 30.0}, seconds=3), False),
        (0.5, ON_GPU, samples(), False),
        (0.5, {}, samples(), False),
        (0.2, ON_CPU, samples(), False),
        (None, ON_CPU, samples(), False),
    ],
    ids=["cpu", "cpu-by-a-card", "busy", "idle", "too-soon", "unseen-card", "anywhere", "little", "unknown"],
)
def test_the_loops_own_code_after_the_step(
    part: float | None, in_effect: dict[str, str], taken: tuple[Sample, ...], expected: bool
) -> None:
    state = training(rates={"between_share": part}, in_effect=in_effect)
    findings = diagnose(situation(state=state, samples=taken))
    assert ("between-steps" in [problem.cause for problem in findings]) is expected
    assert all(
        problem.remedies[0].effect == "at most 2.0× as fast" for problem in findings if problem.cause == "between-steps"
    )


STARTED = ev.Started(t=1.0, rank=0, pid=5, torch="2.13.0")
ENDED = ev.Ended(t=3.0, rank=0, step=0)
EXITED = ev.Exited(t=4.0, exit_code=0)


def verdict_and_causes(*events: ev.Event) -> tuple[str, tuple[str, ...]]:
    """The sentence of the verdict, and the causes found."""
    state = fold_all(RunState(), events)
    judged = determine_outcome(state, EXITED)
    state = replace(state, finished=ev.Finished(t=4.0, outcome=judged.outcome, sentence=judged.sentence))
    return judged.sentence, tuple(finding.cause for finding in diagnose(situation(state=state)))


def test_it_is_told_in_the_verdict_and_as_a_hint() -> None:
    assert verdict_and_causes(STARTED, ENDED) == ("Completed; no optimizer step was observed.", ("no-step",))


@pytest.mark.parametrize(
    "events",
    [
        (),
        (replace(STARTED, torch=None), ENDED),
        (STARTED,),
        (STARTED, ev.Steps(t=2.0, rank=0, step=3, own_steps=3), replace(ENDED, step=3)),
    ],
)
def test_nothing_is_said_without_torch_or_a_whole_story_or_with_steps(events: tuple[ev.Event, ...]) -> None:
    sentence, causes = verdict_and_causes(*events)
    assert "no optimizer step" not in sentence
    assert causes == ()
