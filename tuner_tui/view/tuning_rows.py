"""A tuning as rows and text: trials, progress, result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import UNKNOWN, format_duration, format_share, format_short_duration
from tuner_tui.settings.model import FIELDS, Settings, format_value
from tuner_tui.tuning.search.results import SearchResults, significant_share
from tuner_tui.tuning.trial import CompletedTrial, Measurement, Trial, TuningConclusion, group_by_reason
from tuner_tui.tuning.trial_log import TrialStarted, TuningView
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import (
    BAD,
    GOOD,
    WARN,
    Line,
    Style,
    TextSpan,
    align_left,
    align_right,
    fit,
    labelled_rows,
    line,
    line_width,
    shorten_phrases,
    side_by_side,
    text_width,
    wrapped_rows,
)
from tuner_tui.view.charts import Axes, Curve, curve_rows, gauge


class TuningSummary(NamedTuple):
    """Results of a tuning's trials: initial settings and their throughput, the best settings, and how they compare."""

    results: SearchResults
    given: Settings | None
    best: Settings | None
    verdict: TuningConclusion | None = None

    @classmethod
    def of(cls, view: TuningView) -> TuningSummary:
        """Summarise the trials so far."""
        results = SearchResults.of(view.tried, view.limit_bytes, view.whole_job)
        given = start_settings(view)
        fastest = None if results.best is None else results.best.settings
        best = fastest if view.verdict is None else view.verdict.winner
        return cls(results, given, best, view.verdict)

    def rate_of(self, settings: Settings) -> float | None:
        """Return the throughput of all runs of `settings`; of the start and the winner that of their pairs."""
        verdict = self.verdict
        if verdict is not None and verdict.ratio is not None and verdict.job_steps is None:
            of_pairs = {self.given: verdict.start, verdict.winner: verdict.best}.get(settings)
            if of_pairs is not None:
                return self.rate(of_pairs)
        result = self.results.get(settings)
        return None if result is None else result.throughput

    def rate_of_trial(self, completed: CompletedTrial) -> float | None:
        """Return the throughput of a trial's settings, whose quotients are the gains; of a repetition its own."""
        measured = completed.measurement.outcome == "measured" and not _is_repeated(completed.trial)
        return self.rate_of(completed.trial.settings) if measured else self.rate(completed.measurement)

    def rate(self, measurement: Measurement) -> float | None:
        """Return the throughput that is compared: tokens/s if every trial counted tokens, else samples/s."""
        return measurement.tokens_s if self.results.tokens else measurement.samples_s

    @property
    def unit(self) -> str:
        """Unit of the throughput that is compared."""
        return "tokens/s" if self.results.tokens else "samples/s"


def _is_repeated(trial: Trial) -> bool:
    return not trial.changed and trial.purpose != "start"


def format_changes(trial: Trial, view: TuningView, winner: Settings | None = None) -> str:
    """Return `micro batch 8 → 16, compile off → on`; for a repetition, which settings are repeated.

    What is changed on top of another trial than the first begins with its number: `3 + prefetch 2 → 4`.
    """
    given = start_settings(view)
    if not trial.changed:
        repeated = "winner" if trial.settings == winner else "best"
        label = "current settings" if given in (None, trial.settings) else repeated
        return label if trial.purpose == "start" else f"{label} again"
    before = trial.base or given
    first = next((done.trial.number for done in view.tried if done.trial.settings == before), 1)
    changes = ", ".join(_change(name, before, trial.settings) for name in trial.changed)
    return f"{first} + {changes}" if before != given else changes


def _change(name: str, before: Settings | None, after: Settings) -> str:
    old = "" if before is None or getattr(before, name) == getattr(after, name) else f"{_value(before, name)} → "
    return f"{FIELDS[name].label} {old}{_value(after, name)}"


