"""Nothing is claimed before it was read: backends that never answer, and that answer in every order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from msgspec.structs import replace
from textual.events import Key

from tests.fakes.ui_backend import FakeBox, FakeEstimates, opened, running
from tests.ui.pilots import SIZE, app_of, dialog, notes, press_until, screen_text, settled, until
from tuner_tui.settings.job import CommandJob
from tuner_tui.ui.app import TunerApp
from tuner_tui.ui.backend import Backend
from tuner_tui.ui.screens.help import HelpScreen

CLAIMS = (
    "No run open", "sets up", "No problems", "No output", "✓", "✗", "default", "micro batch", "peak memory ━",
    "peak RAM", "fits", "time unknown",
)  # fmt: skip
"""Words that need something to have been read."""
QUESTIONS = ("open_run", "follow_run", "read_inventory", "read_job", "probe_interpreter")


class Gates:
    """Holds back the answers of a backend until they are let through, each by the name of its method."""

    def __init__(self, box: FakeBox) -> None:
        self.gates = {name: Event() for name in (*QUESTIONS, "quick")}
        self.backend = box.backend()
        for name in QUESTIONS:
            setattr(self.backend, name, self._gated(name, getattr(self.backend, name)))
        self.backend.estimates = FakeEstimates(quick=self._gated("quick", self.backend.estimates.quick))

    def _gated(self, name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
        def wait_and_answer(*args: Any) -> Any:
            self.gates[name].wait()
            return answer(*args)

        return wait_and_answer

    def app(self, folder: Path | None) -> TunerApp:
        """The app over this backend, which follows the run in `folder`."""

        def start(backend: Backend) -> Any:
            return backend.open_run(Path("/runs/r007")), folder

        return TunerApp(lambda: self.backend, start)

    def let_all_through(self) -> None:
        for gate in self.gates.values():
            gate.set()


def script_box(follows: bool) -> FakeBox:
    """A script that trains with 16 samples where our default is 8, with its run or without one."""
    config = replace(opened(None), job=CommandJob(command=("python", "train.py"), apply="inject"))
    return FakeBox(opened=config, given={"per_device_train_batch_size": 16}, view=running() if follows else None)


async def test_a_backend_that_never_answers_leaves_no_claim_on_the_screen() -> None:
    gates = Gates(script_box(follows=True))
    app = gates.app(Path("/runs/r007"))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app._session is not None)
        text = screen_text(app)
        assert [claim for claim in CLAIMS if claim in text] == []
        assert text.count("reading …") == 1, "in the status line, not in each panel"
        assert text.index("reading …") < text.index("1 Settings")


@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize("order", [*itertools.permutations(QUESTIONS)][::13])
async def test_in_whatever_order_the_answers_come_nothing_is_said_too_early(
    order: tuple[str, ...], follows: bool
) -> None:
    box = script_box(follows)
    gates = Gates(box)
    app = gates.app(Path("/runs/r007") if follows else None)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app._session is not None)
        answered: set[str] = set()
        for name in order:
            gates.gates[name].set()
            answered.add(name)
            for _ in range(5):
                await pilot.pause()
            text = screen_text(app)
            assert " 8 default" not in text
            assert "effective batch 8" not in text
            assert "peak memory ━" not in text
            if "open_run" not in answered or (follows and "follow_run" not in answered):
                assert "No run open" not in text
                assert "No problems" not in text
            if not follows and not {"read_inventory", "read_job", "probe_interpreter"} <= answered:
                assert "No problems" not in text
        gates.let_all_through()
        await until(pilot, settled(pilot, box))
        await until(pilot, lambda: "reading …" not in screen_text(app_of(pilot)))
        assert " 16 train.py" in screen_text(app)


async def test_what_is_typed_while_the_screen_reads_is_answered_in_its_order_and_starts_nothing() -> None:
    box = FakeBox()
    gates = Gates(box)
    app = gates.app(None)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("e", *"python t.py")
        await until(pilot, lambda: app._session is not None)
        assert dialog(pilot) == ""
        gates.let_all_through()
        await until(pilot, lambda: dialog(pilot) == "Job" and "python t.py" in screen_text(app))
        assert not box.launched


async def test_the_help_opens_while_the_screen_reads_and_q_closes_what_is_on_top() -> None:
    gates = Gates(FakeBox())
    app = gates.app(None)
    async with app.run_test(size=SIZE) as pilot:
        app.post_message(Key("question_mark", "?"))
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        app.post_message(Key("q", "q"))
        await until(pilot, lambda: app.screen is app.main)
        assert app.is_running
        await until(pilot, lambda: app._session is not None)


async def test_q_leaves_a_screen_that_never_finishes_reading() -> None:
    app = Gates(FakeBox()).app(None)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)


async def test_of_a_run_that_is_still_read_nobody_says_that_it_does_not_train() -> None:
    box = script_box(follows=True)
    gates = Gates(box)
    app = gates.app(Path("/runs/r007"))
    async with app.run_test(size=SIZE) as pilot:
        gates.gates["open_run"].set()
        for key in ("W", "F", "c", "s"):
            await press_until(pilot, lambda: "r007 is still being read" in notes(pilot), key)
            app.clear_notifications()
        gates.let_all_through()
        await until(pilot, settled(pilot, box))
        await press_until(pilot, lambda: box.orders, "c")
        assert "No training is running" not in notes(pilot)
