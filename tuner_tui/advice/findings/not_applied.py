"""What was requested at launch and did not happen: settings not in effect, a checkpoint not resumed."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator

from msgspec.structs import replace

from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.findings.rows import finding
from tuner_tui.advice.findings.run_metrics import process_steps
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.remedies.table import remedy
from tuner_tui.advice.settings_check import differing_settings, unreachable_settings
from tuner_tui.advice.situation import Situation
from tuner_tui.core.text import format_observed
from tuner_tui.settings.argv import placeholder_command
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import FIELDS

MIN_REPEATED_STEPS = 20
"""Fewer steps with the same rows may be a warm-up on one batch."""
SETTLED_STEPS = 3
"""Values in effect arrive with the first counters; late ones, such as autocast, are there after this many steps."""


def settings_not_in_effect(situation: Situation) -> Finding | None:
    """What never reached the training is known at once, other differences once it has done some steps."""
    unreachable = unreachable_settings(situation)
    settled = process_steps(situation) >= SETTLED_STEPS
    marks = [mark for mark in differing_settings(situation) if settled or mark.name in unreachable]
    if not marks:
        return None
    names = ", ".join(mark.name for mark in marks[:4]) + (f" and {len(marks) - 4} more" if len(marks) > 4 else "")
    evidence = (
        f"{mark.name}: requested {format_observed(mark.asked)}, "
        + ("not applied" if mark.seen is None else f"in effect {format_observed(mark.seen)}")
        + (f"; {mark.why}" if mark.why else "")
        for mark in marks
    )
    listed = remedies_for("not-in-effect", situation, "unreachable" if unreachable else None)
    remedies = (*_placeholder_remedy(situation, unreachable), *listed)
    return finding("not-in-effect", situation, *evidence, remedies=remedies, names=names)


def _placeholder_remedy(situation: Situation, names: Collection[str]) -> Iterator[Remedy]:
    """The command with placeholders in the flags that look like the settings `names`, if it has such flags."""
    job = situation.job
    if not isinstance(job, CommandJob) or job.apply not in ("inject", "none"):
        return
    flags = placeholder_command(job.command, [name for name in FIELDS if name in names], situation.state.options)
    if flags is None:
        return
    command, carried = flags
    accepted = " and those its parser accepts" if situation.state.options else ""
    run = f"tuner-tui run -- {shlex.join(command)}"
    passed = remedy("own-flags", {}, names=", ".join(carried), command=run, accepted=accepted)
    yield replace(passed, command=command)


def not_observed(situation: Situation) -> Finding | None:
    state = situation.state
    steps = [rank.latest for rank in state.ranks.values() if rank.latest is not None]
    if state.unobserved is None or any(counters.source is None and counters.own_steps for counters in steps):
        return None  # the steps of a `source` are those that the output shows
    evidence = "steps, loss and speed are read from the output; settings cannot be injected"
    return finding("not-observed", situation, evidence, reason=state.unobserved.reason)


def fallback_cannot_act(situation: Situation) -> Finding | None:
    job = situation.job
    if job is None or not job.fallback or situation.state.outcome is not None or not situation.has_own_loop:
        return None
    evidence = (
        "it has its own loop, without a Trainer: accumulation cannot make up for a smaller micro batch, "
        "and nothing would resume it"
    )
    return finding("no-fallback", situation, evidence)


def not_resumed(situation: Situation) -> Finding | None:
    """Only a Trainer reports its first step; nothing is known of a loop that loads `{checkpoint}` itself."""
    state, checkpoint = situation.state, situation.resumed_from
    if checkpoint is None or not state.accepts_orders or state.first_step > 0 or not process_steps(situation):
        return None
    evidence = (f"launched with {checkpoint}", "Trainer reports that its first step is 0")
    return finding("not-resumed", situation, *evidence)


def unfaithful_resume(situation: Situation) -> Finding | None:
    """Not where the training started from step 0 altogether, which is a finding of its own."""
    check = situation.resume
    if check is None or not check.mismatches or not_resumed(situation) is not None:
        return None
    first, *further = check.mismatches
    evidence = (f"compared with {check.parent} from step {check.step:,} on", *(each.sentence for each in further))
    return finding("unfaithful-resume", situation, *evidence, difference=first.sentence)


def shared_output(situation: Situation) -> Finding | None:
    if not situation.shared_outputs:
        return None
    evidence = "their checkpoints overwrite each other, and neither can be resumed safely"
    return finding("shared-output", situation, evidence, folder=situation.shared_outputs[0])


def same_data(situation: Situation) -> Finding | None:
    """Nothing connects the ranks, or all train on the same rows, as those of a divided model have to."""
    steps, ranks, job = situation.suspects.repeated_steps, len(situation.state.ranks), situation.job
    is_divided = job is not None and job.copies(ranks) != ranks
    if situation.state.unconnected:
        return finding("not-connected", situation, "they exchange no gradients", ranks=ranks)
    if steps < MIN_REPEATED_STEPS or situation.state.independent or is_divided:
        return None
    return finding("same-data", situation, f"the rows of all ranks are equal in {steps} of {steps} steps", ranks=ranks)