def format_time_left(view: TuningView) -> str:
    """Return `6 min to 9 min left`, or an empty text if unknown."""
    if not view.running or view.running[0].left_high_s is None:
        return ""
    low, high = map(format_short_duration, (view.running[0].left_low_s, view.running[0].left_high_s))
    return f"{high} left" if low in (high, UNKNOWN) else f"{low} to {high} left"


def tuning_status(view: TuningView) -> str:
    """Return the short status for other screens: `t003 tunes, trial 8`, `t003 finished`."""
    if view.status != "running":
        return f"{view.id} {view.status}"
    return f"{view.id} tuning" + (f", trial {view.running[0].trial.number}" if view.running else "")


def tuning_sentence(view: TuningView) -> str:
    """Return what is tuned, its progress, and the key that shows it."""
    trial = f"trial {view.running[0].trial.number}" if view.running else ""
    how_far = ", ".join(filter(None, (trial, format_time_left(view))))
    return f"{view.id} is tuning {view.title}{f' ({how_far})' if how_far else ''}. o shows it."


def is_start_best(view: TuningView) -> bool:
    """True if the initial settings won: there is nothing to apply."""
    return view.verdict is not None and view.verdict.winner == start_settings(view)


def applicable_winner(view: TuningView) -> TuningConclusion | None:
    """Return the winner, or the fastest settings of a tuning that ended before it judged; None if none are faster."""
    if view.verdict is not None and not is_start_best(view):
        return view.verdict
    is_judged = view.verdict is not None and not view.verdict.disturbed
    best = None if is_judged or view.status == "running" else TuningSummary.of(view).results.best
    if best is None or best.settings == start_settings(view):
        return None
    return TuningConclusion(winner=best.settings, sentence="The fastest trial; not confirmed by alternating runs.")


def start_settings(view: TuningView) -> Settings | None:
    """Return the settings of the first trial."""
    return view.tried[0].trial.settings if view.tried else None


def can_resume(view: TuningView) -> bool:
    """True if the tuning can be resumed: it ended early or ran out of time."""
    return view.status in ("aborted", "killed", "failed") or (view.status == "finished" and bool(view.trouble))


def result_rows(view: TuningView, width: int) -> list[Line]:
    """Return the conclusion of a tuning that has ended, or only its trouble: without the keys of the screen."""
    rows = [] if view.verdict is None else _verdict_rows(view, view.verdict, width)
    return rows + _labelled_rows("note", view.trouble, width)


def _value(settings: Settings, name: str) -> str:
    return format_value(name, getattr(settings, name)) or UNKNOWN


RESUME_HINT = "R resumes it."
STOPPED_SENTENCES: Mapping[str, tuple[str, Style, str]] = {
    "aborted": (WARN, "warn", f"Stopped; all measurements are kept. {RESUME_HINT}"),
    "killed": (WARN, "warn", f"The tuner process died. {RESUME_HINT}"),
    "failed": (BAD, "bad", f"It failed. {RESUME_HINT}"),
}


APPLY_HINT = "a shows what it would change and applies it"


def tuning_rows(view: TuningView | None, now_s: float | None, width: int) -> list[Line]:
    """Return the rows at the top of the tune screen, the result first; `now_s` is in seconds since the epoch."""
    if view is None:
        return [line(TextSpan("reading the tuning …", "dim"))]
    ended = []
    if view.status == "finished":
        ended = _labelled_rows("note", f"{view.trouble} {RESUME_HINT}" if can_resume(view) else "", width, "warn")
    elif view.status != "running":
        mark, style, words = STOPPED_SENTENCES[view.status]
        ended = [line(TextSpan(f"{mark} {words}", style)), *_labelled_rows("trouble", view.trouble, width, style)]
    busy = f"{view.busy}; no result is confirmed or saved meanwhile" if view.busy else ""
    result = _verdict_rows(view, view.verdict, width) if view.verdict else _best_rows(view, width)
    return [
        *result,
        *ended,
        *([] if applicable_winner(view) is None else _labelled_rows("next", APPLY_HINT, width)),
        *(_labelled_rows("busy", busy, width, "warn") if view.verdict is None else []),
        *(running_rows(view, now_s, width) if view.status == "running" else []),
    ]


