"""Findings and remedies: something wrong or improvable, its evidence, and the changes that answer it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field, structs

from tuner_tui.advice.expected_memory import ExpectedPeak
from tuner_tui.runs.log_parsing.lines import Confidence
from tuner_tui.settings.job import CommandJob, Job
from tuner_tui.settings.model import AppliedRemedy, Origin, OriginKind, Settings, Value

FindingSeverity = Literal["failed", "warning", "hint"]


class Remedy(Struct, frozen=True):
    """A change of settings that addresses a finding.

    `change` maps settings to new values; it is empty if the remedy lies outside the settings. `effect` is the expected
    effect, `rests_on` what that expectation is based on, `source` the document, rule or measurement. `peak` is the GPU
    memory that the change leads to; None if it is unknown, or the change does not affect it. `command`, if any,
    has placeholders and replaces the job's; `env` are variables that the job is to set. `batch_note` says how the
    effective batch changes; empty if it does not. `name` is its row in `remedies.yaml`, `speed` the bounds of the
    samples per second that `effect` promises, relative to those now. `edits_line`: only
    who wrote the line that failed can follow it.
    """

    title: str
    why: str
    change: Mapping[str, Value] = field(default_factory=dict)
    effect: str = ""
    rests_on: str = ""
    source: str = ""
    peak: ExpectedPeak | None = None
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    batch_note: str = ""
    name: str = ""
    speed: tuple[float, float] | None = None
    edits_line: bool = False

    def origin(self, cause: str, run: str | None, settings: Settings, env: Mapping[str, str]) -> Origin:
        """The origin of values that are set for a finding on `run` in place of those in `settings` and `env`."""
        if run is None:
            return Origin(OriginKind.REMEDY, cause)
        follows = ["dataloader_prefetch_factor"] if "dataloader_num_workers" in self.change else []  # None without any
        before = {name: getattr(settings, name) for name in (*self.change, *follows)}
        peak_bytes = None if self.peak is None else self.peak.high_bytes
        env_before = {name: env.get(name) for name in self.env}
        applied = AppliedRemedy(self.name, self.title, cause, run, before, self.speed, peak_bytes, env_before)
        return Origin(OriginKind.REMEDY, f"since {run}", applied)

    @property
    def can_apply(self) -> bool:
        """Whether the program can carry it out: it changes settings, the command or its environment."""
        return bool(self.change or self.command or self.env)

    def applied_to(self, job: Job) -> Job:
        """`job` with the variables of this remedy, and its command in place of a user's."""
        changed = structs.replace(job, env={**job.env, **self.env})
        if not self.command or not isinstance(changed, CommandJob):
            return changed
        return structs.replace(changed, command=self.command, apply="placeholders")

    @property
    def expectation(self) -> str:
        """The expected effect, with the change of the effective batch and the peak memory."""
        return "; ".join(filter(None, (self.batch_note, self.gain)))

    @property
    def gain(self) -> str:
        """The expected effect with the peak memory."""
        return "; ".join(filter(None, (self.effect, self.peak.sentence if self.peak else "")))


SAME_SPEED = 0.015
"""Speeds that differ by less are called the same."""


def speed_words(*ratios: float) -> str:
    """`31 % slower`, or `20 to 13 % slower` of bounds: speeds relative to another."""
    words = list(dict.fromkeys(map(_speed_word, sorted(ratios))))
    first, _, end = words[0].partition(" % ")
    return f"{first} to {words[-1]}" if len(words) > 1 and end in words[-1] else " to ".join(words)


def _speed_word(ratio: float) -> str:
    if abs(ratio - 1) < SAME_SPEED:
        return "as fast"
    if ratio >= 2:
        return f"{ratio:.{ratio < 10:d}f}× as fast"
    return f"{abs(ratio - 1) * 100:.0f} % {'faster' if ratio > 1 else 'slower'}"


class Finding(Struct, frozen=True):
    """A problem or a possible improvement. `cause` is a stable identifier such as `gpu-oom` or `data-wait`.

    `lost_share` is the measured share of the run's time that it costs, 0 to 1; None if it is not measured.
    """

    cause: str
    severity: FindingSeverity
    sentence: str
    evidence: tuple[str, ...]
    confidence: Confidence
    where: str | None = None
    remedies: tuple[Remedy, ...] = ()
    lost_share: float | None = None

    @property
    def headline(self) -> str:
        """The sentence, with how sure it is where it is not certain."""
        return self.sentence if self.confidence == "certain" else f"{self.sentence} ({self.confidence})"
