"""Compares two runs: settings, measured figures, and losses after the same number of samples.

Losses are compared by samples, not by steps, because steps differ where effective batches do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from tuner_tui.core.units import UNKNOWN, format_share, format_size
from tuner_tui.memory.device import interpolate
from tuner_tui.runs.events.progress import Series, finite, mean_rates
from tuner_tui.runs.read.measured_memory import allocated_at_failure, lacks_gpu_peak
from tuner_tui.runs.read.reader import RunView
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import FIELDS, WEAK_ORIGINS, Settings, Value

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Where losses are compared: shares of the samples that both runs have seen."""
SAME_BATCH = 0.05
"""Measured batches that differ by a smaller share are the same one: the last of an epoch is smaller."""


class OriginText(Struct, frozen=True):
    """The origin of a value: the kind of source, and its name or the reason."""

    kind: str
    name: str


UNKNOWN_KIND = "unknown"
UNKNOWN_SETTING: tuple[Value, OriginText] = (None, OriginText(UNKNOWN_KIND, ""))
OPEN_VALUES = (None, "auto")
"""Values that leave the choice to the tool."""


class ChangedSetting(Struct, frozen=True):
    """A setting that differs in effect, and the origin of each value: `not known` for a value that is unknown."""

    name: str
    first: Value
    second: Value
    first_origin: OriginText
    second_origin: OriginText


class MeasuredFigure(Struct, frozen=True):
    """One measured figure of both runs; None where unknown. `unit` is `share` for a share from 0 to 1."""

    name: str
    unit: str
    first: float | None
    second: float | None

    @property
    def ratio(self) -> float | None:
        """The second divided by the first; None where either is unknown or 0."""
        return self.second / self.first if self.first and self.second else None


class LossAt(Struct, frozen=True):
    """Both losses after the same number of samples: logged ones, interpolated where none is near in both."""

    samples: int
    first: float
    second: float


class Difference(Struct, frozen=True):
    """Another difference: a version, a value in effect, the commit. None where one run does not know it."""

    name: str
    first: Any
    second: Any


class Comparison(Struct, frozen=True):
    """All differences of two runs; `doubt` says why they compare badly, such as different jobs, or is empty.

    `environment` are variables that were set for the runs. `in_effect` are facts that are no settings; empty unless
    both runs were `observed`. `loss_noise` is the standard deviation of the difference of two logged losses, one of
    each run, around their trends. `loss_problems` say since when the loss of each run is not finite, empty where it is.
    """

    settings: tuple[ChangedSetting, ...]
    figures: tuple[MeasuredFigure, ...]
    loss: tuple[LossAt, ...]
    eval_loss: tuple[LossAt, ...]
    in_effect: tuple[Difference, ...]
    versions: tuple[Difference, ...]
    code: tuple[Difference, ...]
    doubt: str = ""
    observed: tuple[bool, bool] = (True, True)
    loss_noise: float = 0.0
    loss_problems: tuple[str, str] = ("", "")
    environment: tuple[Difference, ...] = ()


def compare(first: RunView, second: RunView, doubt: str = "") -> Comparison:
    facts = [
        {name: value for name, value in view.state.in_effect.items() if name not in FIELDS} for view in (first, second)
    ]
    rows = measured_figures(first), measured_figures(second)
    units = {name: unit for name, unit, _ in (*rows[0], *rows[1])}
    before, after = ({name: value for name, _, value in figures} for figures in rows)
    return Comparison(
        settings=changed_settings(first, second),
        figures=tuple(MeasuredFigure(name, unit, before.get(name), after.get(name)) for name, unit in units.items()),
        loss=compare_losses(first, second, first.history.loss, second.history.loss),
        eval_loss=compare_losses(first, second, first.history.eval_loss, second.history.eval_loss),
        in_effect=find_differences(*(facts if all(facts) else ({}, {}))),
        versions=find_differences(package_versions(first), package_versions(second)),
        code=find_differences(provenance(first), provenance(second)),
        doubt=doubt,
        observed=(bool(first.state.in_effect), bool(second.state.in_effect)),
        loss_noise=math.hypot(*(loss_noise(view.history.loss.ys) for view in (first, second))),
        loss_problems=(first.state.loss_problem, second.state.loss_problem),
        environment=find_differences(*({} if view.record is None else view.record.job.env for view in (first, second))),
    )


