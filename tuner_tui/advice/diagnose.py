"""Diagnosis of a run: every rule applied to its situation, findings ordered worst first and kept from flickering."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.advice import thresholds
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings import gpu, memory, non_finite, not_applied, step_time
from tuner_tui.advice.findings.rows import warned
from tuner_tui.advice.situation import Situation
from tuner_tui.core.files import read_data_file
from tuner_tui.runs.events.progress import rates_of, since_its_start
from tuner_tui.runs.events.run_state import RunState

FindingRule = Callable[[Situation], Finding | None]

WARNED: tuple[FindingRule, ...] = (partial(warned, "schedule-first"), partial(warned, "recompiled"))

RULES: tuple[FindingRule, ...] = (
    gpu.lost_gpu, gpu.driver_error, step_time.stalled, non_finite.non_finite_values, non_finite.diverged,
    non_finite.no_effect, non_finite.kept_gradients, non_finite.left_in_eval, memory.memory_grows, memory.swapping,
    step_time.cpu_contended, step_time.data_wait, step_time.slow_rank, step_time.evaluation_share, step_time.save_share,
    gpu.throttled, gpu.other_process, not_applied.not_resumed, not_applied.unfaithful_resume, not_applied.same_data,
    not_applied.shared_output, step_time.no_steps, not_applied.settings_not_in_effect, not_applied.fallback_cannot_act,
    not_applied.not_observed, non_finite.loss_scale, memory.host_memory_near_limit, memory.small_shm,
    memory.disk_nearly_full, gpu.gpu_memory_near_limit, gpu.compiling, *WARNED, gpu.gpu_underused,
    gpu.launch_bound, step_time.own_code, step_time.between_steps, gpu.slow_kernels, gpu.gpu_memory_unused,
    step_time.padding, step_time.worker_warning, non_finite.loss_spikes,
)  # fmt: skip
"""All rules. Among findings of one severity without a measured cost, this order is kept; rules on the measured
breakdown of a step come before rules on single figures."""

LOG_RULES: tuple[FindingRule, ...] = (non_finite.diverged, *WARNED, step_time.worker_warning)
"""Rules that read the log: a log without a run is all they need, and the others have nothing to judge."""

SPEED_RULES: tuple[FindingRule, ...] = (
    step_time.cpu_contended, step_time.data_wait, step_time.slow_rank, step_time.evaluation_share, step_time.save_share,
    gpu.throttled, gpu.gpu_underused, gpu.launch_bound, step_time.own_code, step_time.between_steps, gpu.slow_kernels,
    gpu.gpu_memory_unused, step_time.padding, step_time.worker_warning,
)  # fmt: skip
"""Rules that judge a training while it runs; one that has ended keeps their findings."""
PAST_RULES = frozenset({
    *SPEED_RULES, non_finite.non_finite_values, non_finite.diverged, non_finite.loss_spikes, non_finite.no_effect,
    non_finite.kept_gradients, non_finite.left_in_eval,
})  # fmt: skip
"""Rules on what a training does, which one that has ended did."""
PAST_TENSE = Path(step_time.__file__).with_name("past_tense.yaml")
JUDGED_OUTCOMES = ("completed", "stopped")

SEVERITY_RANK = {"failed": 0, "warning": 1, "hint": 2}


def diagnose(situation: Situation) -> tuple[Finding, ...]:
    """All findings for a situation, worst first; empty if nothing is wrong. Smooth live results with
    `FindingHysteresis`."""
    if situation.is_alive:
        findings = [finding for rule in RULES if (finding := rule(situation)) is not None]
    else:
        from tuner_tui.advice.crash.findings import crash_findings  # not needed while a run trains

        crashes = crash_findings(situation)
        causes = {finding.cause for finding in crashes}
        findings = [*crashes, *(each for each in _findings_after_the_end(situation) if each.cause not in causes)]
    return rank_findings(non_finite.with_suspects(findings, situation))


def _findings_after_the_end(situation: Situation) -> list[Finding]:
    """The findings in the order of the rules, with those on the speed of the run as of its last step."""
    training, findings = _at_its_last_step(situation), list[Finding]()
    for rule in LOG_RULES if situation.state == RunState() else RULES:
        finding = rule(situation if training is None or rule not in SPEED_RULES else training)
        if finding is not None and finding.cause not in {earlier.cause for earlier in findings}:
            findings.append(in_past_tense(finding) if rule in PAST_RULES else finding)
    return findings


def in_past_tense(finding: Finding) -> Finding:
    """The finding with its sentence and its evidence as they are said of a run that has ended."""
    phrases = read_data_file(PAST_TENSE)
    pattern = re.compile(rf"\b({'|'.join(phrases)})\b")
    past = partial(pattern.sub, lambda phrase: phrases[phrase[0]])
    return replace(finding, sentence=past(finding.sentence), evidence=tuple(map(past, finding.evidence)))


def _at_its_last_step(situation: Situation) -> Situation | None:
    """The situation when a run that has ended made its last step, with the rates of all its steps.

    None if its speed is not judged.
    """
    state = situation.state
    if state.outcome not in JUDGED_OUTCOMES or state.last_step_t is None:
        return None
    last_s, ranks = state.last_step_t, {key: since_its_start(rank) for key, rank in state.ranks.items()}
    rates = rates_of(ranks.values())  # those of the card, not those of the last seconds
    return replace(
        situation,
        now_s=last_s,
        state=replace(state, phase="training", finished=None, exited=None, ranks=ranks, rates=rates),
        samples=tuple(sample for sample in situation.samples if sample.time_s <= last_s),
    )


def rank_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Sorts findings by severity; those with a measured cost by `_cost`, highest first, among themselves.

    Findings without a measured cost keep their places. So contention by other programs, which costs a little
    everywhere, does not hide a loss inside the training that is larger or has a remedy with an expected gain.
    """
    # Those with a cost are sorted among the places that they have, so that the order of `RULES` holds for the others.
    ordered = sorted(findings, key=lambda finding: SEVERITY_RANK[finding.severity])
    measured = (finding for finding in ordered if finding.lost_share is not None)
    dearest = iter(sorted(measured, key=lambda finding: (SEVERITY_RANK[finding.severity], -_cost(finding))))
    return tuple(finding if finding.lost_share is None else next(dearest) for finding in ordered)


