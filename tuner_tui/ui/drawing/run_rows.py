"""What the run does now: phase, progress, time left, speed, loss, evaluation, memory, ranks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events import Steps
from tuner_tui.runs.history import History
from tuner_tui.runs.progress import eta, phase_at
from tuner_tui.runs.state import RankState, RunState
from tuner_tui.ui import format as f
from tuner_tui.ui.drawing.bars import bar
from tuner_tui.ui.drawing.cells import Row, Run, Style, line, right, shorten, text_width
from tuner_tui.ui.drawing.figures import Figure, figure_rows, marked
from tuner_tui.ui.drawing.glyphs import Glyphs

PHASES = {
    "starting": "starting",
    "compiling": "compiling",
    "training": "training",
    "evaluating": "evaluating",
    "saving": "saving a checkpoint",
    "skipping": "skipping batches done before",
    "ending": "ending",
    "stalled": "stalled",
}
OUTCOMES: dict[str, tuple[str, Style]] = {
    "completed": ("completed", "good"),
    "stopped": ("stopped", "warn"),
    "failed": ("failed", "bad"),
    "out-of-memory": ("out of memory", "bad"),
    "lost": ("lost", "bad"),
}


@dataclass(frozen=True, slots=True)
class RunScene:
    """What there is to draw of a run at `now_s` (seconds since the epoch)."""

    state: RunState
    now_s: float
    history: History = History()
    sample: Sample | None = None


def run_rows(scene: RunScene, width: int, glyphs: Glyphs) -> list[Row]:
    """All that is known of the run, most important first; each row's rank says how soon it may go."""
    return [
        phase_row(scene, width, glyphs),
        *_outcome_rows(scene, width, glyphs),
        progress_row(scene, width, glyphs),
        *figure_rows(_speed(scene), width, rank=2),
        *figure_rows(_learning(scene), width, rank=1),
        *figure_rows(_shares(scene), width, rank=3),
        *_memory_rows(scene, width, glyphs),
        *_eval_rows(scene, width),
        *_rank_rows(scene, width),
    ]


def phase_row(scene: RunScene, width: int, glyphs: Glyphs) -> Row:
    """The phase in words and for how long, or how the run ended."""
    state = scene.state
    if state.finished is not None:
        words, style = OUTCOMES.get(state.finished.outcome, (state.finished.outcome, "bad"))
        mark = {"good": glyphs.good, "warn": glyphs.warn}.get(style, glyphs.bad)
        return Row(line(Run(f"{mark} {words}", style), Run(_took(state), "dim")))
    phase = phase_at(state, scene.now_s)
    words = PHASES.get(phase, phase)
    since = (state.last_step_t if phase == "stalled" else None) or state.phase_since_t
    left_words = f"{glyphs.warn} {words}" if phase == "stalled" else words
    style = "warn" if phase == "stalled" else "strong"
    age = f" {f.duration(scene.now_s - since)}" if since and phase != "training" else ""
    stopping = Run(f"  {state.stop_requested} asked", "warn") if state.stop_requested else Run("")
    return Row(line(Run(left_words, style), Run(age, style if age and style == "warn" else ""), stopping))


def _took(state: RunState) -> str:
    if state.finished is None or state.launched_t is None:
        return ""
    return f"  after {f.duration(state.finished.t - state.launched_t)}"


def _outcome_rows(scene: RunScene, width: int, glyphs: Glyphs) -> list[Row]:
    finished = scene.state.finished
    if finished is None or not finished.sentence:
        return []
    return [Row(line(shorten(finished.sentence, width)), rank=1)]


def progress_row(scene: RunScene, width: int, glyphs: Glyphs) -> Row:
    """Step of total, a bar, the share done and the time left."""
    state = scene.state
    steps = f"{f.count(state.step)}/{f.count(state.total_steps)}"
    done = state.step / state.total_steps if state.step is not None and state.total_steps else None
    time_left = eta(state, scene.now_s)
    end = right(f.share(done), 5) + right(f"ETA {f.roughly(time_left.seconds if time_left else None)}", 14)
    room = width - 5 - text_width(steps) - text_width(end) - 2
    middle = f" {bar(done, room, glyphs)} " if room >= 4 else " "
    start = 5
    bar_at = start + text_width(steps)
    end_at = bar_at + text_width(middle)
    slices = ((start, bar_at), (bar_at, end_at), (end_at, end_at + text_width(end)))
    return Row(line(Run("step ", "dim"), steps, middle, end), 0, slices)