def changed_settings(first: RunView, second: RunView) -> tuple[ChangedSetting, ...]:
    """The settings whose values in effect differ: first those that a person chose, last those known of one run only."""
    passed, observed = (passed_settings(first), passed_settings(second)), (_observed(first), _observed(second))
    rows = []
    for name in FIELDS:
        sides = [_in_effect(name, *values) for values in zip(passed, observed, strict=True)]
        if sum(name in values for values in observed) == 1 and any(value in OPEN_VALUES for value, _ in sides):
            # What was left to the tool is known of the observed run only: compare what both were asked for.
            sides = [values.get(name, UNKNOWN_SETTING) for values in passed]
        (before, old), (after, new) = sides
        chosen = any(origin.kind not in (*WEAK_ORIGINS, UNKNOWN_KIND) for origin in (old, new))
        both_known = UNKNOWN_KIND not in (old.kind, new.kind)
        if (not same_value(before, after)) if both_known else (chosen and old != new):
            rows.append((not both_known, not chosen, ChangedSetting(name, before, after, old, new)))
    return tuple(row for *_, row in sorted(rows, key=lambda row: row[:2]))


def passed_settings(view: RunView) -> dict[str, tuple[Value, OriginText]]:
    """The settings that were passed to the training: all to the built-in job, to a command those chosen for it."""
    record = view.record
    if record is None:
        return {}
    job, resolved = record.job, record.resolved
    unreached = {*record.not_applied, *view.state.not_injected}
    names = FIELDS.keys() if isinstance(job, BuiltinJob) else resolved.origins if job.apply != "none" else ()
    origins = {name: resolved.origin(name) for name in names if name not in unreached}
    return {
        name: (getattr(resolved.settings, name), OriginText(origin.kind.value, origin.detail))
        for name, origin in origins.items()
    }


def _observed(view: RunView) -> dict[str, Value]:
    return {name: value for name, value in view.state.in_effect.items() if name in FIELDS and value is not None}


def _in_effect(
    name: str, passed: Mapping[str, tuple[Value, OriginText]], observed: Mapping[str, Value]
) -> tuple[Value, OriginText]:
    """The value and where it comes from; a value that is not what was passed was observed in the run."""
    value, origin = passed.get(name, UNKNOWN_SETTING)
    if name not in observed or (origin.kind != UNKNOWN_KIND and same_value(value, observed[name])):
        return value, origin
    return observed[name], OriginText("observed", "in the run")


def same_value(first: Any, second: Any) -> bool:
    """Whether two values are the same, of a figure up to its rounding."""
    numbers = (int, float)
    if isinstance(first, numbers) and isinstance(second, numbers):
        return math.isclose(first, second, rel_tol=1e-6)
    return bool(first == second)


def measured_figures(view: RunView) -> list[tuple[str, str, float | None]]:
    """The figures of one run: name, unit, value."""
    ranks, rates = view.state.counters, mean_rates(view.state.ranks.values())
    step, a_step = view.state.step, samples_a_step(view)
    peak = allocated_at_failure(view.state) if lacks_gpu_peak(view.state) else _last_value(view.history.memory_bytes)
    rows: list[tuple[str, str, float | None]] = [
        ("throughput", "samples/s", rates.samples_s),
        ("tokens", "tokens/s", rates.tokens_s),
        ("step time", "s", rates.step_time_s),
        ("data wait", "share", rates.data_wait_share),
        ("padding", "share", rates.padding_share),
        ("peak memory", "B", peak),
        ("evaluation", "s", max((rank.eval_s for rank in ranks), default=None)),
        ("saving", "s", max((rank.save_s for rank in ranks), default=None)),
        ("effective batch", "samples", a_step),
        ("steps", "steps", None if step is None else float(step)),
        ("samples", "samples", None if step is None or a_step is None else step * a_step),  # with those before a resume
        ("loss, last logged", "", None if view.state.loss_problem else _last_value(view.history.loss)),
    ]
    last = view.state.evaluations[-1].results if view.state.evaluations else {}
    rows += [(name, "", finite(value)) for name, value in last.items()]
    return rows


