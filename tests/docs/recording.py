"""Records the first session of the README: `python -m tests.docs.recording` trains the demo and writes the animation.

The screen runs without a terminal, with its real backend, in a state directory of its own. A frame is taken whenever
the screen has changed, at most once in `MIN_FRAME_S`; the frames become one SVG that CSS animates. Lines that several
frames share are stored once. Pauses are shortened, so the animation takes less time than the session did.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rich.style import Style
from textual.pilot import Pilot

from tests.docs.reference import ROOT
from tuner_tui.ui.app import TunerApp
from tuner_tui.ui.backend import Backend

FILE = ROOT / ".github" / "recording.svg"
COLUMNS, ROWS = 100, 30
CELL_WIDTH, CELL_HEIGHT, FONT_SIZE, MARGIN = 8.4, 18, 14, 12
BACKGROUND, FOREGROUND = "#0d1117", "#e6edf3"
MIN_FRAME_S = 1.0
SHOWN_S = 1.1
"""How long the animation shows a frame; the last one is shown `LAST_SHOWN_S`."""
LAST_SHOWN_S = 5.0
MAX_SESSION_S = 400.0
FEWER_STEPS = {"max_steps": "80", "eval_steps": "20", "save_steps": "40", "logging_steps": "2"}
"""Changes of the demo, so that the session is short."""


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring cells of one style. Colours are `#rrggbb`; `background` is None for the screen's own."""

    text: str
    column: int
    colour: str
    background: str | None = None
    bold: bool = False
    dim: bool = False


Frame = Sequence[Sequence[Span]]
"""The lines of a screen at one moment."""


def render(frames: Sequence[Frame], columns: int = COLUMNS, rows: int = ROWS) -> str:
    """Return the animation of `frames` as an SVG document."""
    width, height = columns * CELL_WIDTH + 2 * MARGIN, rows * CELL_HEIGHT + 2 * MARGIN
    total_s = SHOWN_S * (len(frames) - 1) + LAST_SHOWN_S
    lines: dict[str, int] = {}
    groups = []
    for number, frame in enumerate(frames):
        used = "".join(
            f'<use href="#l{lines.setdefault(drawn, len(lines))}" y="{row * CELL_HEIGHT}"/>'
            for row, line in enumerate(frame)
            if (drawn := "".join(map(_draw, line)))
        )
        groups.append(f'<g class="f" style="animation-delay:{number * SHOWN_S:.1f}s" id="f{number}">{used}</g>')
    shown = 100 * SHOWN_S / total_s
    # All frames share one animation that shows a frame for its part of the whole and is delayed by the frames before.
    style = (
        f"text{{font:{FONT_SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        "white-space:pre}"
        f".f{{visibility:hidden;animation:f {total_s:.1f}s step-end infinite}}"
        f"@keyframes f{{0%{{visibility:visible}}{shown:.3f}%{{visibility:hidden}}}}"
        f"#f{len(frames) - 1}{{animation-name:last}}"
        f"@keyframes last{{0%{{visibility:visible}}{100 * LAST_SHOWN_S / total_s:.3f}%{{visibility:hidden}}}}"
        # Without animation the end of the session is the picture.
        f"@media(prefers-reduced-motion:reduce){{.f{{animation:none}}#f{len(frames) - 1}{{visibility:visible}}}}"
    )
    symbols = "".join(f'<g id="l{number}">{drawn}</g>' for drawn, number in lines.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">'
        f"<title>tuner-tui trains the demo</title><style>{style}</style><defs>{symbols}</defs>"
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>'
        f'<g transform="translate({MARGIN} {MARGIN})">{"".join(groups)}</g></svg>\n'
    )


def _draw(span: Span) -> str:
    x, length = span.column * CELL_WIDTH, len(span.text) * CELL_WIDTH
    box = ""
    if span.background:
        box = f'<rect x="{x:.1f}" width="{length:.1f}" height="{CELL_HEIGHT}" fill="{span.background}"/>'
    if not span.text.strip():
        return box
    marks = ' font-weight="bold"' if span.bold else ""
    marks += ' opacity=".6"' if span.dim else ""
    # `textLength` keeps the columns aligned whatever font there is.
    return (
        f'{box}<text x="{x:.1f}" y="{CELL_HEIGHT - 5}" textLength="{length:.1f}" fill="{span.colour}"{marks}>'
        f"{escape(span.text, quote=False)}</text>"
    )


def capture(app: TunerApp) -> Frame:
    """Return the screen as it is now."""
    frame = []
    for strip in app.screen._compositor.render_strips():
        line, column = [], 0
        for segment in strip:
            line.append(_span(segment.text, column, segment.style or Style()))
            column += segment.cell_length
        frame.append(tuple(span for span in line if span.background or span.text.strip()))
    return tuple(frame)


def _span(text: str, column: int, style: Style) -> Span:
    colours = [
        None if colour is None or colour.is_default else colour.get_truecolor().hex
        for colour in (style.color, style.bgcolor)
    ]
    ink, paper = reversed(colours) if style.reverse else colours
    paper = None if paper == BACKGROUND else paper
    return Span(text, column, ink or FOREGROUND, paper, bool(style.bold), bool(style.dim))


async def _session() -> list[Frame]:
    """Train the demo from the first frame to the finish card; return the frames."""
    app = TunerApp(
        lambda: Backend(flags=FEWER_STEPS, environment=dict(os.environ)),
        lambda backend: (backend.load_preset("demo"), None),
    )
    frames: list[Frame] = []
    async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
        await pilot.pause(4)
        await _film(app, pilot, frames, seconds=4)
        await pilot.press("t")
        await _film(app, pilot, frames, seconds=3)
        await pilot.press("enter")
        end = time.monotonic() + MAX_SESSION_S
        while time.monotonic() < end and (
            app.session.state.view is None or app.session.state.view.state.finished is None
        ):
            await _film(app, pilot, frames, seconds=MIN_FRAME_S)
        await _film(app, pilot, frames, seconds=6)
    return frames


async def _film(app: TunerApp, pilot: Pilot[None], frames: list[Frame], seconds: float) -> None:
    """Let the screen run, and take a frame at the end if it differs from the last one."""
    await pilot.pause(seconds)
    frame = capture(app)
    if not frames or frame != frames[-1]:
        frames.append(frame)


def thinned(frames: Sequence[Frame], most: int = 20) -> list[Frame]:
    """Return at most `most` frames at even distances, with the first and the last."""
    if len(frames) <= most:
        return list(frames)
    return [frames[round(at * (len(frames) - 1) / (most - 1))] for at in range(most)]


def main() -> None:
    """Record the session and write the animation."""
    with tempfile.TemporaryDirectory() as state:
        os.environ["TUNER_STATE_DIR"] = state
        os.chdir(Path(state))
        frames = asyncio.run(_session())
    FILE.write_text(render(thinned(frames)), "utf-8")


if __name__ == "__main__":
    main()