def _speed(scene: RunScene) -> list[Figure]:
    rates = scene.state.rates
    return [
        Figure("steps/s", f.figure(rates.steps_s)),
        Figure("samples/s", f.figure(rates.samples_s)),
        Figure("tokens/s", f.figure(rates.tokens_s)),
        Figure("padding", f.share(rates.padding_share)),
    ]


def _learning(scene: RunScene) -> list[Figure]:
    state = scene.state
    return [
        Figure("loss", f.metric(state.loss), _finite(state.loss)),
        Figure("grad norm", f.figure(state.grad_norm), _finite(state.grad_norm)),
        Figure("LR", f.exponent(state.learning_rate)),
        Figure("epoch", f.figure(state.epoch)),
    ]


def _finite(value: float | None) -> Style:
    return "bad" if value is not None and f.figure(value) in ("nan", "inf", "-inf") else ""


def _shares(scene: RunScene) -> list[Figure]:
    latest = [rank.latest for rank in scene.state.ranks.values() if rank.latest is not None]
    return [
        Figure("data wait", f.share(scene.state.rates.data_wait_share)),
        Figure("evaluation", f.share(_share_of_run(latest, "eval"))),
        Figure("saving", f.share(_share_of_run(latest, "save"))),
    ]


def _share_of_run(latest: list[Steps], what: str) -> float | None:
    """The share of the time since training began that went into evaluation or saving, on the slowest rank."""
    shares = []
    for steps in latest:
        whole = steps.train_s + steps.eval_s + steps.save_s
        if whole > 0:
            shares.append((steps.eval_s if what == "eval" else steps.save_s) / whole)
    return max(shares, default=None)


def _memory_rows(scene: RunScene, width: int, glyphs: Glyphs) -> list[Row]:
    peaks = [r.latest.allocated_peak_bytes for r in scene.state.ranks.values() if r.latest is not None]
    known = [peak for peak in peaks if peak is not None]
    if not known:
        return []
    gpus = scene.sample.gpus if scene.sample else ()
    card = min((gpu.memory_total_bytes for gpu in gpus if gpu.memory_total_bytes), default=None)
    text = f"{f.gib(max(known))} of {f.gib(card)} GiB"
    room = width - 10 - text_width(text) - 1
    filled = bar(max(known) / card, room, glyphs) if card and room >= 6 else ""
    return [Row(line(Run("peak VRAM ", "dim"), text, " ", filled), rank=2)]


def _eval_rows(scene: RunScene, width: int) -> list[Row]:
    if not scene.state.evaluations:
        return []
    last = scene.state.evaluations[-1]
    shown = [
        f"{name.removeprefix('eval_').replace('_', ' ')} {f.metric(value)}"
        for name, value in last.metrics.items()
        if not name.endswith(("_per_second", "_runtime", "epoch", "_time"))
    ]
    return [
        Row(
            line(Run(f"eval at {f.count(last.step)}  ", "dim"), shorten("  ".join(shown), width - 16)), rank=3
        )
    ]


def _rank_rows(scene: RunScene, width: int) -> list[Row]:
    """Seconds a step of each rank side by side, slowest named. One rank needs no comparison."""
    times = {number: _step_time(rank) for number, rank in sorted(scene.state.ranks.items())}
    known = {number: time for number, time in times.items() if time is not None}
    if len(times) < 2 or not known:
        return []
    slowest = max(known, key=lambda number: known[number])
    fitting = list(times)[: max(1, (width - 8) // 6)]
    label = Run("s/step  ", "dim")
    cells = [right(f.figure(times[number]), 6) for number in fitting]
    head = [right(str(number), 6) for number in fitting]
    more = len(times) - len(fitting)
    sentence = f"slowest: rank {slowest}, {f.figure(known[slowest])} s a step" + (
        f"; {more} more ranks" if more else ""
    )
    return [
        Row(line(Run("rank    ", "dim"), Run("".join(head), "dim")), rank=4),
        Row(line(label, "".join(cells)), rank=4, slices=((8, 8 + 6 * len(cells)),)),
        Row(line(shorten(sentence, width)), rank=4),
    ]


def _step_time(rank: RankState) -> float | None:
    pairs = [(b.own_steps - a.own_steps, b.train_s - a.train_s) for a, b in pairwise(rank.recent)]
    steps, seconds = sum(p[0] for p in pairs), sum(p[1] for p in pairs)
    return seconds / steps if steps > 0 else None
