"""Findings and remedies: something wrong or improvable, its evidence, and the changes that answer it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuner_tui.runs.log_parsing.crash_patterns.pattern import Confidence

Value = str | int | float | bool | None
FindingSeverity = Literal["failed", "warning", "hint"]


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of settings that answers a finding.

    `change` maps settings names to new values (empty where the answer lies outside the settings); `effect` says
    what to expect, `rests_on` what that expectation rests on, `source` the document, rule or measurement.
    """

    title: str
    why: str
    change: Mapping[str, Value] = field(default_factory=dict)
    effect: str = ""
    rests_on: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong or improvable. `cause` is a stable identifier such as `gpu-oom` or `data-wait`.

    `lost_share` is the share of the run's time that it costs by measurement, 0 to 1; None where that is not measured.
    """

    cause: str
    severity: FindingSeverity
    sentence: str
    evidence: tuple[str, ...]
    confidence: Confidence
    where: str | None = None
    remedies: tuple[Remedy, ...] = ()
    lost_share: float | None = None
