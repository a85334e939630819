"""Diagnosis of a run: every rule applied to its situation, findings ordered worst first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings import gpu, host, wall_time
from tuner_tui.advice.findings.data_loading import data_wait
from tuner_tui.advice.findings.memory_leak import memory_grows
from tuner_tui.advice.findings.non_finite import loss_scale, non_finite_values
from tuner_tui.advice.findings.not_applied import not_resumed, settings_not_in_effect
from tuner_tui.advice.findings.wall_time import between_steps, no_steps, stalled
from tuner_tui.advice.situation import Situation

FindingRule = Callable[[Situation], Finding | None]


RULES: tuple[FindingRule, ...] = (
    gpu.lost_gpu,
    gpu.driver_error,
    stalled,
    non_finite_values,
    memory_grows,
    host.swapping,
    host.cpu_contended,
    data_wait,
    wall_time.evaluation_share,
    wall_time.save_share,
    gpu.throttled,
    gpu.other_process,
    not_resumed,
    no_steps,
    settings_not_in_effect,
    loss_scale,
    host.host_memory_near_limit,
    host.small_shm,
    host.disk_nearly_full,
    gpu.gpu_memory_near_limit,
    gpu.compiling,
    gpu.gpu_underused,
    gpu.launch_bound,
    between_steps,
    gpu.slow_kernels,
    wall_time.padding,
)
"""The measured breakdown of the step before thresholds on single figures; the order is the rank within a severity,
where the cost is not measured."""

SEVERITY_RANK = {"failed": 0, "warning": 1, "hint": 2}


def diagnose(situation: Situation) -> tuple[Finding, ...]:
    """Every finding of this moment, worst first; empty where nothing is wrong. Pure: feed it through `Steadiness`."""
    live = [finding for rule in RULES if (finding := rule(situation)) is not None]
    if situation.is_alive:
        return rank_findings(live)
    from tuner_tui.advice.crash.cause import crash_findings  # its patterns are many, and a run that lives needs none

    return rank_findings((*crash_findings(situation), *live))


def rank_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """By severity. Those of one severity whose cost is measured stand by it among themselves, the dearest first.

    A box that others use slows everything down a little; what the training loses by itself may be much more.
    """
    ordered = sorted(findings, key=lambda finding: SEVERITY_RANK[finding.severity])
    for severity in SEVERITY_RANK:
        places = [n for n, one in enumerate(ordered) if one.severity == severity and one.lost_share is not None]
        dearest = sorted((ordered[n] for n in places), key=lambda one: -(one.lost_share or 0.0))
        for place, finding in zip(places, dearest, strict=True):
            ordered[place] = finding
    return tuple(ordered)