class TrackedFinding(Struct, frozen=True):
    """The newest finding of one cause, since when it holds, and when it was last seen."""

    finding: Finding
    since_s: float
    seen_s: float
    shown: bool


class FindingHysteresis(Struct, frozen=True):
    """The findings tracked so far. Pass each diagnosis to `after`; read `shown`.

    A finding appears after `appear_s` seconds and disappears after `vanish_s` seconds; failures and nan appear at once.
    Those of one severity keep their order for `ORDER_S` seconds and while their costs are close, or until one has
    ended. Then the order is that of the newest diagnosis, with findings that are about to disappear last.
    """

    held: tuple[TrackedFinding, ...] = ()
    ordered_s: float = 0.0
    appear_s: float = thresholds.APPEAR_S
    vanish_s: float = thresholds.VANISH_S

    @property
    def shown(self) -> tuple[Finding, ...]:
        """The findings to show now."""
        return tuple(held.finding for held in self.held if held.shown)

    def after(self, findings: Collection[Finding], now_s: float) -> FindingHysteresis:
        """The state after one more diagnosis at `now_s`, seconds since the epoch."""
        # Figures near a threshold cross it every few seconds: without a delay in both directions, findings would come
        # and go under the reader's eyes, and the selected one with them.
        earlier = {finding_key(held.finding): held for held in self.held}
        gone = earlier.keys() - {finding_key(finding) for finding in findings}
        lingering = [
            held
            for held in self.held
            if finding_key(held.finding) in gone
            and (held.shown and held.finding.severity != "failed" and now_s - held.seen_s < self.vanish_s)
        ]
        # Between two locations of one cause that are about as likely, the diagnosis changes: the first stays meanwhile.
        disputed = {held.finding.cause for held in lingering}
        present = [
            self._seen(finding, earlier.get(finding_key(finding)), now_s, finding.cause in disputed)
            for finding in findings
        ]
        newest, shown = (*present, *lingering), {finding_key(finding) for finding in self.shown}
        ended = not shown <= {finding_key(held.finding) for held in newest}
        order = {key: position for position, key in enumerate(earlier)}

        def rank(held: TrackedFinding) -> tuple[int, bool, int]:
            position = order.get(finding_key(held.finding), len(order))
            return SEVERITY_RANK[held.finding.severity], not _is_urgent(held.finding), position

        overtakes = now_s - self.ordered_s >= thresholds.ORDER_S and any(
            rank(upper) > rank(lower) and _costs_more(upper.finding, lower.finding)
            for upper, lower in combinations(newest, 2)
        )
        if not shown or ended or overtakes:
            return replace(self, held=newest, ordered_s=now_s)
        return replace(self, held=tuple(sorted(newest, key=rank)))

    def _seen(
        self, finding: Finding, earlier: TrackedFinding | None, now_s: float, is_disputed: bool
    ) -> TrackedFinding:
        since_s = now_s if earlier is None else earlier.since_s
        shown = (earlier is not None and earlier.shown) or _is_urgent(finding)
        if earlier is not None and earlier.shown:
            # A computed value, such as a number of workers, changes with each second: what was read is applied.
            names = [[remedy.name for remedy in each.remedies] for each in (earlier.finding, finding)]
            finding = replace(finding, remedies=earlier.finding.remedies) if names[0] == names[1] else finding
        lasts = now_s - since_s >= self.appear_s and not is_disputed
        return TrackedFinding(finding, since_s, now_s, shown or lasts)


def _is_urgent(finding: Finding) -> bool:
    """Whether it is shown at once, first of its severity: a loss that is nan does not flicker, and steps are wasted."""
    return finding.severity == "failed" or (finding.cause == "nan" and finding.confidence == "certain")


def _cost(finding: Finding) -> float:
    """`lost_share`, above that of any finding whose remedies promise nothing if one here can be applied and does."""
    gains = any(remedy.speed is not None and remedy.speed[1] > 1 for remedy in finding.remedies if remedy.can_apply)
    return (finding.lost_share or 0.0) + gains


def _costs_more(finding: Finding, than: Finding) -> bool:
    """Whether a finding that ranks above another does so clearly: between close costs places would change for ever."""
    if finding.lost_share is None or than.lost_share is None:
        return True
    return _cost(finding) >= _cost(than) + thresholds.ORDER_SHARE


def finding_key(finding: Finding) -> tuple[str, str | None]:
    """The identity of a finding: cause and location."""
    return finding.cause, finding.where
