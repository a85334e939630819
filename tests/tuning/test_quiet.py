"""When a machine is too busy to measure on, and that nothing is confirmed then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tuning.search.builders import measured, run_search, space
from tuner_tui.hardware.other_load import BusyProcess, OtherLoad
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.search.space import Quiet
from tuner_tui.tuning.trial import Measurement, StepBreakdown, Trial, TuningConclusion

SPINNING = tuple(BusyProcess(command=f"python spin{number}.py", cores=1.0) for number in (1, 2))
START = Settings(per_device_train_batch_size=1, gradient_accumulation_steps=1, precision="bf16")


@pytest.mark.parametrize(
    ("load", "on_gpu", "busy"),
    [
        (OtherLoad(cpu_share=0.05), False, False),
        (OtherLoad(cpu_share=0.25), False, True),
        (OtherLoad(cpu_share=0.5), True, False),
        (OtherLoad(cpu_share=0.9), True, True),
        (OtherLoad(cpu_share=0.0, gpu_share=0.4), True, True),
        (OtherLoad(cpu_share=0.0, gpu_share=0.4), False, False),
        (OtherLoad(), True, False),
    ],
)
def test_a_machine_is_too_busy_if_others_take_what_the_training_computes_on(
    load: OtherLoad, on_gpu: bool, busy: bool
) -> None:
    assert bool(Quiet.after(load, on_gpu).busy) == busy


def test_it_is_said_what_makes_it_busy() -> None:
    load = OtherLoad(cpu_share=0.5, processes=SPINNING, gpu_share=0.64, gpu_processes=("python serve.py",))
    assert Quiet.after(load, on_gpu=False).busy == (
        "other processes use 50 % of the CPU (python spin1.py 1.0 cores, python spin2.py 1.0 cores)"
    )
    assert Quiet.after(load, on_gpu=True).busy == "other processes use 64 % of a GPU (python serve.py)"


def test_a_run_is_disturbed_by_what_was_seen_during_it_else_by_what_was_seen_before() -> None:
    quiet, busy = Quiet.after(OtherLoad(cpu_share=0.0), False), Quiet.after(OtherLoad(cpu_share=0.5), False)
    assert quiet.is_disturbed(measured(1.0, others_cpu_share=0.3))
    assert not quiet.is_disturbed(measured(1.0))
    assert busy.is_disturbed(measured(1.0))
    assert not busy.is_disturbed(measured(1.0, others_cpu_share=0.02)), "it has become quiet"
    card = Quiet.after(OtherLoad(gpu_share=0.5), on_gpu=True)
    assert card.is_disturbed(measured(1.0, others_cpu_share=0.0)), "the load of a GPU has no owner"


def tuned(quiet: Quiet, others: float | None, quiet_from: int = 1000) -> tuple[TuningConclusion, int]:
    """The conclusion where compiling is twice as fast in every run, and its confirming trials."""
    ran = [0]

    def trial(trial: Trial) -> Measurement:
        ran[0] += 1
        return measured(
            200.0 if trial.settings.torch_compile else 100.0,
            breakdown=StepBreakdown(data_wait=0.0, optimizer=0.0, padding=0.0),
            others_cpu_share=others if ran[0] < quiet_from else 0.0,
        )

    only_compiling = replace(space(START), candidates={"torch_compile": (False, True)}, quiet=quiet)
    search = run_search(Search(START, only_compiling), trial)
    assert search.verdict is not None
    return search.verdict, sum(one.trial.purpose == "confirm" for one in search.trials)


BUSY = Quiet.after(OtherLoad(cpu_share=0.5, processes=SPINNING), on_gpu=False)


def test_on_a_busy_machine_nothing_is_confirmed_however_clear_it_looks() -> None:
    conclusion, confirming = tuned(BUSY, others=0.4)
    assert conclusion.winner == START
    assert conclusion.ratio is None
    assert "on a busy machine (other processes use 50 %" in conclusion.sentence
    assert "python spin1.py" in conclusion.sentence
    assert confirming == 4, "two pairs; more would be as disturbed"


def test_where_no_run_was_watched_the_load_at_the_start_counts() -> None:
    conclusion, _ = tuned(BUSY, others=None)
    assert conclusion.winner == START
    assert "on a busy machine (other processes use 50 %" in conclusion.sentence


def test_a_machine_that_was_busy_only_before_the_trials_confirms() -> None:
    assert tuned(BUSY, others=0.01)[0].ratio == pytest.approx(2.0)


def test_pairs_on_a_machine_that_has_become_quiet_confirm_alone() -> None:
    conclusion, confirming = tuned(BUSY, others=0.4, quiet_from=6)
    assert conclusion.winner.torch_compile
    assert confirming == 6, "the first pair was disturbed"
