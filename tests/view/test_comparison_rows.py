"""Two runs compared as rows: side by side where there is room, nothing drawn of what was not measured."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.fakes.run_pairs import two_jobs, two_runs
from tests.runs.builders import view
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.view.cells import line_width, plain_text
from tuner_tui.view.comparison_rows import ComparisonScene, compare_views, comparison_rows


def scene(runs: ComparisonScene) -> ComparisonScene:
    return ComparisonScene(runs.names, runs.statuses, runs.comparison, runs.curves)


def texts(runs: ComparisonScene, width: int) -> list[str]:
    return [plain_text(row).rstrip() for row in comparison_rows(scene(runs), width)]


def test_settings_stand_beside_figures_where_there_is_room() -> None:
    wide, narrow = texts(two_runs(), 140), texts(two_runs(), 76)
    verdict = (
        "r007 is 1.7× faster than r006, its peak memory 5.7 GiB higher, its loss after 12,800 samples 0.0289 lower."
    )
    assert wide[0] == " ".join(narrow[:2]) == verdict
    assert "Measured" in next(row for row in wide if row.startswith("Settings"))
    assert next(row for row in wide if row.startswith("micro batch")).split()[2:4] == ["16", "32"]
    assert not any("Settings" in row and "Measured" in row for row in narrow)
    assert any("⠒⠒" in row for row in narrow), "the loss of both"


def test_a_loss_that_is_not_finite_is_not_compared() -> None:
    runs = two_runs()
    broken = replace(runs.comparison, loss_problems=("", "loss nan since step 51"))
    shown = texts(runs._replace(comparison=broken), 140)
    assert shown[0].endswith("its peak memory 5.7 GiB higher, the loss nan since step 51 of r007.")
    doubtful = texts(runs._replace(comparison=replace(broken, doubt="the data differ")), 140)
    assert any("· loss nan since step 51" in row for row in doubtful)


def test_a_repeated_run_is_not_called_better_for_the_load_of_the_machine() -> None:
    runs = two_runs()
    same = replace(runs.comparison, settings=(), in_effect=(), versions=(), code=())
    rows = comparison_rows(runs._replace(comparison=same), 140)
    assert "than r006 with the same settings (the difference comes from the machine's load)" in plain_text(rows[0])
    assert next(span for span in rows[0] if "than r006" in span.text).style == "strong"
    assert {span.style for row in rows for span in row if "×1.68" in span.text} == {"dim"}


def test_a_value_beyond_noise_has_the_colour_of_better_or_worse() -> None:
    def style(runs: ComparisonScene) -> str:
        rows = comparison_rows(runs, 76)
        return next((span.style for row in rows for span in row if "0.475 s" in span.text), "")

    runs = two_runs()
    assert style(runs) == "", "its batch is another"
    settings = tuple(row for row in runs.comparison.settings if row.name != "per_device_train_batch_size")
    same_batch = replace(runs.comparison, settings=settings)
    assert style(runs._replace(comparison=same_batch)) == "warn"


def test_of_two_commands_what_differs_is_shown_however_long_they_are() -> None:
    commands = (("python", "t.py", "--steps", "3"), ("python", "t.py", "--lr", "1e-4", "--steps", "3"))
    views = [view(job=CommandJob(command=command), created_t=2.0 + n) for n, command in enumerate(commands)]
    shown = texts(compare_views(("r006", views[0]), ("r007", views[1])), 120)
    command = next(row.split() for row in shown if row.startswith("command"))
    assert command == ["command", "…", "--steps", "3", "…", "--lr", "1e-4", "--steps", "3"]
    assert not any("train different jobs" in row for row in shown)


def test_different_jobs_are_warned_of_and_no_losses_draw_nothing() -> None:
    shown = texts(two_jobs(), 120)
    assert any("train different jobs" in row for row in shown)
    assert any(row.startswith("Settings: no known difference") for row in shown)
    assert not any("Loss over samples" in row for row in shown)
    assert any(row.startswith("model  bert-base-uncased  gpt2") for row in shown), "what differs, not all of both"
    assert not any(row.startswith("job") for row in shown)


def test_one_run_without_losses_leaves_the_other_curve() -> None:
    runs = two_runs()
    shown = texts(runs._replace(curves=((), runs.curves[1])), 76)
    assert any(row.startswith("Loss over samples") for row in shown)


def test_of_two_commands_the_words_that_differ_are_shown() -> None:
    words = ("/opt/environments/training/bin/python", "train.py", "--epochs")
    first, second = (view(job=CommandJob(command=(*words, epochs)), created_t=float(epochs)) for epochs in "34")
    shown = texts(compare_views(("r006", first), ("r007", second)), 120)
    assert any(row.split()[:5] == ["command", "…", "3", "…", "4"] for row in shown), shown


def test_a_variable_that_was_set_for_a_run_is_a_difference() -> None:
    first, second = (view(job=BuiltinJob(env=env), created_t=2.0) for env in ({}, {"OMP_NUM_THREADS": "2"}))
    shown = texts(compare_views(("r006", first), ("r007", second)), 120)
    assert any(row.split()[:4] == ["OMP_NUM_THREADS", "not", "set", "2"] for row in shown), shown
    assert not any("identical" in row or "machine's load" in row for row in shown)


@pytest.mark.parametrize("width", [30, 76, 111, 112, 196])
def test_no_row_outgrows_its_place(width: int) -> None:
    for runs in (two_runs(), two_jobs(), two_runs()._replace(names=("r" * 30, "s" * 30))):
        rows = comparison_rows(scene(runs), width)
        tables = next(n for n, row in enumerate(rows) if plain_text(row).startswith("Set"))
        assert all(line_width(row) <= max(width, len("Settings: identical")) for row in rows[tables:])


@pytest.mark.parametrize("width", range(112, 150, 4))
def test_no_ratio_is_left_out_where_the_settings_leave_room_for_it(width: int) -> None:
    assert any(row.endswith("×1.68") for row in texts(two_runs(), width))