def running_rows(view: TuningView, now_s: float | None, width: int) -> list[Line]:
    """Return what the running trials change and why, and the time left."""
    if not view.running:
        return [line(TextSpan("The next trial is being chosen.", "strong"))]
    first, left = view.running[0], format_time_left(view)
    expected = "" if first.expected_s is None else f" of about {format_duration(first.expected_s)}"
    spent = "" if now_s is None else f" · {format_duration(now_s - first.t)}{expected}"
    changes = f" · {format_changes(first.trial, view)}{spent}{f' · {left}' if left else ''}"
    head = line(TextSpan(f"▸ trial {first.trial.number}", "strong"), changes)
    return [head, *_labelled_rows("why", first.trial.reason, width)]


def _best_rows(view: TuningView, width: int) -> list[Line]:
    """Return the best settings so far in one sentence, until there is a conclusion."""
    standing = TuningSummary.of(view)
    best, given = standing.results.best, standing.given
    start = None if given is None else standing.results.get(given)
    if best is None or given is None or start is None or not start.speed or not best.speed:
        return []
    others = any(completed.trial.settings != given for completed in view.tried)
    if best.settings == given:
        noise = f"by more than the noise of {format_share(standing.results.noise)}"
        return wrapped_rows(f"Nothing is faster than the current settings so far {noise}.", width, "dim") * others
    whole = " over the whole job" if best.amount is not None else ""
    gain = f"{f.gain(best.speed / start.speed)}{whole} so far: "
    pairs = sum(each.trial.purpose == "confirm" for each in view.tried) // 2
    note = f"compared in {pairs} pair{'s' * (pairs != 1)} so far" if pairs else "not confirmed yet"
    return _sentence_rows(gain, changes_between(given, best.settings), note, width)


def changes_between(start: Settings, winner: Settings) -> str:
    """Return `workers 0 → 4, micro batch 8 → 24`."""
    changed = (name for name in FIELDS if getattr(start, name) != getattr(winner, name))
    return ", ".join(_change(name, start, winner) for name in changed)


def _verdict_rows(view: TuningView, verdict: TuningConclusion, width: int) -> list[Line]:
    """Return the result in one sentence, and what it needs."""
    start = start_settings(view)
    if verdict.ratio is None or start is None or start == verdict.winner:
        first, *more = verdict.sentence.split(". ", 1)
        rows = wrapped_rows(f"{first}." if more else first, width, "strong")
        rows += [row for part in more for row in wrapped_rows(part, width)]
    else:
        gain, changes = f"{f.gain(verdict.ratio)}: ", changes_between(start, verdict.winner)
        rows = _sentence_rows(gain, changes, _confirmation(view, verdict), width)
    return [
        *rows,
        *_labelled_rows("LR", verdict.learning_rate_note, width),
        *_labelled_rows("saved", view.preset, width),
    ]


def _sentence_rows(gain: str, changes: str, note: str, width: int) -> list[Line]:
    """Return the gain in colour, what changes, and a note, in as many rows as they need."""
    first, *more = wrap_text(f"{gain}{changes}", max(20, width))
    rows = [line(TextSpan(gain, "good"), TextSpan(first[len(gain) :], "strong"))]
    rows += [line(TextSpan(text, "strong")) for text in more]
    fits = note and line_width(rows[-1]) + 3 + text_width(note) <= width
    if fits:
        rows[-1] = line(*rows[-1], TextSpan(f"   {note}", "dim"))
    return [*rows, *([] if fits else wrapped_rows(note, width, "dim"))]


