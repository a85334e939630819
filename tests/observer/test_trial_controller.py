"""A trial inside the training: the longest batch first, a warm-up that does not count, a figure, and the end."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.observer.observed_process import SCRIPTS, ObservedProcess, observe, observe_forked, observed_in
from tuner_tui.observer.site._tuner_observer import longest_batch
from tuner_tui.observer.site._tuner_observer.trial_figures import ThroughputEstimate
from tuner_tui.runs.events.types import Checkpoint, Ended, Evaluated, InEffect, OutOfMemory, Phase, TrialMeasured

pytestmark = pytest.mark.train

QUICK = {"warmup_s": 0.02, "least_s": 0.02, "most_s": 30.0, "spread": 0.5}
FOREVER = "1000000"


def tried(folder: Path, script: str, *words: str, **terms: object) -> ObservedProcess:
    settings = {"TUNER_TRIAL": json.dumps(QUICK | terms)}
    return observe(folder, str(SCRIPTS / script), *words, settings=settings)


def measured(observed: ObservedProcess) -> TrialMeasured:
    assert len(observed.of(TrialMeasured)) == 1, observed.errors
    return observed.of(TrialMeasured)[0]


def lengths(observed: ObservedProcess) -> list[int]:
    """The longest sample of each batch."""
    return [int(groups) for groups in re.findall(r"longest (\d+)", observed.output)]


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> tuple[ObservedProcess, Path]:
    after = tmp_path_factory.mktemp("loop") / "after"
    return tried(after.parent, "trial_loop.py", str(after), FOREVER), after


LOOPS = {
    "workers": (FOREVER, "workers"), "short": ("1",), "compiled": (FOREVER, "compiled"),
    "tokens": (FOREVER, "tokens"), "stream": (FOREVER, "stream"),
}  # fmt: skip


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of trials of a plain loop."""
    script, settings = str(SCRIPTS / "trial_loop.py"), {"TUNER_TRIAL": json.dumps(QUICK)}
    cases = {name: (script, "after", *words) for name, words in LOOPS.items()}
    return observe_forked(tmp_path_factory.mktemp("loops"), cases, settings=settings)


def test_the_longest_batch_comes_first_and_again_after_the_first_step(loop: tuple[ObservedProcess, Path]) -> None:
    seen = lengths(loop[0])
    assert seen[:2] == [90, 90]
    assert max(seen[2:]) <= 90
    assert measured(loop[0]).longest == "longest batch first, of 400 samples: up to 90"


def test_it_ends_the_process_before_the_script_goes_on(loop: tuple[ObservedProcess, Path]) -> None:
    observed, after = loop
    assert observed.exit_code == 0
    assert isinstance(observed.events[-1], Ended)
    assert not after.exists()


def test_the_figures_are_of_the_steps_after_the_warm_up(loop: tuple[ObservedProcess, Path]) -> None:
    figures = measured(loop[0])
    assert figures.warmup_steps >= 2
    assert figures.steps >= 3
    assert figures.samples == 2 * figures.steps
    assert figures.tokens is not None
    assert figures.padding_tokens is not None
    assert 6 * figures.steps <= figures.tokens + figures.padding_tokens <= 180 * figures.steps
    assert 0 < figures.seconds < 5
    assert figures.optimizer_s is not None
    assert 0 < figures.optimizer_s < figures.seconds
    assert 0 < figures.data_wait_s < figures.seconds
    assert figures.dataset_samples == 400
    assert figures.batch_shape is not None
    assert figures.batch_shape[0] == 2
    assert figures.rss_peak_bytes is not None
    assert figures.batch_peak_bytes is figures.data_peak_bytes is None
    assert "a Trainer only" in figures.evaluated


def test_weights_and_optimizer_states_are_reported(loop: tuple[ObservedProcess, Path]) -> None:
    """64 embeddings of 8 numbers, AdamW's two moments of them and a count of steps, each in 4 bytes."""
    assert measured(loop[0]).resident_bytes == 3 * 64 * 8 * 4 + 4


@pytest.mark.full
def test_what_workers_had_ready_is_used_up_before_it_counts(loops: dict[str, Path]) -> None:
    observed = observed_in(loops["workers"])
    seen = lengths(observed)
    assert seen[0] == 90
    again = seen.index(90, 1)
    assert measured(observed).warmup_steps > again
    assert 1 < again <= 6


def test_a_training_that_ends_early_is_measured_by_its_steps(tmp_path: Path) -> None:
    observed = tried(tmp_path, "trial_loop.py", str(tmp_path / "after"), "8", warmup_s=60)
    assert (measured(observed).warmup_steps, measured(observed).steps) == (2, 6)
    assert (tmp_path / "after").exists()


