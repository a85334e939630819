"""A program that used torch and ended without an optimizer step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.advice.fakes import situation
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.runs import events as ev
from tuner_tui.runs.fold import fold_all
from tuner_tui.runs.state import RunState
from tuner_tui.runs.verdict import verdict

STARTED = ev.Started(t=1.0, rank=0, pid=5, torch="2.13.0")
ENDED = ev.Ended(t=3.0, rank=0, step=0)
EXITED = ev.Exited(t=4.0, exit_code=0)


def told(*events: ev.Event) -> tuple[str, tuple[str, ...]]:
    """The sentence of the verdict, and the causes found."""
    state = fold_all(RunState(), events)
    judged = verdict(state, EXITED)
    state = replace(state, finished=ev.Finished(t=4.0, outcome=judged.outcome, sentence=judged.sentence))
    return judged.sentence, tuple(finding.cause for finding in diagnose(situation(state=state)))


def test_it_is_told_in_the_verdict_and_as_a_hint() -> None:
    assert told(STARTED, ENDED) == ("Completed; no optimizer step was seen.", ("no-step",))


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
    sentence, causes = told(*events)
    assert "no optimizer step" not in sentence
    assert causes == ()