def _confirmation(view: TuningView, verdict: TuningConclusion) -> str:
    """Return `confirmed by 5 alternating pairs, ± 3 %`, and to which settings the speed belongs."""
    parts = []
    if verdict.ratio is not None and verdict.ratio_low is not None and verdict.ratio_high is not None:
        half = (verdict.ratio_high - verdict.ratio_low) / 2 / verdict.ratio
        pairs = "pairs" if verdict.pairs is None else f"{verdict.pairs} alternating pair{'s' * (verdict.pairs != 1)}"
        how = "confirmed by" if verdict.ratio_low > 1 else "measured in"
        parts.append(f"{how} {pairs}, ± {format_share(half)}")
    if verdict.job_times:
        parts.append(f"all {verdict.job_steps:,} steps {verdict.job_times}")
    results = SearchResults.of(view.tried, view.limit_bytes, view.whole_job)
    start = results.get(view.tried[0].trial.settings)
    if start is not None and not results.fits(start):
        parts.append("the current settings leave too little memory free")
    return " · ".join(parts)


def skipped_rows(view: TuningView | None, width: int) -> list[Line]:
    """Return the changes that were not tried, together where they have the same reason."""
    if view is None or not view.skipped:
        return [line(TextSpan("Nothing was skipped." if view and view.verdict else "Nothing yet.", "dim"))]
    rows: list[Line] = []
    for reason, labels in group_by_reason(view.skipped).items():
        rows += wrapped_rows(", ".join(labels), width)
        rows += wrapped_rows(reason, width, "dim", "  ")
    return rows


def _labelled_rows(label: str, text: str | None, width: int, style: Style = "") -> list[Line]:
    return labelled_rows(label, text, width, style, labels=8) if text else []


class LiveTrial(NamedTuple):
    """What the run of a trial measures at this moment, `spent_s` after its start; None where it is not known yet."""

    step: int | None = None
    samples_s: float | None = None
    tokens_s: float | None = None
    spent_s: float | None = None


class Lane(NamedTuple):
    """One candidate of the race. `rate` is its speed, None until it is measured.

    Its bar grows to the speed while it runs: `grown` is the share of its expected time that is spent. `reason` is a
    sentence on why there is no speed.
    """

    number: str
    changes: str
    rate: float | None
    peak_bytes: int | None
    state: str
    style: Style
    bar_style: Style
    grown: float = 1.0
    reason: str = ""


LEAST_BAR, MOST_BAR, BAR_FROM = 8, 44, 84
"""Cells of a bar, and the width from which there are bars."""
LEAST_STATE, MOST_STATE, LEAST_CHANGES = 16, 34, 16
LANE_GAP = 2
MOST_REASON_ROWS = 3


def race_rows(view: TuningView | None, running: Mapping[str, LiveTrial], width: int, height: int = 0) -> list[Line]:
    """Return a lane for each trial, newest last: what it changes, its speed as a bar, its memory, its state.

    `running` has what the runs of trials under way measure, by their names. With a `height` a heading has the units,
    and the reason of a failure stands below its lane; without, a lane is one row with its units.
    """
    if view is None:
        return [line(TextSpan("reading the tuning …", "dim"))]
    standing = TuningSummary.of(view)
    lanes = [_finished_lane(view, standing, completed) for completed in view.tried]
    if view.status == "running":
        lanes += [_running_lane(started, view, standing, running.get(started.run)) for started in view.running]
    if not lanes:
        return [line(TextSpan("No trial yet.", "dim"))]
    units = (standing.unit, "GiB") if height else ("", "")
    unit, size = ("", "") if height else (f" {standing.unit}", " GiB")
    speeds = [f"{f.significant(lane.rate)}{unit}" if lane.rate is not None else UNKNOWN for lane in lanes]
    peaks = [f"{f.gib(lane.peak_bytes)}{size}" if lane.peak_bytes is not None else UNKNOWN for lane in lanes]
    columns = [
        max(map(text_width, texts))
        for texts in ([lane.number for lane in lanes], [lane.changes for lane in lanes],
                      [*speeds, units[0]], [*peaks, units[1]], [lane.state for lane in lanes])
    ]  # fmt: skip
    # What is left belongs to the bar. Without enough, the state is shortened first: a lane is known by its changes.
    bar = LEAST_BAR if width >= BAR_FROM else 0
    room = width - columns[0] - columns[2] - columns[3] - LANE_GAP * (5 if bar else 4)
    columns[4] = min(columns[4], MOST_STATE, max(LEAST_STATE, room - bar - columns[1]))
    columns[1] = min(columns[1], max(LEAST_CHANGES, room - bar - columns[4]))
    bar = min(MOST_BAR, room - columns[1] - columns[4]) if bar else 0
    fastest = max((lane.rate for lane in lanes if lane.rate is not None), default=0.0)
    rows: list[Line] = []
    for lane, speed, peak in zip(lanes, speeds, peaks, strict=True):
        rows.append(fit(_lane_line(lane, speed, peak, columns, bar, fastest), width))
        mark = " " * (columns[0] + LANE_GAP)
        rows += wrapped_rows(lane.reason, width, "dim", mark)[:MOST_REASON_ROWS] if height and lane.reason else []
    if not height:
        return rows
    rows += _standing_rows(view, standing, width, height - len(rows) - 2)
    indent = columns[0] + columns[1] + 2 * LANE_GAP + (bar + LANE_GAP if bar else 0)
    names = (" " * LANE_GAP).join(map(align_right, units, columns[2:4]))
    return [line(TextSpan(align_left(" " * indent + names, width), "dim")), *rows]


