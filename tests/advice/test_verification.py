"""The checklist: what was asked for against what was seen, one case a row; and the live finding that rests on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from tests.fakes.situations import box, counters, make_gpu, situation, training
from tuner_tui.advice.findings.not_applied import settings_not_in_effect
from tuner_tui.advice.settings_check import SettingCheck, differing_settings, verify_settings
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Finished
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Settings

CASES = yaml.load(Path(__file__).with_name("verification.yaml").read_text("utf-8"), yaml.CSafeLoader)


def checked(asked: dict[str, Any], seen: dict[str, Any], **changes: Any) -> dict[str, SettingCheck]:
    finding = verify_settings(situation(settings=Settings(**asked), state=training(in_effect=seen), **changes))
    return {mark.name: mark for mark in finding}


@pytest.mark.parametrize(("asked", "seen", "name", "verdict"), CASES)
def test_each_setting_is_judged_by_what_shows_it(
    asked: dict[str, Any], seen: dict[str, Any], name: str, verdict: str
) -> None:
    assert checked(asked, seen)[name].verdict == verdict


def test_a_missing_package_is_named() -> None:
    marks = checked(
        {"attn_implementation": "flash_attention_2"},
        {"attn_implementation": "sdpa"},
        interpreter=Interpreter("python", packages={"torch": "2.13.0"}),
    )
    assert "flash_attn is not installed" in marks["attn_implementation"].why


def test_tf32_is_no_contradiction_where_no_gpu_has_it() -> None:
    marks = checked({"tf32": True}, {"tf32": False}, inventory=box(make_gpu(capability=(7, 5))))
    assert marks["tf32"].verdict == "unknown"


def test_a_commands_own_defaults_are_not_asked_for() -> None:
    seen = {"dataloader_num_workers": 4, "optimizer": "SGD", "autocast_dtype": "float16"}
    now = situation(settings=Settings(), state=training(in_effect=seen), chosen=frozenset({"dataloader_num_workers"}))
    assert [mark.name for mark in differing_settings(now)] == ["dataloader_num_workers"]


def test_what_never_reached_the_training_comes_first_with_the_reason() -> None:
    state = training(in_effect={"seed": 42}, not_injected=("optim",))
    first, second, *_ = verify_settings(situation(state=state, not_applied=("precision",)))
    assert [(mark.name, mark.verdict) for mark in (first, second)] == [("optim", "differs"), ("precision", "differs")]
    assert "no place" in first.why
    assert "cannot be passed" in second.why


def test_before_anything_was_said_there_is_no_list() -> None:
    assert verify_settings(situation()) == ()


def test_the_finding_names_what_differs() -> None:
    state = training(in_effect={"dataloader_num_workers": 0})
    finding = settings_not_in_effect(situation(settings=Settings(dataloader_num_workers=4), state=state))
    assert finding is not None
    assert finding.cause == "not-in-effect"
    assert finding.evidence == ("dataloader_num_workers: requested 4, in effect 0",)
    assert finding.remedies


def test_no_finding_in_the_first_steps_or_where_all_agrees() -> None:
    early = training(steps={"own_steps": 2}, in_effect={"dataloader_num_workers": 0})
    assert settings_not_in_effect(situation(state=early)) is None
    assert settings_not_in_effect(situation(state=training(in_effect={"dataloader_num_workers": 8}))) is None
    assert counters().own_steps > 2


def test_what_never_arrived_is_reported_without_a_step_and_after_the_end() -> None:
    unreached: dict[str, Any] = {"not_injected": ("bf16", "fp16"), "in_effect": {}}
    starting = training(steps={"own_steps": 0, "step": 0}, **unreached)
    ended = training(finished=Finished(t=9.0, outcome="completed"), **unreached)
    for state in (starting, ended):
        finding = settings_not_in_effect(situation(settings=Settings(precision="bf16"), state=state))
        assert finding is not None
        assert finding.sentence == "Requested but not in effect: precision"


def test_a_training_that_was_never_observed_got_nothing() -> None:
    unobserved = RunState(finished=Finished(t=9.0, outcome="completed"))
    job = CommandJob(command=("python", "-I", "train.py"), apply="inject")
    now = situation(settings=Settings(), state=unobserved, job=job, chosen=frozenset({"seed"}))
    finding = settings_not_in_effect(now)
    assert finding is not None
    assert finding.evidence == ("seed: requested 42, not applied; the training was not observed",)
    assert settings_not_in_effect(replace(now, state=RunState())) is None, "it may still report"


@pytest.mark.parametrize(("number", "more"), [(4, ""), (6, " and 2 more")])
def test_the_finding_names_four_settings_and_counts_the_others(number: int, more: str) -> None:
    asked = {"seed": 1, "num_train_epochs": 9.0, "warmup_steps": 7, "weight_decay": 0.5, "max_grad_norm": 3.0}
    asked |= {"dataloader_num_workers": 4}
    chosen: dict[str, Any] = dict(list(asked.items())[:number])
    seen = {"seed": 2, "num_train_epochs": 1.0, "warmup_steps": 8, "weight_decay": 0.1, "max_grad_norm": 1.0}
    seen |= {"dataloader_num_workers": 1}
    state = training(in_effect={name: seen[name] for name in chosen})
    finding = settings_not_in_effect(situation(settings=Settings(**chosen), state=state))
    assert finding is not None
    listed, _, rest = finding.sentence.removeprefix("Requested but not in effect: ").partition(" and ")
    assert (len(listed.split(", ")), f" and {rest}" if rest else "") == (4, more)
