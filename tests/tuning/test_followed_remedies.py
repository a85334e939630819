"""What came of a remedy, judged on constructed runs and once on two real ones."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes.situations import sample, situation, training
from tests.runs.sandbox import Sandbox, box, wait_ended
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.finding import speed_words
from tuner_tui.advice.remedies.catalog import corrected, remedies_for
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.situation import situation_of_run
from tuner_tui.runs.events.types import Finished, OutOfMemory
from tuner_tui.runs.launch.prepare import prepare
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.store.record import read_record
from tuner_tui.runs.store.remedy_outcomes import RemedyOutcome, read_outcomes, record_outcome
from tuner_tui.settings.edit_history import EditHistory
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import AppliedRemedy, Settings, Value
from tuner_tui.tuning.followed_remedies import (
    RunMeasurement,
    follow_remedies,
    incomparable,
    judge_remedies,
    measured_speed,
)

__all__ = ["box"]
GB = 1_000_000_000
CHECKPOINTING = AppliedRemedy(
    "checkpointing", "gradient checkpointing on", "gpu-memory-near-limit", "r001", {"gradient_checkpointing": False},
    (0.8, 0.87), 16 * GB,
)  # fmt: skip
COMPILE = AppliedRemedy("compile-on", "torch.compile on", "launch-bound", "r001", {"torch_compile": False}, (1.1, 1.5))


def rates(mean: float, count: int = 60, noise: float = 0.02, seed: int = 0) -> tuple[float, ...]:
    generator = random.Random(seed)
    return tuple(mean * (1 + generator.gauss(0, noise)) for _ in range(count))


def run(
    name: str,
    speed: float = 100.0,
    peak_gb: int | None = None,
    *,
    noise: float = 0.02,
    count: int = 60,
    causes: tuple[str, ...] = (),
    settings: Mapping[str, Value] | None = None,
    **changes: Any,
) -> RunMeasurement:
    base = situation(**{"job": BuiltinJob(), "host": "box", **changes})
    assert base.settings is not None
    base = replace(base, settings=base.settings.changed(**(settings or {})))
    peak_bytes = None if peak_gb is None else peak_gb * GB
    return RunMeasurement(name, base, rates(speed, count, noise, int(name[1:])), peak_bytes, frozenset(causes))


BEFORE = run("r001", 100.0, 20)
WITH_CHECKPOINTING: dict[str, Value] = {"gradient_checkpointing": True}


@pytest.mark.parametrize(
    ("speed", "peak_gb", "verdict", "words"),
    [
        (84.0, 14, "kept", "expected 20 to 13 % slower, measured 16 % slower"),
        (69.0, 14, "not kept", "measured 31 % slower"),
        (99.0, 14, "exceeded", "expected 20 to 13 % slower, measured as fast"),
        (88.5, 14, "exceeded", "expected 20 to 13 % slower, measured 12 % slower"),
        (84.0, 18, "not kept", "expected a peak of at most 14.9 GiB, measured 16.8 GiB (before 18.6 GiB)"),
    ],
)
def test_speed_and_peak_against_the_promise(speed: float, peak_gb: int, verdict: str, words: str) -> None:
    after = run("r002", speed, peak_gb, noise=0.001, settings=WITH_CHECKPOINTING)
    outcome = judge_remedies([CHECKPOINTING], run("r001", 100.0, 20, noise=0.001), after)
    assert outcome.verdict == verdict
    assert words in outcome.sentence
    assert (outcome.before, outcome.after, outcome.names) == ("r001", "r002", ("checkpointing",))


@pytest.mark.parametrize(
    ("speed", "noise", "count", "verdict"),
    [
        (130.0, 0.02, 60, "kept"),
        (101.0, 0.005, 60, "not kept"),
        (90.0, 0.02, 60, "not kept"),
        (125.0, 0.4, 60, "unknown"),
        (130.0, 0.02, 3, "unknown"),
    ],
)
def test_a_promised_gain_needs_as_many_steps_as_the_noise(speed: float, noise: float, count: int, verdict: str) -> None:
    before = run("r001", noise=noise, count=count)
    after = run("r002", speed, noise=noise, count=count, settings={"torch_compile": True})
    assert judge_remedies([COMPILE], before, after).verdict == verdict


def test_the_interval_holds_the_true_ratio_in_most_of_200_pairs() -> None:
    inside = 0
    for seed in range(200):
        between = random.Random(1000 + seed)  # the noise between runs, which the steps of one do not show
        pair = [rates(100.0 * (1 + between.gauss(0, 0.01)), 80, 0.05, 2 * seed + n) for n in range(2)]
        speed = measured_speed(pair[0], pair[1])
        assert speed is not None
        inside += speed[1] <= 1.0 <= speed[2]
    assert inside >= 180


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (run("r002", job=BuiltinJob(model="other")), "train different jobs"),
        (replace(run("r002"), situation=replace(run("r002").situation, host="elsewhere")), "different machines"),
        (run("r002", settings={"precision": "fp32"}), "other settings changed, too: precision"),
        (run("r002", state=training(trainable_parameters=7)), "the models differ: 5 and 7 trained parameters"),
        (
            run("r002", state=training(steps={"tokens": 4800 * 300})),
            "100 tokens a sample in r001, 300 in",
        ),
        (
            run("r002", state=training(steps={"epoch_batches": 50})),
            "800 samples an epoch in r001, 400 in",
        ),
        (run("r002", not_applied=("torch_compile",)), "not in effect in r002: compile"),
        (run("r002", causes=("throttled",)), "the GPU lowered its clocks during r002"),
        (
            run("r002", samples=(sample(0.0, cpu_pct=99.0),), state=training(in_effect={"device": "cpu"})),
            "other programs used 94 % of the CPU during r002; it was as fast, ",
        ),
    ],
)
def test_runs_that_do_not_compare(after: RunMeasurement, words: str) -> None:
    steps = {"tokens": 480_000, "epoch_batches": 100}
    before = run("r001", state=training(steps=steps, trainable_parameters=5))
    assert after.situation.job is not None
    settings = after.situation.settings
    assert settings is not None
    changed = replace(after.situation, settings=settings.changed(torch_compile=True))
    outcome = judge_remedies([COMPILE], before, replace(after, situation=changed))
    assert (outcome.verdict, outcome.speed) == ("not comparable", None)
    assert words in outcome.sentence


@pytest.mark.parametrize(
    ("busy", "speed", "verdict"),
    [
        ("r002", 130.0, "kept"),
        ("r002", 90.0, "not comparable"),
        ("r001", 130.0, "not comparable"),
        ("r001 r002", 130.0, "kept"),
    ],
)
def test_a_gain_in_spite_of_a_busy_machine_is_one(busy: str, speed: float, verdict: str) -> None:
    causes = dict.fromkeys(busy.split(), ("cpu-contended",))
    before = run("r001", noise=1e-4, causes=causes.get("r001", ()))
    after = run("r002", speed, noise=1e-4, causes=causes.get("r002", ()), settings={"torch_compile": True})
    outcome = judge_remedies([COMPILE], before, after)
    assert (outcome.verdict, outcome.speed) == (verdict, None), "a later promise does not rest on it"
    assert f"100 → {speed:.0f} samples/s" in outcome.sentence
    assert ("not exact: " in outcome.sentence) == (verdict == "kept")


def test_the_rest_of_an_epoch_after_a_resume_is_no_other_data() -> None:
    before = run("r001", state=training(steps={"epoch_batches": 100}))
    after = run("r002", state=training(steps={"epoch_batches": 50}))
    resumed = replace(after, situation=replace(after.situation, resumed_from="/srv/checkpoint-50"))
    assert incomparable(before, resumed, set()) is None
    assert incomparable(before, after, set()) is not None


def test_settings_may_differ_between_runs_that_a_user_compares_but_not_the_machine() -> None:
    other = run("r002", settings={"precision": "fp32", "per_device_train_batch_size": 4})
    assert incomparable(BEFORE, other, {"precision", "per_device_train_batch_size"}) is None
    disturbed = run("r002", causes=("cpu-contended",))
    assert incomparable(BEFORE, disturbed, set()) == "other programs used the training's cores during r002"
    assert incomparable(BEFORE, disturbed, set(), {"cpu-contended"}) is None, "that is what the change is for"
    slowed = run("r001", causes=("throttled",))
    words = "the GPU lowered its clocks during r001 and other programs used the training's cores during r002"
    assert incomparable(slowed, disturbed, set()) == words, "of both runs what disturbed them"
    both = incomparable(run("r001", causes=("cpu-contended",)), disturbed, set())
    assert both == "other programs used the training's cores during r001 and r002"


def test_settings_that_do_not_change_the_speed_may_differ() -> None:
    after = run("r002", 130.0, settings={"torch_compile": True, "seed": 7, "max_steps": 900})
    before = run("r001", settings={"dataloader_num_workers": 0, "dataloader_prefetch_factor": None})
    workers = replace(COMPILE, before={"dataloader_num_workers": 0, "torch_compile": False})
    assert judge_remedies([workers], before, after).verdict == "kept"
    assert judge_remedies([COMPILE], BEFORE, after).verdict == "kept"


@pytest.mark.parametrize(
    ("outcome", "step", "causes", "verdict"),
    [
        ("completed", 600, (), "kept"),
        (None, 700, (), "kept"),
        ("out-of-memory", 30, ("gpu-oom",), "not kept"),
        (None, 3, (), "unknown"),
    ],
)
def test_a_failure_that_a_remedy_answers(outcome: str | None, step: int, causes: tuple[str, ...], verdict: str) -> None:
    smaller = replace(COMPILE, cause="gpu-oom", before={"per_device_train_batch_size": 96}, speed=None)
    failed = training(step=20, finished=Finished(t=1.0, outcome="out-of-memory"))
    before = run("r001", count=0, causes=("gpu-oom",), state=failed)
    finished = None if outcome is None else Finished(t=1.0, outcome=outcome)
    after = run("r002", causes=causes, state=training(step=step, finished=finished))
    assert judge_remedies([smaller], before, after).verdict == verdict


@pytest.mark.parametrize(("after_gib", "same"), [("12.80", True), ("7.20", False)])
def test_equal_tensors_in_both_failures_tell_that_the_batch_is_not_the_cause(after_gib: str, same: bool) -> None:
    def failed(name: str, gib: str) -> RunMeasurement:
        message = f"CUDA out of memory. Of the allocated memory {gib} GiB is allocated by PyTorch."
        error = OutOfMemory(t=1.0, message=message)
        ended = Finished(t=1.0, outcome="out-of-memory")
        return run(name, count=0, causes=("gpu-oom",), state=training(step=20, finished=ended, out_of_memory=error))

    smaller = AppliedRemedy(
        "exact-split", "32 → 16", "gpu-oom", "r001", {"per_device_train_batch_size": 32}, None, None
    )
    outcome = judge_remedies([smaller], failed("r001", "12.80"), failed("r002", after_gib))
    assert (outcome.verdict, outcome.same_memory) == ("not kept", same)
    assert ("tensors took 12.8 GiB in both runs, so this is not what fills the memory" in outcome.sentence) == same
    another_step = replace(remedy("checkpointing"), name="exact-split", title="16 → 8")
    offer = corrected(another_step, [outcome], "r002")
    assert offer.can_apply != same
    assert offer.effect.startswith("tried as 32 → 16: r002 failed in the same way again; ") == same


def test_what_follows_from_the_workers_is_taken_back_with_them() -> None:
    origin = remedy("more-workers", {"dataloader_num_workers": 4}).origin("data-wait", "r001", Settings(), {})
    assert origin.remedy is not None
    assert origin.remedy.before == {"dataloader_num_workers": 0, "dataloader_prefetch_factor": None}


def test_two_remedies_at_once_are_judged_together() -> None:
    after = run("r002", 100 * 0.84 * 1.3, 14, settings={"torch_compile": True, **WITH_CHECKPOINTING})
    outcome = judge_remedies([CHECKPOINTING, COMPILE], BEFORE, after)
    assert outcome.verdict == "kept"
    assert outcome.title == "gradient checkpointing on and torch.compile on"
    assert "expected 12 % slower to 30 % faster" in outcome.sentence


def test_a_remedy_that_sets_a_variable_is_judged_by_it_alone() -> None:
    fewer = AppliedRemedy(
        "fewer-threads",
        "compute with fewer threads",
        "cpu-contended",
        "r001",
        {},
        None,
        None,
        {"OMP_NUM_THREADS": None},
    )
    before = run("r001", 30.0, causes=("cpu-contended",))
    alone = run("r002", 90.0, job=BuiltinJob(env={"OMP_NUM_THREADS": "1"}))
    both = run("r002", 90.0, job=BuiltinJob(env={"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "INFO"}))
    assert "measured 3.0× as fast" in judge_remedies([fewer], before, alone).sentence
    assert judge_remedies([fewer], before, both).sentence.startswith("other settings changed, too: NCCL_DEBUG;")
    assert (
        "other programs used the training's cores"
        in judge_remedies([replace(fewer, cause="data-wait")], before, alone).sentence
    )


OUTCOME = RemedyOutcome(
    ("checkpointing",), "gradient checkpointing on", "r001", "r002", "not kept", "slower", (0.69, 0.67, 0.71)
)


def test_what_was_measured_here_corrects_the_next_promise() -> None:
    offer = corrected(remedy("checkpointing"), [OUTCOME])
    assert offer.effect.startswith("31 % slower here (r001 → r002); documents say: at least about 40 % less activation")
    assert (offer.speed, offer.rests_on) == ((0.67, 0.71), "measured on this machine")
    assert corrected(remedy("compile-on"), [OUTCOME]) == remedy("compile-on")
    assert corrected(remedy("checkpointing"), [replace(OUTCOME, speed=None)]) == remedy("checkpointing")


def test_a_remedy_that_failed_after_this_run_is_not_offered_for_it_again() -> None:
    failed = replace(OUTCOME, speed=None, sentence="r002 failed in the same way again")
    tried = corrected(remedy("checkpointing"), [failed], "r001")
    assert (tried.effect, tried.can_apply) == ("tried: r002 failed in the same way again", False)
    assert corrected(remedy("checkpointing"), [failed], "r003").can_apply, "it may help another run"
    now = situation(state=training(), settings=Settings(), outcomes=(failed,), run="r001", job=BuiltinJob())
    offered = remedies_for("gpu-oom", now)
    assert [each.name for each in offered][-1] == "checkpointing"


def test_the_record_holds_one_outcome_a_pair_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path))
    assert read_outcomes() == ()
    record_outcome(replace(OUTCOME, verdict="unknown"))
    record_outcome(OUTCOME)
    assert read_outcomes() == (OUTCOME,)
    (tmp_path / "remedies.json").write_text('{"outcomes": [1')
    assert read_outcomes() == ()


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ((1.31,), "31 % faster"),
        ((0.8, 0.87), "20 to 13 % slower"),
        ((1.0, 2.9), "as fast to 2.9× as fast"),
        ((51.8,), "52× as fast"),
    ],
)
def test_speeds_in_words(ratios: tuple[float, ...], words: str) -> None:
    assert speed_words(*ratios) == words


SLOW_DATA = """
    import time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __len__(self):
            return 6400

        def __getitem__(self, index):
            time.sleep(0.004)
            return torch.full((16,), float(index))

    if __name__ == "__main__":
        model = torch.nn.Linear(16, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        end = time.monotonic() + 25
        for batch in DataLoader(Rows(), batch_size=8):
            model(batch).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.032)  # computes as long as it waits: one worker hides all of the wait
            if time.monotonic() > end:
                break
