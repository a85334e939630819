"""The first rules: waiting for data, stalled, and silence while all is well."""

from __future__ import annotations

from tests.advice.fakes import NOW, box, samples, situation, training
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.settings.model import Settings


def test_a_healthy_training_yields_nothing() -> None:
    assert diagnose(situation()) == ()


def test_waiting_for_data_is_told_with_its_share_and_a_remedy() -> None:
    (finding,) = diagnose(situation(state=training(rates={"data_wait_share": 0.4})))
    assert finding.cause == "data-wait"
    assert "40 %" in finding.evidence[0]
    assert finding.remedies[0].change == {"dataloader_num_workers": 10}


def test_no_advice_in_warm_up() -> None:
    young = training(rates={"data_wait_share": 0.9}, steps={"own_steps": 4}, training_since_t=NOW - 2)
    assert diagnose(situation(state=young)) == ()


def test_one_busy_worker_means_the_dataset_is_not_shared_out() -> None:
    waiting = training(rates={"data_wait_share": 0.4})
    (finding,) = diagnose(situation(state=waiting, samples=samples(gpu={}, workers=(99.0, 1.0, 2.0, 1.0))))
    assert (finding.cause, finding.where) == ("data-wait", "one-worker")


def test_batches_prepared_in_the_training_process_ask_for_workers() -> None:
    waiting = training(rates={"data_wait_share": 0.4})
    (finding,) = diagnose(situation(state=waiting, settings=Settings(), samples=samples(gpu={})))
    assert finding.where == "main-process"
    assert finding.remedies[0].change == {"dataloader_num_workers": 4, "dataloader_persistent_workers": True}


def test_a_training_that_makes_no_step_is_stalled() -> None:
    quiet = training(last_step_t=NOW - 200, last_event_t=NOW - 200)
    idle = samples(gpu={}, workers=(0.0,) * 8)
    assert [finding.cause for finding in diagnose(situation(state=quiet, samples=idle))] == ["stalled"]
    (waiting,) = diagnose(situation(state=quiet))
    assert (waiting.cause, waiting.where) == ("data-wait", "workers"), "its workers are at work"
    crowded = situation(state=quiet, inventory=box(cores=2))
    assert [finding.cause for finding in diagnose(crowded)] == ["too-many-workers"]
