"""From the story of a trial's run to its measurement. No process anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes.situations import box
from tests.tuning.builders import SCRIPT, oom_situation, oom_state, resolved
from tuner_tui.advice.situation import Situation
from tuner_tui.hardware.sample import HostSample, ProcessSample, Sample
from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.runs.events.types import Exited, Finished, Raised, TrialMeasured
from tuner_tui.tuning.measurement import FinishedTrial, measure_trial
from tuner_tui.tuning.trial import Measurement, Trial
from tuner_tui.tuning.trial_runner import uninjectable_fields

SETTINGS = resolved(per_device_train_batch_size=8, gradient_accumulation_steps=2)


def rank(number: int = 0, **changes: Any) -> TrialMeasured:
    """Ten steps of sixteen samples in two seconds."""
    figures: dict[str, Any] = {
        "steps": 10, "seconds": 2.0, "samples": 160, "tokens": 1600, "padding_tokens": 400, "data_wait_s": 0.5,
        "optimizer_s": 0.2, "spread": 0.01, "batch_shape": (8, 12), "dataset_samples": 4000,
    }  # fmt: skip
    return TrialMeasured(t=5.0, rank=number, **{**figures, **changes})


def state(**changes: Any) -> RunState:
    """A trial that ended well."""
    fields: dict[str, Any] = {
        "step": 14, "launched_t": 1.0, "ranks": {0: RankState(0)}, "exited": Exited(t=9.0, exit_code=0),
        "finished": Finished(t=9.0, outcome="completed"),
    }  # fmt: skip
    return RunState(**{**fields, **changes})


def situation(run: RunState, **changes: Any) -> Situation:
    made = oom_situation(SETTINGS, run, SCRIPT)
    values = {name: getattr(made, name) for name in Situation.__struct_fields__}
    return Situation(**{**values, "chosen": SETTINGS.chosen, **changes})


def measurement(
    *ranks: TrialMeasured, run: RunState | None = None, changed: tuple[str, ...] = (), **others: Any
) -> Measurement:
    trial = Trial(number=1, purpose="knob", settings=SETTINGS.settings, reason="", changed=changed)
    given: dict[str, Any] = {"stop_reason": others.pop("stop_reason", ""), "aborted": others.pop("aborted", "")}
    given |= {"transient": others.pop("transient", False)}
    end = FinishedTrial("r001", situation(run or state(), **others), ranks, 12.0, **given)
    return measure_trial(end, trial)


def test_one_rank() -> None:
    measured = measurement(rank(rss_peak_bytes=5000))
    assert (measured.outcome, measured.run_id, measured.seconds, measured.steps) == ("measured", "r001", 12.0, 10)
    assert (measured.samples_s, measured.tokens_s, measured.step_time_s, measured.spread) == (80, 800, 0.2, 0.01)
    shares = measured.breakdown
    assert (shares.data_wait, shares.optimizer, shares.padding) == (0.25, 0.1, 0.2)
    assert (measured.peak_bytes, measured.batch_peak_bytes, measured.dataset_samples) == (5000, None, 4000)


def test_ranks_are_added_up_and_the_fullest_gpu_decides() -> None:
    first = rank(reserved_peak_bytes=110, allocated_peak_bytes=100, batch_peak_bytes=70)
    second = rank(1, seconds=4.0, reserved_peak_bytes=210, allocated_peak_bytes=200, batch_peak_bytes=200, spread=0.05)
    measured = measurement(first, second)
    assert (measured.samples_s, measured.tokens_s) == (80 + 40, 800 + 400)
    assert (measured.step_time_s, measured.spread) == (0.4, 0.05)
    assert (measured.peak_bytes, measured.batch_peak_bytes) == (210, 210)
    assert measured.breakdown.data_wait == 0.125


def test_out_of_memory_goes_before_everything_else_but_an_abort() -> None:
    assert measurement(run=oom_state()).outcome == "out-of-memory"
    assert measurement(rank(), run=oom_state("evaluating")).outcome == "out-of-memory"
    assert measurement(run=oom_state(), aborted="Aborted.").outcome == "aborted"


def test_a_failure_has_a_plain_sentence() -> None:
    raised = Raised(t=8.0, type="ModuleNotFoundError", message="No module named 'bitsandbytes'")
    failed = state(
        raised=raised, exited=Exited(t=9.0, exit_code=1), step=None,
        finished=Finished(t=9.0, outcome="failed", sentence=f"The training failed: {raised.message}."),
    )  # fmt: skip
    measured = measurement(run=failed)
    assert measured.outcome == "failed"
    assert measured.sentence == (
        "A package or module is missing from the training interpreter. "
        "The training failed: No module named 'bitsandbytes'."
    )


@pytest.mark.parametrize(
    ("ranks", "run", "words"),
    [
        ((), state(step=None), "without an optimizer step"),
        ((), state(step=None, ranks={}), "the observer cannot be loaded into"),
        ((rank(steps=1, dataset_samples=9),), state(step=3), "3 optimizer steps of 9 samples"),
    ],
)
def test_no_step(ranks: tuple[TrialMeasured, ...], run: RunState, words: str) -> None:
    measured = measurement(*ranks, run=run)
    assert measured.outcome == "no-step"
    assert words in measured.sentence


def test_what_somebody_else_ended_says_little_of_its_settings() -> None:
    def failed(**how: Any) -> RunState:
        return state(exited=Exited(t=9.0, **how), finished=Finished(t=9.0, outcome="failed"), step=None)

    assert measurement(run=failed(signal=15)).passing
    assert not measurement(run=failed(signal=11)).passing
    assert not measurement(run=failed(exit_code=1)).passing
    assert measurement(stop_reason="It made no progress for 121 s.", transient=True).passing
    assert not measurement(stop_reason="It without an optimizer step in 5 minutes.").passing


def test_batches_of_another_size_than_asked_for() -> None:
    measured = measurement(rank(batch_shape=(4, 12)))
    assert (measured.outcome, measured.not_applied) == ("not-applied", ("per_device_train_batch_size",))
    assert measured.sentence == "A micro batch of 8 was requested, but batches of 4 were observed."


@pytest.mark.parametrize("rest", [(3, 12), (8, 12)])
def test_the_rest_of_an_epoch_is_no_other_size(rest: tuple[int, ...]) -> None:
    assert measurement(rank(batch_shape=rest, dataset_samples=803)).outcome == "measured"


def test_a_dataset_smaller_than_a_batch_is_measured_with_its_size() -> None:
    measured = measurement(rank(batch_shape=(3, 12), dataset_samples=3))
    assert (measured.outcome, measured.dataset_samples) == ("measured", 3)


def test_a_trainer_says_its_micro_batch_itself() -> None:
    """Its batches may be packed: one long row."""
    seen = state(in_effect={"per_device_train_batch_size": 8}, accepts_orders=True)
    assert measurement(rank(batch_shape=(1, 512)), run=seen).outcome == "measured"
    trainer_state = state(in_effect={"per_device_train_batch_size": 16}, accepts_orders=True)
    assert measurement(rank(), run=trainer_state).outcome == "not-applied"


def test_a_knob_that_was_not_taken() -> None:
    asked = SETTINGS.settings.changed(torch_compile=True)
    run = state(in_effect={"torch_compile": False, "fused": None})
    chosen = SETTINGS.chosen | {"torch_compile"}
    measured = measurement(rank(), run=run, changed=("torch_compile",), settings=asked, chosen=chosen)
    assert (measured.outcome, measured.not_applied) == ("not-applied", ("torch_compile",))
    assert "requested on, observed off" in measured.sentence
    assert measurement(rank(), run=run, settings=asked, chosen=chosen).outcome == "measured", "no knob of this trial"


def test_batches_that_cannot_be_seen_give_no_speed() -> None:
    """Nor does the command take a batch size, by which they could be counted."""
    measured = measurement(rank(samples=0, tokens=None, padding_tokens=None, batch_shape=None), chosen=frozenset[str]())
    assert measured.outcome == "failed"
    assert "cannot be observed" in measured.sentence


def test_what_a_plain_loop_cannot_take_from_within() -> None:
    plain = uninjectable_fields(situation(state(in_effect={"device": "cpu"})))
    assert "gradient_accumulation_steps" in plain
    assert "precision" in plain
    assert "per_device_train_batch_size" not in plain
    trainer = state(in_effect={"n_gpu": 1}, not_injected=("torch_compile",))
    assert uninjectable_fields(situation(trainer)) == {"torch_compile"}


def test_the_room_of_the_fullest_gpu_is_what_its_context_and_others_leave() -> None:
    first = rank(device_total_bytes=1000, device_outside_bytes=100)
    second = rank(1, device_total_bytes=1000, device_outside_bytes=300)
    assert measurement(first, second).room_bytes == 700
    assert measurement(rank()).room_bytes is None


def test_what_the_figure_leaves_out_is_said() -> None:
    stream = rank(longest="longest batch not first: the dataset is a stream", evaluated="one batch, x")
    assert measurement(stream).sentence == "longest batch not first: the dataset is a stream"
    assert measurement(rank(longest="longest batch first, of 9 samples: up to 3")).sentence == ""


def test_the_overhead_is_what_start_up_takes_beyond_the_steps_of_the_warm_up() -> None:
    """Launched at 1 s, measured from 13 s: of these 12 s, 5 steps take 1 s and looking for the longest batch 2 s."""
    only_rank = rank(begun_t=13.0, warmup_steps=5, lookup_s=2.0, evaluation_s=0.5, planned_steps=400)
    measured = measurement(only_rank)
    assert measured.overhead_s == pytest.approx(12 - 1 - 2 + 0.5)
    assert measured.job_steps == 400
    slower = rank(1, begun_t=14.0, warmup_steps=5)
    assert measurement(only_rank, slower).overhead_s == pytest.approx(13 - 1 + 0.5)


def test_the_overhead_and_the_length_of_the_job_may_be_unknown() -> None:
    assert measurement(rank()).overhead_s is None
    assert measurement(rank()).job_steps is None
    assert measurement(rank(), run=state(total_steps=90)).job_steps == 90


def test_what_others_use_of_the_processor_is_what_the_run_does_not() -> None:
    """Of four cores 75 % are busy, and the training with its worker uses one and a half."""
    mine = (ProcessSample(1, "main", 100.0), ProcessSample(2, "worker", 50.0))
    seen = Sample(time_s=3.0, host=HostSample(cpu_pct=75.0), processes=mine)
    starting = Sample(time_s=2.0, host=HostSample(cpu_pct=90.0), processes=(*mine, ProcessSample(3, "worker")))
    four = box(cores=4)
    measured = measurement(rank(), inventory=four, samples=(starting, seen))
    assert measured.others_cpu_share == pytest.approx(0.75 - 1.5 / 4)
    assert measurement(rank(), inventory=four, samples=(starting,)).others_cpu_share is None
    assert measurement(rank(), inventory=None, samples=(seen,)).others_cpu_share is None
    trained = state(training_since_t=2.5, last_event_t=9.0)
    assert measurement(rank(), run=trained, inventory=four, samples=(starting, seen)).breakdown.cpu_busy == 1.5 / 4
    half = replace(four, cpu=replace(four.cpu, quota_cores=2.5))
    assert measurement(rank(), inventory=half, samples=(seen,)).others_cpu_share == pytest.approx(0.75 - 1.5 / 2.5)


def test_batches_that_are_not_seen_are_as_large_as_the_command_was_told() -> None:
    """A loop that makes its own batches, as nanoGPT does: ten steps of 8 × 2 samples in two seconds."""
    unseen = rank(samples=0, tokens=None, padding_tokens=None, batch_shape=None, dataset_samples=None)
    measured = measurement(unseen)
    assert (measured.outcome, measured.samples_s, measured.tokens_s) == ("measured", 80.0, None)
    assert "batches not observed" in measured.sentence
    unknown = measurement(unseen, not_applied=("per_device_train_batch_size",))
    assert (unknown.outcome, unknown.samples_s) == ("failed", None)
    nowhere = state(not_injected=("per_device_train_batch_size",))
    assert measurement(unseen, run=nowhere).outcome == "failed"
