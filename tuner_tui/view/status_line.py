"""The status line: the run, its phase, progress, loss and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tuner_tui.core.units import format_duration, format_rough_duration, format_share, format_short_duration
from tuner_tui.view import number_format as f
from tuner_tui.view.cells import BAD, WARN, Line, Style, TextSpan, align_left, align_right, fit, line, line_width
from tuner_tui.view.charts import gauge
from tuner_tui.view.run_rows import PHASES, finite_style, outcome_parts, steps_text

if TYPE_CHECKING:
    from tuner_tui.runs.events.run_state import RunState


RUNNING = "●"
NARROWEST_BAR, WIDEST_BAR = 4, 48
LEFT_WIDTH = 15
OPEN_IT = " · r: open it"
LEAST_NEWS = 15
"""Cells of the shortest text that names another run."""


class StatusScene(NamedTuple):
    """A run at `now_s` (seconds since the epoch) by its `name`, or the text `idle` while there is none.

    `trains` names its preset or job. `lost` is the sentence of a run whose end was not recorded, `waits` of one that
    waits in the queue or in that of a cluster. `request` is what is done for the user meanwhile. `elsewhere` is another
    run that trains while this one does not. `next` is the key that trains something else than the run, and what.
    """

    idle: str = ""
    name: str = ""
    trains: str = ""
    state: RunState | None = None
    now_s: float = 0.0
    lost: str = ""
    waits: str = ""
    request: str = ""
    elsewhere: str = ""
    next: str = ""


def status_line(scene: StatusScene, width: int) -> Line:
    """Return the line in `width` cells. Where there is no room, the least important parts are left out."""
    request = line(TextSpan(f"{scene.request}  ", "curve")) if scene.request else ()
    room = width - line_width(request)
    return fit((*request, *_with_news(_parts(scene, room), scene.elsewhere, room)), width)


def _with_news(parts: Line, elsewhere: str, width: int) -> Line:
    """Return the parts that fit before what trains elsewhere, at least the first one, and the key that opens it."""
    if not elsewhere:
        return parts
    fixed = line_width(line(f"{RUNNING} {OPEN_IT}"))
    while len(parts) > 1 and line_width(parts) + fixed + (len(elsewhere) if len(parts) > 2 else LEAST_NEWS) > width:
        parts = parts[:-1]
    room = max(LEAST_NEWS, width - line_width(parts) - fixed)
    text = align_left(elsewhere, min(len(elsewhere), room)).rstrip()
    return line(*parts, TextSpan(f"{RUNNING} {text}", "good"), OPEN_IT)


def _parts(scene: StatusScene, width: int) -> Line:
    state = scene.state
    if not scene.name:
        return line(TextSpan(scene.idle))
    if state is None:
        return line(TextSpan(f"{RUNNING} {scene.name}", "strong"), TextSpan("  reading the run …", "dim"))
    if scene.waits:
        return line(TextSpan(f"{RUNNING} {scene.name} waiting", "warn"), f"  {scene.waits}")
    if state.finished is not None:
        parts = outcome_parts(state, f"{scene.name} {scene.trains}".rstrip())[:2]
        age_s = scene.now_s - state.finished.t
        ago = f"{format_short_duration(age_s)} ago" if age_s >= 60 else ""
        ended = line(*(TextSpan(f"{text}   ", style) for text, style in parts))
        more = next((text for text in (scene.next, ago) if text and line_width(ended) + len(text) <= width), "")
        return line(*ended, TextSpan(f"{more}   ", "dim")) if more else ended
    if scene.lost:
        return line(TextSpan(f"{BAD} {scene.name} lost", "bad"), f"  {scene.lost}")
    return _running_line(scene, state, width)


def _running_line(scene: StatusScene, state: RunState, width: int) -> Line:
    from tuner_tui.runs.events.progress import phase_at, seconds_left  # not before there is a run: see `run_rows`
    from tuner_tui.runs.events.types import SIGNALLED

    phase = phase_at(state, scene.now_s)
    stalled = phase == "stalled"
    tone: Style = "bad" if stalled else "good"
    head = line(TextSpan(f"{WARN if stalled else RUNNING} ", tone), TextSpan(scene.name, "strong"))
    name = line(TextSpan(f"  {scene.trains}", "dim")) if scene.trains else ()
    doing = line("  ", TextSpan(_phase_words(state, phase, scene.now_s), "bad" if stalled else ""))
    request = "SIGTERM received" if state.stop_requested == SIGNALLED else f"{state.stop_requested} requested"
    stopping = line(TextSpan(f"  {WARN} {request}", "warn")) if state.stop_requested else ()
    done, of = f.share_of(state.step, state.total_steps), ""
    if done is None and state.position is not None:  # how many epochs there will be is not known
        done, of = f.share_of(*state.position), " of the epoch"
    share = line(TextSpan(align_right(format_share(done), 6), "strong"), of) if done is not None else ()
    steps = line(f"  {steps_text(state, aligned=True)}") if state.step is not None else ()
    left_s = None if stalled else seconds_left(state, scene.now_s)
    left_text = "" if left_s is None else f"{format_rough_duration(left_s)} left"
    left = line(f"  {align_left(left_text, LEFT_WIDTH)}") if done is not None and not of else ()
    loss_text = state.loss_problem or f"loss {f.metric(state.loss)}"
    loss = line("  ", TextSpan(loss_text, finite_style(state.loss))) if state.loss is not None else ()
    speed = line(f"  {align_right(f.significant(state.rates.steps_s), 5)} steps/s") if state.rates.steps_s else ()
    room = width - NARROWEST_BAR - 2 if done is not None else width
    parts = {
        "head": head, "doing": doing, "stopping": stopping, "share": share, "left": left, "loss": loss, "steps": steps,
        "speed": speed, "name": name,
    }  # fmt: skip
    shown = _fitting(parts, room)
    bar_width = min(WIDEST_BAR, width - sum(map(line_width, shown.values())) - 1)
    bar = line(" ", *progress_bar(done, bar_width, tone)) if done is not None else ()
    order = ("head", "name", "doing", "stopping", "bar", "share", "steps", "left", "loss", "speed")
    return line(*({**shown, "bar": bar}.get(part, ()) for part in order))


def _fitting(parts: dict[str, Line], width: int) -> dict[str, Line]:
    """Return the parts that fit, the most important first; a part without room does not make way for a later one."""
    shown: dict[str, Line] = {}
    for name, cells in parts.items():
        if line_width(cells) > width:
            break
        shown[name] = cells
        width -= line_width(cells)
    return shown


def _phase_words(state: RunState, phase: str, now_s: float) -> str:
    from tuner_tui.runs.events.progress import startup_phase

    if phase == "stalled":
        return f"stalled: no step for {format_duration(now_s - (state.last_step_t or state.phase_since_t or now_s))}"
    starting = startup_phase(state, now_s)
    if starting is not None:  # it ends with the first step, not with the loop that makes it
        return f"{PHASES.get(starting[0], starting[0])} {format_duration(starting[1])}"
    phase = "generating" if state.generates else phase
    since = "" if phase == "training" or not state.phase_since_t else f" {format_duration(now_s - state.phase_since_t)}"
    return PHASES.get(phase, phase) + since


def progress_bar(done: float | None, width: int, style: Style) -> Line:
    """Return a bar of `width` cells: the part done in `style`, the rest dim; full only once all is done."""
    return gauge(None if done is None or width < 1 else int(done * 2 * width) / (2 * width), width, style)
