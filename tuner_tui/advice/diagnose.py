"""From a situation to its findings: what failed first, then what slows the run down, worst first."""

from __future__ import annotations

from collections.abc import Sequence

from tuner_tui.advice.finding import Finding
from tuner_tui.advice.rules import card, host, shares, utilisation
from tuner_tui.advice.rules.between_steps import between_steps
from tuner_tui.advice.rules.data_wait import data_wait
from tuner_tui.advice.rules.in_effect import not_in_effect
from tuner_tui.advice.rules.memory_grows import memory_grows
from tuner_tui.advice.rules.numbers import loss_scaled, not_finite
from tuner_tui.advice.rules.resumed import not_resumed
from tuner_tui.advice.rules.rule import Rule
from tuner_tui.advice.rules.stall import stalled
from tuner_tui.advice.rules.stepless import no_step
from tuner_tui.advice.situation import Situation

RULES: tuple[Rule, ...] = (
    card.lost_card,
    card.driver_error,
    stalled,
    not_finite,
    memory_grows,
    host.swapping,
    host.others_use_cpu,
    data_wait,
    shares.evaluation_share,
    shares.save_share,
    card.throttled,
    card.other_process,
    not_resumed,
    no_step,
    not_in_effect,
    loss_scaled,
    host.memory_near_limit,
    host.small_shm,
    host.disk_nearly_full,
    card.memory_near_limit,
    utilisation.compiling,
    utilisation.underused,
    utilisation.launch_bound,
    between_steps,
    utilisation.slow_kernels,
    shares.padding,
)
"""The measured breakdown of the step before thresholds on single figures; the order is the rank within a severity,
where the cost is not measured."""

RANK = {"failed": 0, "warning": 1, "hint": 2}


def diagnose(situation: Situation) -> tuple[Finding, ...]:
    """Every finding of this moment, worst first; empty where nothing is wrong. Pure: feed it through `Steadiness`."""
    live = [finding for rule in RULES if (finding := rule(situation)) is not None]
    if situation.lives:
        return ranked(live)
    from tuner_tui.advice.crash import crash_findings  # its patterns are many, and a run that lives needs none

    return ranked((*crash_findings(situation), *live))


def ranked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """By severity. Those of one severity whose cost is measured stand by it among themselves, the dearest first.

    A box that others use slows everything down a little; what the training loses by itself may be much more.
    """
    ordered = sorted(findings, key=lambda finding: RANK[finding.severity])
    for severity in RANK:
        places = [n for n, one in enumerate(ordered) if one.severity == severity and one.lost_share is not None]
        dearest = sorted((ordered[n] for n in places), key=lambda one: -(one.lost_share or 0.0))
        for place, finding in zip(places, dearest, strict=True):
            ordered[place] = finding
    return tuple(ordered)