LEAST_STANDING, MOST_STANDING, STANDING_LABEL, NARROWEST_CHART = 7, 20, 14, 40


def _standing_rows(view: TuningView, standing: TuningSummary, width: int, height: int) -> list[Line]:
    """Return, in `height` rows, the settings of the best so far and, at their right, the speed of each trial."""
    start, best = standing.given, standing.best or standing.given
    searched = [each for each in view.tried if each.trial.purpose != "confirm"]
    names = dict.fromkeys(name for each in searched for name in each.trial.changed)
    if height < LEAST_STANDING or not names or start is None or best is None:
        return []
    rows = [line(TextSpan("Fastest so far" if view.verdict is None else "Settings", "strong"))]
    for name in names:
        values = dict.fromkeys((_value(start, name), _value(best, name)))
        style: Style = "good" if len(values) > 1 else ""
        rows += labelled_rows(FIELDS[name].label, " → ".join(values), width, style, STANDING_LABEL)
    at, xs = max(map(line_width, rows)) + 2 * LANE_GAP, tuple(float(each.trial.number) for each in searched)
    curve = Curve("", xs, tuple(map(standing.rate_of_trial, searched)), "gauge")
    title = TextSpan(f"{standing.unit} of each trial", "strong")
    axes = Axes(f.significant, unit="trials", from_zero=True)
    chart = curve_rows((title,), (curve,), axes, width - at, min(MOST_STANDING, height - 1))
    return [(), *side_by_side(rows[: height - 1], chart if width - at >= NARROWEST_CHART else (), at)]


def _lane_line(lane: Lane, speed: str, peak: str, columns: Sequence[int], bar: int, fastest: float) -> Line:
    gap = " " * LANE_GAP
    part = None if lane.rate is None or fastest <= 0 else lane.rate / fastest * lane.grown
    race = line(*gauge(part, bar, lane.bar_style), gap) if bar > 0 else ()
    return line(
        TextSpan(align_right(lane.number, columns[0]) + gap, "dim"),
        TextSpan(align_left(lane.changes, columns[1]), "strong" if lane.style == "good" else ""),
        gap,
        *race,
        TextSpan(align_right(speed, columns[2]), "strong"),
        TextSpan(gap + align_right(peak, columns[3]) + gap, "dim"),
        TextSpan(shorten_phrases(lane.state, columns[4]), lane.style),
    )