def compare_losses(first: RunView, second: RunView, first_series: Series, second_series: Series) -> tuple[LossAt, ...]:
    """Both losses at shares of the samples that both runs have seen; empty if either run has none."""
    # Both curves are read at the same numbers of samples: a quarter, half, three quarters and all of what both have
    # seen. A resumed run begins later; places before its first loss move to it.
    before, after = samples_a_step(first), samples_a_step(second)
    if before is not None and after is not None and math.isclose(before, after, rel_tol=SAME_BATCH):
        after = before
    curves = [over_samples(first_series, before), over_samples(second_series, after)]
    if not all(curves):
        return ()
    start, end = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    wanted = {max(start, share * end) for share in SHARES} if start <= end else set()
    # Between two logged values the noise of neither run is known: two runs of one seed would differ there.
    logged = {x for x, _ in curves[0]} & {x for x, _ in curves[1]}
    within = end / len(SHARES) / 2
    near = {x: [step for step in logged if abs(step - x) <= within] for x in wanted}
    samples = sorted({min(values, key=lambda value: abs(value - x), default=x) for x, values in near.items()})
    return tuple(LossAt(round(x), interpolate(curves[0], x), interpolate(curves[1], x)) for x in samples)


NOISE_POINTS = 40


def loss_noise(losses: Sequence[float | None]) -> float:
    """Return the standard deviation of the last logged losses around their trend; 0 for fewer than three."""
    # A loss minus the mean of its neighbours has no trend left, and 1.5 times the variance of one loss.
    last = [loss for loss in losses if loss is not None and math.isfinite(loss)][-NOISE_POINTS:]
    bends = [y - (x + z) / 2 for x, y, z in zip(last, last[1:], last[2:], strict=False)]
    return math.sqrt(sum(bend * bend for bend in bends) / len(bends) / 1.5) if bends else 0.0


def samples_a_step(view: RunView, settings: Settings | None = None) -> float | None:
    """The measured effective batch, or where nothing was counted that of `settings`, else of those of the record."""
    counters = view.state.counters
    if counters and all(rank.own_steps > 0 and rank.samples > 0 for rank in counters):
        return sum(rank.samples / rank.own_steps for rank in counters)
    if settings is None:
        if view.record is None:
            return None
        settings = view.record.resolved.settings
    return float(settings.effective_batch(view.state.replicas or max(1, len(view.state.ranks))))


def find_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Difference, ...]:
    """The entries in which two mappings differ, ordered by name."""
    differences = (Difference(name, first.get(name), second.get(name)) for name in sorted({*first, *second}))
    return tuple(difference for difference in differences if difference.first != difference.second)


def package_versions(view: RunView) -> dict[str, Any]:
    """Package versions: those of the launch, else those the process reported."""
    return {**view.state.versions, **({} if view.record is None else view.record.versions)}


def provenance(view: RunView) -> dict[str, Any]:
    record = view.record
    if record is None:
        return {}
    names = ("preset", "host", "cwd", "interpreter", "git_sha", "git_dirty", "program_version", "memory_limit_bytes")
    job = to_builtins(record.job)
    job.pop("env", None)  # compared by itself
    return {**{name: getattr(record, name) for name in names}, "job": job}


def over_samples(series: Series, samples: float | None) -> list[tuple[float, float]]:
    """A series over samples seen instead of steps, of which each takes `samples`; without gaps, empty if unknown."""
    if samples is None:
        return []
    return [(x * samples, y) for x, y in zip(series.xs, series.ys, strict=True) if y is not None]


def _last_value(series: Series) -> float | None:
    return next((y for y in reversed(series.ys) if y is not None), None)


UNITS_WITH_RATIO = ("samples/s", "tokens/s", "s", "B")
"""Units for which a ratio is meaningful."""


def format_figure(value: float | None, unit: str) -> str:
    """The figure with its unit; a dash if unknown."""
    if value is None:
        return UNKNOWN
    match unit:
        case "share":
            return format_share(value, digits=1)
        case "B":
            return format_size(value, 2)
        case "":
            return f"{value:.4f}"
        case "s":
            return "0 s" if not value else f"{value:,.3f} s" if value < 10 else f"{value:,.1f} s"
        case "steps" | "samples":
            return f"{value:,.0f}"
        case _:
            return f"{value:,.1f} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def format_ratio(row: MeasuredFigure) -> str:
    """`×1.24`, the second over the first; empty if not meaningful."""
    return f"×{row.ratio:.3g}" if row.ratio is not None and row.unit in UNITS_WITH_RATIO else ""


def format_loss_difference(row: LossAt) -> str:
    """The second loss minus the first, with its sign."""
    return f"{row.second - row.first:+.4f}"