@pytest.mark.full
def test_a_training_that_ends_right_after_its_warm_up_is_measured_by_nearly_all_of_it(tmp_path: Path) -> None:
    observed = tried(tmp_path, "trial_loop.py", str(tmp_path / "after"), "8", "workers", warmup_s=0)
    assert (measured(observed).warmup_steps, measured(observed).steps) == (2, 6)
    assert measured(observed).optimizer_s is None, "it was timed in the last step alone"


@pytest.mark.full
def test_too_short_a_training_says_so_by_its_steps(loops: dict[str, Path]) -> None:
    observed = observed_in(loops["short"])
    assert measured(observed).steps == 0
    assert measured(observed).spread is None


@pytest.mark.full
def test_what_is_compiled_on_the_way_sets_the_measuring_back(loops: dict[str, Path]) -> None:
    """Torch compiles the model for each new length until it gives that up."""
    observed = observed_in(loops["compiled"])
    compiled = [event.step for event in observed.of(Phase) if event.phase == "compiling" and event.step is not None]
    assert len(compiled) > 1
    assert measured(observed).warmup_steps > max(compiled) + 1
    assert measured(observed).steps >= 3


@pytest.mark.full
def test_of_batches_by_total_length_the_worst_come_first(loops: dict[str, Path]) -> None:
    """The most tokens, the longest sample, the most samples: 33 of 3 tokens keep to 100 as one of 90 does."""
    observed = observed_in(loops["tokens"])
    sizes = [(int(length), int(count)) for length, count in re.findall(r"longest (\d+) of (\d+)", observed.output)]
    assert sizes[:4] == [(4, 25), (4, 25), (90, 1), (3, 33)]  # again when the optimizer state exists
    assert measured(observed).longest == "largest batch first, of 30 batches: 25 × 4, 1 × 90, 33 × 3"


def test_recordings_that_a_sampler_yields_are_compared_by_their_duration() -> None:
    """As lhotse does: the sampler yields the recordings of a batch, and the dataset has no length."""
    batches = [
        [SimpleNamespace(duration=12.0)] * 2,
        [SimpleNamespace(duration=1.0)] * 24,
        [SimpleNamespace(duration=20.0)],
    ]
    loader = SimpleNamespace(dataset=object(), batch_size=None, batch_sampler=None, sampler=batches)
    reason = longest_batch.put_longest_batch_first(loader, lambda: True, 2.0)
    assert reason == "largest batch first, of 3 batches: 24 × 1, 1 × 20"
    assert next(iter(loader.sampler)) is batches[1]


@pytest.mark.parametrize("sampler", [range(9), itertools.repeat(None)])
def test_samples_without_batches_have_no_longest_batch(sampler: Iterable[Any]) -> None:
    loader = SimpleNamespace(dataset=object(), batch_size=None, batch_sampler=None, sampler=sampler)
    assert "makes no batches" in longest_batch.put_longest_batch_first(loader, lambda: True, 2.0)
    assert loader.sampler is sampler


@pytest.mark.full
def test_a_stream_has_no_longest_batch(loops: dict[str, Path]) -> None:
    figures = measured(observed_in(loops["stream"]))
    assert "a stream" in figures.longest
    assert figures.dataset_samples is None
    assert figures.workers_repeat
    assert figures.steps >= 2
    assert figures.repeated_samples[:3] == (0, 0, 0)