"""


@pytest.mark.full
def test_more_workers_for_a_real_training(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STATE_DIR", str(box.root))
    job = CommandJob(command=(sys.executable, str(box.root / "train.py")), apply="inject")
    request = box.request(SLOW_DATA, job=job)
    first = launch(prepare(request))
    box.folders.append(first)
    wait_ended(first)
    seen = situation_of_run(first)
    finding = next(finding for finding in diagnose(seen) if finding.cause == "data-wait")
    offer = next(each for each in finding.remedies if each.name == "more-workers")
    assert seen.settings is not None
    origin = offer.origin(finding.cause, first.id, seen.settings, {})
    resolved = EditHistory.of(request.resolved).apply(offer.change, origin).current
    second = launch(prepare(replace(request, resolved=resolved)))
    box.folders.append(second)
    wait_ended(second)
    assert read_record(second).resolved.last_remedies == (origin.remedy,)
    outcome = follow_remedies(second)
    assert outcome is not None
    if outcome.verdict == "not comparable" and "other programs" in outcome.sentence:
        pytest.skip(outcome.sentence)
    assert outcome.speed is not None
    assert (outcome.verdict, outcome.before, outcome.after) == ("kept", first.id, second.id)
    assert outcome.speed[1] > 1.2
    assert read_outcomes() == (outcome,)
    assert follow_remedies(first) is None
