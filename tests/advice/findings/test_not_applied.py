"""A run that was to go on from a checkpoint."""

from __future__ import annotations

from msgspec.structs import replace

from tests.fakes.situations import situation, training
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.inspection.faithful_resume import Mismatch, ResumeCheck
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Steps, Unobserved
from tuner_tui.settings.job import CommandJob

CHECKPOINT = "/runs/r001/output/checkpoint-500"


def test_one_that_begins_at_the_beginning_is_told() -> None:
    (finding,) = diagnose(situation(state=training(accepts_orders=True), resumed_from=CHECKPOINT))
    assert finding.cause == "not-resumed"
    assert CHECKPOINT in finding.evidence[0]


def test_nothing_is_said_where_it_went_on_or_nobody_knows() -> None:
    assert diagnose(situation(state=training(accepts_orders=True, first_step=500), resumed_from=CHECKPOINT)) == ()
    assert diagnose(situation(state=training(accepts_orders=True))) == ()
    own_loop = training(accepts_orders=False)
    assert diagnose(situation(state=own_loop, resumed_from=CHECKPOINT)) == (), "it may have read it by itself"


def test_a_fallback_that_cannot_act_is_reported_while_the_training_runs() -> None:
    job = CommandJob(command=("python", "main.py"), apply="inject", fallback=3)
    loop = training(in_effect={"optimizer": "SGD"})
    assert diagnose(situation(state=loop, job=job, chosen=frozenset()))[0].cause == "no-fallback"
    trainer = training(in_effect={"optimizer": "SGD", "n_gpu": 1}, accepts_orders=True)
    assert diagnose(situation(state=trainer, job=job, chosen=frozenset())) == ()


def test_a_training_that_cannot_be_observed_says_why() -> None:
    state = RunState(launched_t=1.0, unobserved=Unobserved(t=1.0, reason="its Python 3.7.16 is older than 3.8"))
    (finding,) = diagnose(situation(state=state, settings=None, samples=()))
    assert finding.sentence == "Not observed, because its Python 3.7.16 is older than 3.8"
    printed = Steps(t=2.0, source="log lines", step=140, own_steps=140)
    causes = [each.cause for each in diagnose(situation(state=fold_all(state, [printed]), settings=None, samples=()))]
    assert "not-observed" in causes, "what the output says is no observation"


def test_a_setting_without_a_place_is_offered_by_the_commands_own_flag() -> None:
    job = CommandJob(command=("python", "main.py", "--epochs", "1"), apply="inject")
    state = training(not_injected=("learning_rate",), options=("--epochs", "--lr"))
    now = situation(state=state, job=job, chosen=frozenset({"learning_rate"}))
    (finding,) = [finding for finding in diagnose(now) if finding.cause == "not-in-effect"]
    assert finding.remedies[0].command == ("python", "main.py", "--epochs", "1", "--lr", "{learning_rate}")
    assert finding.remedies[0].can_apply


def test_a_part_of_the_state_that_was_not_resumed_is_named() -> None:
    lost = (
        Mismatch("optimizer", "optimizer moments are empty"),
        Mismatch("epoch", "the epoch starts at 0 instead of 1"),
    )
    check = ResumeCheck("r001", 500, 8, lost, ("optimizer", "epoch"))
    (finding,) = diagnose(situation(state=training(first_step=500), resume=check))
    assert (finding.cause, finding.sentence) == (
        "unfaithful-resume",
        "The run did not resume faithfully: optimizer moments are empty",
    )
    assert finding.evidence[1] == lost[1].sentence
    assert next(remedy.title for remedy in finding.remedies).startswith("save and load")
    assert diagnose(situation(state=training(first_step=500), resume=replace(check, mismatches=()))) == ()
