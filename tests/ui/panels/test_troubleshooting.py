"""Apply, diff, why: a remedy applied with one key, and undone with one."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tests.fakes.ui_backend import DATA_WAIT, OUT_OF_MEMORY, FakeBox, busy_box, ended, failed_box, running
from tests.runs.builders import record
from tests.ui.pilots import app_of, dialog, notes, on_screen, press_to, press_until, screen_text, until, value
from tuner_tui.runs.read.reader import RunView
from tuner_tui.settings.model import AppliedRemedy, Origin, OriginKind, Resolved, Settings
from tuner_tui.ui.panels.arrangement import TROUBLES_MOST_ROWS
from tuner_tui.ui.panels.troubleshooting import TroubleshootingPanel

WORKERS = "dataloader_num_workers"
TITLE = DATA_WAIT.remedies[0].title


async def test_a_remedy_is_applied_and_undone_as_a_whole() -> None:
    async with on_screen(busy_box()) as pilot:
        await press_until(pilot, lambda: value(pilot, WORKERS) == 4, "a")
        assert dialog(pilot) == ""
        assert value(pilot, "dataloader_persistent_workers")
        assert "Applied. R restarts this run with it" in notes(pilot)
        editing = app_of(pilot).session.state.editing
        assert editing is not None
        assert editing.current.origin(WORKERS).kind is OriginKind.REMEDY
        await press_until(pilot, lambda: "already set for the next run" in notes(pilot), "a")
        assert dialog(pilot) == ""
        assert "in the settings now" in screen_text(pilot.app), "there is nothing left to apply"
        assert "by hand" not in notes(pilot)
        await press_until(pilot, lambda: value(pilot, WORKERS) == 8, "u")
        assert not value(pilot, "dataloader_persistent_workers")


async def test_workers_of_a_remedy_are_not_said_to_be_too_many() -> None:
    """It offers more than the cores only where they are seen to wait."""
    many = replace(DATA_WAIT.remedies[0], change={WORKERS: 200})
    async with on_screen(busy_box(findings=(replace(DATA_WAIT, remedies=(many,)),))) as pilot:
        await press_until(pilot, lambda: value(pilot, WORKERS) == 200, "a")
        view = app_of(pilot).main.settings_view
        assert view is not None
        assert view.problems == ()
        app_of(pilot).session.settings.edit(WORKERS, "201")
        await until(pilot, lambda: "compete with each other" in str(app_of(pilot).main.settings_view))


def remedied(name: str, cause: str) -> RunView:
    """A run with 8 workers, 2 before, by a remedy since r006."""
    remedy = AppliedRemedy(name, "workers 2 → 8", cause, "r006", {WORKERS: 2})
    resolved = Resolved(Settings(dataloader_num_workers=8), {WORKERS: Origin(OriginKind.REMEDY, cause, remedy)})
    return replace(running(), record=replace(record(), resolved=resolved))


async def test_a_remedy_that_did_not_help_is_taken_back_with_one_key() -> None:
    async with on_screen(busy_box(view=remedied("more-workers", "data-wait"))) as pilot:
        await press_until(pilot, lambda: value(pilot, WORKERS) == 2, "U")
        assert "Undone: workers 8 → 2. t tries it; u undoes it." in notes(pilot)
        await press_until(pilot, lambda: "already those before workers 2 → 8" in notes(pilot), "U")
        await press_until(pilot, lambda: value(pilot, WORKERS) == 8, "u")
    async with on_screen(busy_box()) as pilot:
        await press_until(pilot, lambda: "started without a remedy" in notes(pilot), "U")


async def test_a_batch_that_ran_out_of_memory_is_not_taken_back_without_a_word() -> None:
    async with on_screen(busy_box(view=remedied("smaller-batch", "gpu-oom"))) as pilot:
        await press_until(pilot, lambda: value(pilot, WORKERS) == 2, "U")
        assert "r006 ran out of memory with that." in notes(pilot)


async def test_diff_can_be_left_or_applied_and_why_explains() -> None:
    async with on_screen(busy_box()) as pilot:
        for key in ("escape", "a"):
            await press_until(pilot, lambda: dialog(pilot) == TITLE, "d")
            assert value(pilot, WORKERS) == 8
            await press_to(pilot, "", key)
        await until(pilot, lambda: value(pilot, WORKERS) == 4)
        # A remedy outside the settings is explained instead of applied.
        for keys in (["w"], ["alt+3", "down", "a"]):
            await press_to(pilot, "Why", *keys)
            await press_to(pilot, "", "escape")
    async with on_screen(busy_box(findings=())) as pilot:
        await pilot.press("a", "d", "w")
        assert dialog(pilot) == ""


async def test_the_cursor_goes_through_the_remedies_of_a_failure_framed_as_one() -> None:
    async with on_screen(failed_box()) as pilot:
        panel = app_of(pilot).main.query_one(TroubleshootingPanel)
        assert panel.styles.border_top[0] == "heavy"
        await pilot.press("alt+3", "down")
        assert panel.choice is not None
        assert panel.choice.remedy is OUT_OF_MEMORY.remedies[1]
        await pilot.press("down", "k")
        assert panel.choice.remedy is OUT_OF_MEMORY.remedies[0]
        await pilot.click(panel, offset=(8, 4))
        assert panel.choice.remedy is OUT_OF_MEMORY.remedies[1]
        await press_until(pilot, lambda: value(pilot, "gradient_checkpointing"), "a")


async def test_enter_applies_what_answers_out_of_memory_and_resumes_at_once() -> None:
    box = failed_box()
    async with on_screen(box, size=(80, 24)) as pilot:
        panel = app_of(pilot).main.query_one(TroubleshootingPanel)
        await until(pilot, lambda: panel.has_focus)
        assert "[enter] apply, run again" in screen_text(pilot.app)
        await press_until(pilot, lambda: bool(box.retried), "down", "enter")
        assert box.retried == [("r007", "gpu-oom", {"gradient_checkpointing": True})]
        assert "no checkpoint to resume from; a new run starts at step 0." in notes(pilot)
        await until(pilot, lambda: app_of(pilot).session.state.folder == Path("/runs/r008"))
    box = failed_box()
    async with on_screen(box, size=(80, 24)) as pilot:
        await until(pilot, lambda: app_of(pilot).main.query_one(TroubleshootingPanel).has_focus)
        await press_until(pilot, lambda: bool(box.retried), "2", "enter")
    async with on_screen(busy_box()) as pilot:
        await press_until(pilot, lambda: value(pilot, WORKERS) == 4, "alt+3", "enter")
        assert "Applied." in notes(pilot), "a live run goes on"


async def test_all_of_the_result_and_the_findings_is_seen_after_a_resize() -> None:
    box = FakeBox(view=ended("completed", "Completed."), findings=(DATA_WAIT,))
    async with on_screen(box, folder=Path("/runs/r007")) as pilot:
        panel = app_of(pilot).main.query_one(TroubleshootingPanel)
        for size in ((120, 40), (118, 34), (120, 40)):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda: panel.size.height == panel.wanted_rows > 1)
        app_of(pilot).main.findings = (DATA_WAIT, OUT_OF_MEMORY)
        await until(pilot, lambda: panel.size.height == min(TROUBLES_MOST_ROWS - 2, panel.wanted_rows) > 3)
        seen = screen_text(pilot.app)
        assert 0 < seen.index("✓ Completed") < seen.index(OUT_OF_MEMORY.sentence)
        await pilot.press("alt+3", *["down"] * 5)
        await until(pilot, lambda: DATA_WAIT.remedies[-1].title in screen_text(pilot.app))
        assert "more lines" not in screen_text(pilot.app).splitlines()[panel.region.bottom - 2], "the end is reached"
        await pilot.press(*["up"] * 9)
        await until(pilot, lambda: OUT_OF_MEMORY.sentence in screen_text(pilot.app))
        await pilot.resize_terminal(80, 24)
        await pilot.press("alt+1")
        await until(pilot, lambda: "1 of 2" in screen_text(pilot.app))
        assert panel.size.height == 2, "in brief above another panel"
        await pilot.press("alt+3", "down", "alt+1")
        remedy = OUT_OF_MEMORY.remedies[1].title
        await until(pilot, lambda: f"▸ {remedy}" in screen_text(pilot.app))
        assert OUT_OF_MEMORY.sentence in screen_text(pilot.app), "the headline stays above its remedies"


async def test_no_evidence_stands_under_the_title_of_another_finding() -> None:
    findings = [replace(DATA_WAIT, sentence=f"Finding {n}", cause=f"cause {n}") for n in range(6)]
    last = replace(DATA_WAIT, sentence="PyTorch is CPU-only", cause="cpu-only", severity="hint", remedies=())
    async with on_screen(busy_box(findings=(*findings, last))) as pilot:
        panel = app_of(pilot).main.query_one(TroubleshootingPanel)
        await pilot.press("alt+3", *["down"] * 20)
        await until(pilot, lambda: last.sentence in screen_text(pilot.app))
        assert panel.top > 0
        assert screen_text(pilot.app).count(last.sentence) == 1


async def test_why_a_remedy_cannot_be_applied_is_said_at_its_key() -> None:
    by_hand = replace(DATA_WAIT, remedies=(replace(DATA_WAIT.remedies[0], title="use a faster disk", change={}),))
    async with on_screen(busy_box(findings=(by_hand,))) as pilot:
        for key in "ad":
            await press_to(pilot, "Why", key)
            assert "This remedy is done by hand" in notes(pilot)
            await press_to(pilot, "", "escape")
