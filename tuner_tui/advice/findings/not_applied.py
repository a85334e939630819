"""What was requested at launch and did not happen: settings not in effect, a checkpoint not resumed."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator

from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.findings.run_metrics import process_steps
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.settings_check import differing_settings, unreachable_settings
from tuner_tui.advice.situation import Situation
from tuner_tui.core.text import format_observed
from tuner_tui.settings.argv import placeholder_command
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import FIELDS

SETTLED_STEPS = 3
"""Values in effect arrive with the first counters; late ones, such as autocast, are there after this many steps."""


def settings_not_in_effect(situation: Situation) -> Finding | None:
    """Settings that differ from what was requested; also after the end, since a short run is over before one looks.

    What never reached the training is known at once, other differences once it has done some steps.
    """
    unreachable = unreachable_settings(situation)
    settled = process_steps(situation) >= SETTLED_STEPS
    marks = [mark for mark in differing_settings(situation) if settled or mark.name in unreachable]
    if not marks:
        return None
    names = ", ".join(mark.name for mark in marks[:4]) + (f" and {len(marks) - 4} more" if len(marks) > 4 else "")
    return Finding(
        cause="not-in-effect",
        severity="warning",
        sentence=f"Requested but not in effect: {names}",
        evidence=tuple(
            f"{mark.name}: requested {format_observed(mark.asked)}, {_format_observed(mark.seen)}"
            + (f"; {mark.why}" if mark.why else "")
            for mark in marks
        ),
        confidence="certain",
        remedies=(
            *placeholder_remedy(situation, unreachable),
            *remedies_for("not-in-effect", situation, "unreachable" if unreachable else None),
        ),
    )


def placeholder_remedy(situation: Situation, names: Collection[str]) -> Iterator[Remedy]:
    """The command with placeholders in the flags that look like the settings `names`, if it has such flags."""
    job = situation.job
    if not isinstance(job, CommandJob) or job.apply not in ("inject", "none"):
        return
    found = placeholder_command(job.command, [name for name in FIELDS if name in names], situation.state.options)
    if found is not None:
        command, carried = found
        yield Remedy(
            title=f"pass {', '.join(carried)} through the command's own flags",
            why=f"`tuner-tui run … -- {shlex.join(command)}`",
            effect="the script gets the value as if you had typed it",
            rests_on="the command's flags" + (" and those its parser accepts" if situation.state.options else ""),
            command=command,
        )


def _format_observed(value: object) -> str:
    return "not applied" if value is None else f"in effect {format_observed(value)}"


def not_observed(situation: Situation) -> Finding | None:
    """The observer does not run in the training's Python, so that only its output is read."""
    state = situation.state
    if state.unobserved is None or process_steps(situation):
        return None
    return Finding(
        cause="not-observed",
        severity="hint",
        sentence=f"Not observed, because {state.unobserved}",
        evidence=("steps, loss and speed are read from the output; settings cannot be injected",),
        confidence="certain",
    )


def fallback_cannot_act(situation: Situation) -> Finding | None:
    """The run asked for the automatic fallback, which no restart of this training could carry out."""
    job = situation.job
    if job is None or not job.fallback or situation.state.outcome is not None or not situation.has_own_loop:
        return None
    return Finding(
        cause="no-fallback",
        severity="warning",
        sentence="OOM retries do not work for this training",
        evidence=(
            "it has its own loop, without a Trainer: accumulation cannot make up for a smaller micro batch, "
            "and nothing would resume it",
        ),
        confidence="certain",
        remedies=remedies_for("no-fallback", situation),
    )


def not_resumed(situation: Situation) -> Finding | None:
    """Steps count from 0 although the launch named a checkpoint.

    Only a Trainer reports its first step; nothing is known of a loop that loads `{checkpoint}` itself.
    """
    state = situation.state
    if (
        situation.resumed_from is None
        or not state.accepts_orders
        or state.first_step > 0
        or not process_steps(situation)
    ):
        return None
    return Finding(
        cause="not-resumed",
        severity="warning",
        sentence="A checkpoint was given, but the training started at step 0",
        evidence=(f"launched with {situation.resumed_from}", "Trainer reports that its first step is 0"),
        confidence="certain",
        remedies=(
            Remedy(
                title="stop it and make the script load the checkpoint",
                why="put {checkpoint} where the command takes the path, or call train(resume_from_checkpoint=…); "
                "this training started from the initial weights",
            ),
        ),
    )


def shared_output(situation: Situation) -> Finding | None:
    """Another run wrote to the same output folder when this one was launched."""
    if not situation.shared_outputs:
        return None
    return Finding(
        cause="shared-output",
        severity="warning",
        sentence=f"Two trainings write to the same folder: {situation.shared_outputs[0]}",
        evidence=("their checkpoints overwrite each other, and neither can be resumed safely",),
        confidence="certain",
        where="checkpoint",
        remedies=(
            Remedy(
                title="give each run its own output folder",
                why="put {output_dir} where the command takes the folder; the run's own folder is filled in",
                effect="every run keeps its checkpoints",
                source="tuner-tui run",
            ),
        ),
    )
