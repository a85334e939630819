"""What the steps of a run take so long for, as rows: the verdict, what can be won, and the tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner_tui.core.units import format_ms, format_percent
from tuner_tui.inspection.step_trace import StepTimes
from tuner_tui.runs.read.live_inspection import RankProfile, RunProfile
from tuner_tui.view.cells import Line, TextSpan, align_left, line, shorten, text_width, wrapped_rows

MAX_TABLE = 8
BAR_WIDTH = 12
MORE_WIDTH = 21


def profile_rows(profile: RunProfile, width: int) -> list[Line]:
    """Return the rows of the rank that decides; of each other one its verdict."""
    refused = [row for refusal in profile.refusals for row in wrapped_rows(refusal, width, "warn")]
    if profile.observed is not None:
        parts = [(part.name, part.seconds, "") for part in profile.observed.parts]
        return [*refused, *_table("Part of the step, timed without the profiler", parts, profile.observed, width)]
    first, *others = profile.ranks
    rows = list(_verdict_rows(first, len(others) > 0, width))
    for rank in others:
        rows += wrapped_rows(f"Rank {rank.rank}: {rank.verdict.sentence}", width, "dim")
    rows += refused
    times = first.times
    own_code = ((part, f"own code {format_ms(part.own_s)}" if part.own_s else "") for part in times.parts)
    rows += _table("Part of the step", [(part.name, part.seconds, more) for part, more in own_code], times, width)
    modules = [(row.name, row.seconds, _calls(row.calls)) for row in times.modules[:MAX_TABLE]]
    if first.compiled:
        rows += [(), *wrapped_rows("Modules inside torch.compile are not timed one by one.", width, "dim")]
    rows += _table("Module", modules, times, width)
    operators = [(row.name, row.seconds, _calls(row.calls)) for row in times.operators[:MAX_TABLE]]
    rows += _table("Operator", operators, times, width)
    saved = first.problem or f"Trace for ui.perfetto.dev: {first.trace}"
    counted = "1 step" if times.steps == 1 else f"{times.steps} steps"
    lost = f"the training lost {first.lost_s:.2g} s, the time of {first.lost_s / times.step_s:.0f} steps"
    lost = lost if first.lost_s > 0 else "no measurable loss of time"
    return [*rows, (), *wrapped_rows(f"{counted} evaluated; {lost}.", width, "dim"), *wrapped_rows(saved, width, "dim")]


def _verdict_rows(profile: RankProfile, several: bool, width: int) -> Iterable[Line]:
    verdict = profile.verdict
    name = f"Rank {profile.rank}: " if several else ""
    yield from wrapped_rows(name + verdict.sentence, width, "strong")
    for fact in verdict.evidence:
        yield from wrapped_rows(f"· {fact}", width, "dim")
    if verdict.gains:
        yield ()
        yield line(TextSpan("Each saves at most", "strong"))
    for gain in verdict.gains:
        yield line(f"{format_percent(gain.share * 100):>6}  ", shorten(gain.remedy, width - 8))


def _table(title: str, entries: Sequence[tuple[str, float, str]], times: StepTimes, width: int) -> Iterable[Line]:
    if not entries:
        return
    yield ()
    yield line(TextSpan(title, "strong"))
    longest = max(text_width(name) for name, _, _ in entries)
    for name, seconds, more in entries:
        share = times.share(seconds)
        bar = "█" * round(share * BAR_WIDTH)
        figures = f"{format_percent(share * 100):>5} {format_ms(seconds):>12}  "
        room = max(8, min(longest, width - BAR_WIDTH - len(figures) - MORE_WIDTH))
        label = align_left(name, room)
        yield line(TextSpan(bar.ljust(BAR_WIDTH), "gauge"), figures, label, TextSpan(f"  {more}", "dim"))


def _calls(calls: float) -> str:
    return f"× {calls:.3g}" if calls else ""