@pytest.fixture(scope="module")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of trials of a Trainer whose evaluation ends in different ways."""
    script, settings = str(SCRIPTS / "trial_trainer.py"), {"TUNER_TRIAL": json.dumps(QUICK)}
    cases = {how: (script, "out", f"evaluation={how}") for how in ("well", "large", "wrong")}
    return observe_forked(tmp_path_factory.mktemp("trainers"), cases, "transformers.trainer", settings=settings)


@pytest.fixture(scope="module")
def trainer(trainers: dict[str, Path]) -> tuple[ObservedProcess, Path]:
    return observed_in(trainers["well"]), trainers["well"] / "out"


def test_a_trainer_neither_saves_nor_evaluates_nor_goes_on(trainer: tuple[ObservedProcess, Path]) -> None:
    observed, output = trainer
    assert measured(observed).steps >= 2
    assert not observed.of(Checkpoint)
    assert not observed.of(Evaluated)
    assert not list(output.glob("**/*")) if output.exists() else True


def test_what_only_the_trial_needs_is_no_setting_of_the_training(trainer: tuple[ObservedProcess, Path]) -> None:
    """A winner starts from what is in effect: it must not end the saving of the training."""
    values = {name: value for event in trainer[0].of(InEffect) for name, value in event.values.items()}
    assert (values["save_strategy"], values["eval_strategy"]) == ("steps", "steps")


def test_a_trainer_meets_its_longest_batches_and_evaluates_one(trainer: tuple[ObservedProcess, Path]) -> None:
    observed, _ = trainer
    assert measured(observed).evaluated == "one batch, longest batch first, of 64 samples: up to 15"
    seen = lengths(observed)
    assert seen[0] == 15
    assert 15 in seen[1:5]
    assert 15 in seen[-2:], "accelerate fetches one batch ahead"


def test_an_evaluation_that_runs_out_of_memory_is_the_end(trainers: dict[str, Path]) -> None:
    observed = observed_in(trainers["large"])
    assert observed.exit_code == 1
    assert [event.where for event in observed.of(OutOfMemory)] == ["evaluating"]
    assert not observed.of(TrialMeasured)


def test_another_error_of_the_evaluation_is_reported(trainers: dict[str, Path]) -> None:
    observed = observed_in(trainers["wrong"])
    assert observed.exit_code == 0
    assert measured(observed).evaluated == "no evaluation: KeyError: 'labels'"


def test_a_figure_is_sure_where_steps_are_alike() -> None:
    speed = ThroughputEstimate()
    assert speed.spread() is None
    for _ in range(4):
        speed.add(100, 0.5)
    assert speed.spread() == pytest.approx(0, abs=1e-6)


def test_the_interval_is_that_of_a_ratio_of_sums() -> None:
    """Steps of twice the tokens in twice the time are no noise; the same tokens in other times are."""
    even, uneven = ThroughputEstimate(), ThroughputEstimate()
    for tokens, seconds in ((100, 1.0), (200, 2.0), (100, 1.0), (300, 3.0)):
        even.add(tokens, seconds)
    for seconds in (0.9, 1.1, 0.9, 1.1):
        uneven.add(100, seconds)
    assert even.spread() == pytest.approx(0, abs=1e-6)
    deviation = (4 * 0.1**2 / 3) ** 0.5 / 2
    assert uneven.spread() == pytest.approx(3.182 * deviation, rel=1e-3)


def test_short_steps_are_taken_together() -> None:
    """Every second one waits for the batch that both have: their pairs are alike."""
    speed = ThroughputEstimate()
    for _ in range(10):
        speed.add(8, 0.02)
        speed.add(8, 0.09)
    assert speed.steps == 20
    assert speed.spread() == pytest.approx(0, abs=1e-6)


def test_workers_that_deliver_together_are_one_block() -> None:
    """Four workers need 80 ms a batch: one step of four waits. A block of 0.1 s has all of two rounds."""
    speed = ThroughputEstimate(workers=4)
    ends = [step for step in range(24) if speed.add(8, 0.001 if step % 4 else 0.08)]
    assert ends == [7, 15, 23]
    assert speed.spread() == pytest.approx(0, abs=1e-6)


def test_a_round_of_slow_steps_is_not_waited_for() -> None:
    speed = ThroughputEstimate(workers=16)
    assert [speed.add(8, 0.4) for _ in range(6)] == [False, False, True] * 2


def test_lengths_are_read_for_a_bounded_time() -> None:
    times = iter(range(100))
    samples = [[0] * (index % 9) for index in range(5000)]
    lengths = longest_batch.sample_lengths(samples, 5000, 9.5, clock=lambda: float(next(times)))
    assert len(lengths) == 10
    assert max(lengths) > 30, "they are spread over the whole"


def test_equal_lengths_are_read_for_a_quarter_of_the_time() -> None:
    """By a clock that ticks for each sample; at least 50 samples."""

    def read(samples: list[list[int]], within_s: float) -> int:
        return len(
            longest_batch.sample_lengths(samples, len(samples), within_s, clock=map(float, range(5000)).__next__)
        )

    equal = [[0] * 7] * 1000
    assert read(equal, 400.0) == 101
    assert read(equal, 100.0) == 50
    assert read([*equal[:20], [0], *equal[21:]], 400.0) == 401


def test_where_all_samples_are_alike_no_batch_is_put_first() -> None:
    loader = SimpleNamespace(dataset=[[0.0] * 7] * 100, batch_size=4, batch_sampler=object())
    reason = longest_batch.put_longest_batch_first(loader, lambda: True, 2.0)
    assert reason == "the longest batch is any batch: 100 of 100 samples have 7"
    assert type(loader.batch_sampler) is object


@pytest.mark.parametrize(
    ("sample", "length"),
    [
        ({"input_ids": [1, 2, 3], "other": [1] * 50}, 3),
        (([1, 2], [3, 4, 5]), 5),
        ([1, 2, 3, 4], 4),
        ("four", 4),
        (7, None),
        (object(), None),
    ],
)
def test_the_length_of_a_sample(sample: object, length: int | None) -> None:
    lengths = longest_batch.sample_lengths([sample], 1, 1.0)
    assert lengths == ({} if length is None else {0: length})


@pytest.mark.full
def test_an_optimizer_with_a_closure_is_not_timed_separately(tmp_path: Path) -> None:
    """Lightning hands forward and backward to the optimizer as a closure."""
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed")
    figures = measured(tried(tmp_path, "lightning_fit.py", str(tmp_path / "out"), warmup_s=60))
    assert figures.steps >= 2
    assert figures.optimizer_s is None