def _finished_lane(view: TuningView, standing: TuningSummary, completed: CompletedTrial) -> Lane:
    trial, measurement = completed.trial, completed.measurement
    state, style = _trial_state(view, standing, completed)
    result, rate = standing.results.get(trial.settings), standing.rate_of_trial(completed)
    if result is not None and len(result.rates) > 1 and rate == result.throughput:
        state = ", ".join(filter(None, (state, f"mean of {len(result.rates)} runs")))
    winner = None if view.verdict is None else view.verdict.winner
    bar_style: Style = "good" if style == "good" else "dim" if trial.settings == standing.given else "gauge"
    changes, peak_bytes = format_changes(trial, view, winner), measurement.peak_bytes
    reason = measurement.sentence if measurement.outcome in ("failed", "no-step", "other-data") else None
    return Lane(str(trial.number), changes, rate, peak_bytes, state, style, bar_style, reason=reason or "")


MARKS: Mapping[str, tuple[str, Style]] = {"out-of-memory": (f"{BAD} ", "bad"), "aborted": ("", "dim")}
"""How trials stand out that were not measured, but for those with a warning."""


def _trial_state(view: TuningView, standing: TuningSummary, completed: CompletedTrial) -> tuple[str, Style]:
    """Return how a trial ended, and the style of that."""
    trial, measurement = completed.trial, completed.measurement
    if measurement.outcome != "measured":
        mark, style = MARKS.get(measurement.outcome, (f"{WARN} ", "warn"))
        words = "not measured" if measurement.outcome == "no-step" else measurement.outcome.replace("-", " ")
        settings = f": {', '.join(measurement.not_applied)}" if measurement.not_applied else ""
        return f"{mark}{words}{settings}", style
    peak_bytes = measurement.peak_bytes
    if view.limit_bytes is not None and peak_bytes is not None and peak_bytes > view.limit_bytes:
        return f"{WARN} too little memory left", "warn"
    given, results, rate = standing.given, standing.results, standing.rate_of_trial(completed)
    is_given, result = trial.settings == given, results.get(trial.settings)
    if _is_repeated(trial):
        return "" if result is None or rate in result.rates else "disturbed, not counted", "dim"
    if is_given and view.status != "finished":
        return "", "dim"  # which settings they are stands before it
    if trial.settings == standing.best:
        final = "current settings kept" if is_start_best(view) else "winner"
        return f"{GOOD} {final if view.status == 'finished' else 'best so far'}", "good"
    start, start_rate = (None, None) if given is None else (results.get(given), standing.rate_of(given))
    if is_given or result is None or start is None or not start_rate or rate is None:
        return "", "dim"
    ratio = rate / start_rate
    if abs(ratio - 1) <= f.EQUAL_SPEED:
        return "the same as now, within noise", "dim"
    words = f"{f.gain(ratio)} than now"
    if abs(ratio - 1) <= significant_share(result, start, max(results.noise, measurement.spread or 0.0)):
        return f"within noise: {words}", "dim"
    overall = (result.speed or 0.0) / (start.speed or 1.0)
    return f"{words}{', but not the whole job' if ratio > 1 > overall else ''}", "dim"


def _running_lane(started: TrialStarted, view: TuningView, standing: TuningSummary, live: LiveTrial | None) -> Lane:
    trial = started.trial
    at = "" if live is None or live.step is None else f", step {f.count(live.step)}"
    rate = None if live is None else live.tokens_s if standing.results.tokens else live.samples_s
    on_gpu = ""
    if trial.gpu is not None:  # of a parallel trial: the end of a UUID, or the name of a node
        on_gpu = f" on GPU …{trial.gpu[-6:]}" if trial.gpu.startswith("GPU-") else f" on {trial.gpu}"
    spent_s, expected_s, left, grown = None if live is None else live.spent_s, started.expected_s, "", 1.0
    if spent_s is not None and expected_s:
        left_s, grown = expected_s - spent_s, min(1.0, spent_s / expected_s)
        left = f", {format_short_duration(left_s)} left" if left_s > 0 else ", longer than expected"
    changes = format_changes(trial, view)
    state = f"▸ running{at}{left}{on_gpu}"
    return Lane(str(trial.number), changes, rate, None, state, "strong", "curve", grown=grown)
