"""The live picture at any size, with any number of GPUs, for every state of a run."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes.live_run import GIB, START_S, finished, history, running, samples
from tuner_tui.hardware.inventory import GpuProcess
from tuner_tui.hardware.sample import GpuSample, HostSample, ProcessSample, Sample
from tuner_tui.runs.events.progress import History
from tuner_tui.runs.events.run_state import RankState, RunState
from tuner_tui.runs.events.types import Steps
from tuner_tui.runs.read.run_context import PastRun, RunContext
from tuner_tui.runs.store.remedy_outcomes import RemedyOutcome, RemedyVerdict
from tuner_tui.view.cells import Line, fit, line_width, plain_text
from tuner_tui.view.gpu_rows import GpuScene, gpu_rows, gpus_in_use
from tuner_tui.view.live_rows import LiveScene, live_rows
from tuner_tui.view.run_rows import RunScene, epoch_text, outcome_sentence, rank_rows, run_rows

NOW_S = START_S + 0.4
STARTED_BEFORE = RunContext((PastRun("r001", None, 41.0),))
NEXT_TRAINING = (("preset", "demo · a first training"), ("model", "tiny · classification"), ("length", "400 steps"))


def scene(state: RunState | None = None, gpus: int = 2, cores: int = 64, count: int = 30, **last: object) -> LiveScene:
    recent = samples(count, gpus=gpus, cores=cores)
    if last:
        changed = tuple(replace(gpu, **last) if gpu.index == 1 else gpu for gpu in recent[-1].gpus)
        recent = (*recent[:-1], replace(recent[-1], gpus=changed))
    return LiveScene(NOW_S, state, history(), recent[-1], recent)


def texts(shown: LiveScene, width: int = 36, height: int = 20) -> list[str]:
    return [plain_text(fit(row, width)) for row in live_rows(shown, width, height)[:height]]


def text(shown: LiveScene, width: int = 36, height: int = 20) -> str:
    return "\n".join(texts(shown, width, height))


@given(
    st.integers(1, 130), st.integers(1, 45), st.sampled_from([0, 1, 2, 8, 16]), st.sampled_from([0, 1, 8, 128]),
    st.sampled_from([None, 1, 2, 16]),
)  # fmt: skip
def test_every_size_has_its_picture(width: int, height: int, gpus: int, cores: int, ranks: int | None) -> None:
    state = None if ranks is None else running(START_S, ranks)
    shown = scene(state, gpus, cores)._replace(next_training=NEXT_TRAINING)
    rows = live_rows(shown, width, height)
    assert rows
    assert len(rows) <= max(height, len(live_rows(shown, width, 1)))
    assert all(line_width(fit(row, width)) == width for row in rows)


def test_what_would_be_trained_stands_above_the_gauges_until_there_is_a_run() -> None:
    shown = texts(scene()._replace(next_training=NEXT_TRAINING), 60, 22)
    assert [row.rstrip() for row in shown[:3]] == [
        "preset    demo · a first training",
        "model     tiny · classification",
        "length    400 steps",
    ]
    assert not any(
        "400 steps" in row for row in texts(scene(running(START_S))._replace(next_training=NEXT_TRAINING), 60, 22)
    )


@pytest.mark.parametrize(("width", "height", "gpus"), [(74, 32, 2), (74, 32, 0), (76, 17, 0), (138, 50, 8)])
def test_a_long_description_is_read_to_its_end_where_there_are_rows(width: int, height: int, gpus: int) -> None:
    about = " ".join(f"word{n}" for n in range(34))
    training = (("preset", about), ("model", "m"), ("data", "d"), ("length", "l"), ("", ""), ("t", "starts"))
    shown = text(scene(None, gpus=gpus)._replace(next_training=training), width, height)
    assert "word33" in shown
    assert "…" not in shown
    assert "starts" in shown


def test_eight_gpus_and_the_run_fit_beside_the_settings_of_a_120_by_40_screen() -> None:
    shown = texts(scene(running(START_S), gpus=8), 74, 22)
    assert [row.split()[0] for row in shown if row[:3].strip().isdigit()] == [str(gpu) for gpu in range(8)]
    assert shown[0].startswith("loss 1.8404")
    assert any("⠉" < cell < "⣿" for row in shown[1:8] for cell in row), "the loss curve"


def test_the_loss_comes_first_then_the_run_then_the_machine_at_every_size() -> None:
    for width, height in ((74, 14), (74, 22), (118, 45)):
        shown = [row.split()[0] for row in texts(scene(running(START_S)), width, height) if row.strip()]
        order = [shown.index(word) for word in ("loss", "step", "memory", "speed", "GPU", "CPU")]
        assert order == sorted(order)


@pytest.mark.parametrize(("width", "height"), [(74, 20), (74, 22), (136, 31)])
@pytest.mark.parametrize("gpus", [2, 8])
def test_the_loss_is_the_largest_thing_of_a_run(width: int, height: int, gpus: int) -> None:
    shown = texts(scene(running(START_S), gpus=gpus), width, height)
    foot = next(y for y, row in enumerate(shown) if row.rstrip().endswith(" 9,000"))
    assert foot + 1 >= 0.27 * height
    assert len(shown) == height


def test_figures_of_ranks_give_way_to_the_loss() -> None:
    shown = texts(scene(running(START_S, 2)), 74, 14)
    assert any(row.rstrip().endswith(" 9,000") for row in shown), "the axis of the loss"
    assert not any(row.startswith("ranks") for row in shown), "they are equally fast"
    assert any("slowest is rank 3" in row for row in texts(scene(running(START_S, 8)), 74, 14))


def test_rows_that_are_left_show_histories() -> None:
    assert "100 %" not in text(scene(None), 74, 5)
    tall = text(scene(None), 74, 20)
    assert tall.count("100 %") == 3
    assert tall.count("30 s ago ─") == 1, "the axis stands once"


def test_gpus_that_are_all_idle_have_their_charts_from_the_first_second_on() -> None:
    def idle(seconds: int) -> int:
        recent = [
            replace(each, gpus=tuple(replace(gpu, utilisation_pct=0.0) for gpu in each.gpus))
            for each in samples(seconds, gpus=2)
        ]
        return len(gpu_rows(GpuScene(recent[-1], recent, past_s=float(seconds)), 120, 24))

    recent = samples(90, gpus=2)
    busy = len(gpu_rows(GpuScene(recent[-1], recent, past_s=90.0), 120, 24))
    assert busy > 12
    assert (idle(3), idle(90)) == (busy, busy)


def test_a_machine_without_gpus_shows_the_history_of_the_processor_but_not_a_screen_full_of_it() -> None:
    shown = texts(scene(None, gpus=0), 60, 40)
    assert sum("⣤" * 40 in row for row in shown) == 1, "it is flat"
    assert not any(row.startswith("GPU") for row in shown)


def test_eight_gpus_are_two_columns_of_rows_where_there_is_no_room_for_a_row_of_each() -> None:
    low, high = (texts(scene(None, gpus=8), 136, height) for height in (8, 14))
    low, high = ([row for row in rows if "GiB" in row and row.startswith(" ")] for rows in (low, high))
    assert [(row.split()[0], row[69:].split()[0]) for row in low] == [("0", "4"), ("1", "5"), ("2", "6"), ("3", "7")]
    assert [row.split()[0] for row in high] == [*"01234567"]


def test_eight_gpus_stand_apart_with_higher_histories_at_their_right_where_rows_are_left() -> None:
    recent = samples(30, gpus=8)
    for room, gaps in ((10, 1), (17, 2), (25, 3), (60, 3)):
        rows = [plain_text(row) for row in gpu_rows(GpuScene(recent[-1], recent, past_s=30.0), 120, room)]
        starts = [at for at, row in enumerate(rows) if "GiB" in row]
        assert [after - at for at, after in pairwise(starts)] == [gaps] * 7
        assert all(row[:60].isspace() for row in rows[2:gaps])
        assert gaps == 1 or not rows[gaps].strip()


def test_sixty_four_gpus_are_a_wall_with_the_worst_five_as_rows() -> None:
    recent = samples(30, gpus=64)
    newest = recent[-1]
    gpus = [replace(gpu, lost=True) if gpu.index == 40 else gpu for gpu in newest.gpus]
    gpus[9] = replace(gpus[9], throttle=("thermal slowdown",))
    rows = gpu_rows(GpuScene(replace(newest, gpus=tuple(gpus)), recent, frozenset(range(64))), 120)
    shown = [plain_text(row) for row in rows]
    assert shown[0].split() == ["64", "GPUs", "62", "busy", "2", "in", "trouble"]
    assert shown[1].startswith("0–31")
    assert shown[2].startswith("32–63")
    assert len(shown[1].rstrip()) == len(shown[2].rstrip())
    assert shown[2].count("✗") == 1
    assert shown[1].count("!") == 1
    worst = [row.split()[0].rstrip("✗!") for row in shown[4:9]]
    assert {"9", "40"} < set(worst)
    assert len(worst) == 5
    assert any(row.startswith("40  ✗ lost") for row in shown[4:9])
    assert sum("lost" in row for row in shown) == 1
    crowded = tuple(replace(gpu, lost=gpu.index < 6) for gpu in newest.gpus)
    rows = gpu_rows(GpuScene(replace(newest, gpus=crowded), recent), 120)
    assert any(plain_text(row).startswith("✗ GPU 0–5: lost") for row in rows)


def test_a_gpu_that_answers_now_and_then_keeps_its_mark() -> None:
    recent = [
        replace(past, gpus=(replace(past.gpus[0], age_s=1.0 + ago % 4),))
        for ago, past in enumerate(samples(30, gpus=1))
    ]
    for now in range(10, 30):
        first, *rest = gpu_rows(GpuScene(recent[now], recent[: now + 1]), 90)[1:]
        assert plain_text(first).startswith(" 0?")
        assert "answers slowly" not in plain_text(first)
        assert plain_text(rest[-1]) == "? GPU 0: answers slowly, values up to 4 s old"


def test_unknown_figures_are_dashes() -> None:
    bare = LiveScene(NOW_S, RunState(), History(), Sample(START_S, (GpuSample(0, "T4"),), HostSample()), ())
    shown = text(bare, 36, 40)
    assert "–/–" in shown
    assert "–" in shown.splitlines()[1]
    assert " 0 %" not in shown


def test_a_loss_that_is_not_a_number_is_marked() -> None:
    rows = live_rows(scene(running(START_S, loss=float("nan"))), 36, 20)
    assert any(run.text.strip() == "nan" and run.style == "bad" for row in rows for run in row)


def styles_of(row: Line) -> dict[str, str]:
    """Return the style of each filled gauge of a row."""
    filled = [run for run in row if run.text.startswith(("━", "╸"))]
    return dict(zip(("busy", "memory", "power"), (run.style for run in filled), strict=False))


def gauge_styles(training: bool, **changes: object) -> dict[str, str]:
    recent = samples(12, gpus=1)
    recent = tuple(replace(run, gpus=(replace(run.gpus[0], **changes),)) for run in recent)
    shown = GpuScene(recent[-1], recent, frozenset({0}) if training else frozenset())
    return styles_of(gpu_rows(shown, 80)[1])


def test_colour_means_state() -> None:
    assert gauge_styles(True, utilisation_pct=93)["busy"] == "good"
    assert gauge_styles(True, utilisation_pct=20)["busy"] == "warn"
    assert gauge_styles(False, utilisation_pct=20)["busy"] == "gauge"
    assert gauge_styles(True, memory_used_bytes=78 * GIB, memory_total_bytes=80 * GIB)["memory"] == "bad"
    assert gauge_styles(True, memory_used_bytes=30 * GIB, memory_total_bytes=80 * GIB)["memory"] == "second"


def test_a_gpu_without_the_training_is_not_judged() -> None:
    first, second = samples(1, gpus=2)[-1].gpus
    unused = replace(second, memory_used_bytes=0)
    sample = replace(samples(1)[-1], gpus=(first, unused))
    assert gpus_in_use(sample) == {0}
    assert not gpus_in_use(sample, "cpu"), "what other programs hold is not of a training on the CPU"
    foreign = replace(first, processes=(GpuProcess(4242, 40 * GIB, "python serve.py"),))
    assert not gpus_in_use(replace(sample, gpus=(foreign, unused))), "nor of one that never named its device"


@pytest.mark.parametrize("width", [20, 30, 36, 47, 60, 72, 80, 116, 160, 196])
@pytest.mark.parametrize("jobs", [{}, {0: "r007 llama"}])
def test_a_row_of_gauges_fits_its_place(width: int, jobs: dict[int, str]) -> None:
    recent = samples(30, gpus=8)
    for row in gpu_rows(GpuScene(recent[-1], recent, jobs=jobs), width):
        assert line_width(row) <= width, plain_text(row)


def test_value_and_maximum_stand_in_words() -> None:
    shown = texts(scene(None), 80, 20)[1]
    assert "61/80 GiB" in shown
    assert "/700 W" in shown
    host = next(row for row in texts(scene(None), 80, 20) if row.startswith("CPU"))
    assert "RAM" in host
    assert "/512 GiB" in host


@pytest.mark.parametrize(
    ("changes", "mark", "expected"),
    [
        ({"memory_used_bytes": 78 * GIB, "memory_total_bytes": 80 * GIB}, " 1 ", "! GPU 1: memory nearly full"),
        ({"lost": True, "age_s": 42.0}, " 1 ", " 1  ✗ lost 42 s ago"),
        ({"age_s": 7.0}, " 1?", "? GPU 1: answers slowly, values up to 7 s old"),
        ({"age_s": 12.0}, " 1?", "? GPU 1: does not answer, values of 12 s ago"),
        ({"throttle": ("thermal slowdown",)}, " 1!", "! GPU 1: throttled: thermal slowdown"),
        ({"throttle": ("power cap",)}, " 1 ", "  GPU 1: at its power cap"),
        (
            {"xid": 48, "xid_age_s": 30.0, "throttle": ("power cap",)}, " 1!",
            "! GPU 1: at its power cap; Xid 48: uncorrectable ECC memory error",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_gpu_is_marked_and_said_in_words(
    changes: dict[str, Any], mark: str, expected: str
) -> None:
    shown = texts(scene(None, **changes), 90, 30)
    assert any(row.startswith(mark) for row in shown)
    assert any(row.startswith(expected) for row in shown)


def test_gpus_with_the_same_problem_share_a_row_and_the_power_cap_is_not_red() -> None:
    recent = samples(3, gpus=8)
    for throttle, row in (
        ("thermal slowdown", ("! GPU 0–7: throttled: thermal slowdown", "bad")),
        ("power cap", ("GPU 0–7: at its power cap", "dim")),
    ):
        held = replace(recent[-1], gpus=tuple(replace(gpu, throttle=(throttle,)) for gpu in recent[-1].gpus))
        rows = live_rows(LiveScene(NOW_S, None, History(), held, recent), 44, 30)
        assert row in [span for cells in rows for span in cells]
        assert any(span.style == "bad" for cells in rows for span in cells) == (row[1] == "bad")


def test_an_old_sample_is_marked() -> None:
    old = scene()._replace(now_s=START_S + 720)
    assert "! sampled 12 min ago" in text(old)


def test_the_slowest_rank_is_named_with_a_bar_for_each() -> None:
    row, *_ = rank_rows(running(START_S, ranks=8), 80)
    assert "slowest is rank 3: 0.36 s per step, the others 0.32   ▆ ▆ ▆ ▇ ▆ ▆ ▆ ▆" in plain_text(row)
    assert [span.text.strip() for span in row if span.style == "warn"] == ["▇"]


def test_no_rank_is_called_slowest_where_all_are_equally_fast() -> None:
    state = running(START_S, ranks=2)
    first = state.ranks[0]
    rows = rank_rows(replace(state, ranks={0: first, 1: replace(first, rank=1)}), 60)
    assert [plain_text(row).startswith("ranks     all 2 need about") for row in rows] == [True]


def test_the_rank_that_waits_most_for_data_is_named() -> None:
    usual, no_loader = running(START_S, ranks=3, data_wait=0.05), running(START_S, ranks=3, data_wait=0.0)
    ranks = {**usual.ranks, 1: running(START_S, ranks=3, data_wait=0.31).ranks[1], 2: no_loader.ranks[2]}
    state = replace(usual, ranks=ranks)
    shown = plain_text(rank_rows(state, 90)[0])
    assert "data wait 5 % … 31 % (rank 1)" in shown


@pytest.mark.parametrize(
    ("speed", "verdict", "words"),
    [
        ((1.31, 1.2, 1.4), "kept", "31 % faster than r006 by workers 2 → 8"),
        ((1.05, 0.9, 1.2), "unknown", "as fast as r006 by workers 2 → 8"),
        (None, "not comparable", "workers 2 → 8: inconclusive"),
    ],
)
def test_what_a_remedy_does_is_said_while_the_run_trains(
    speed: tuple[float, float, float] | None, verdict: RemedyVerdict, words: str
) -> None:
    outcome = RemedyOutcome(("more-workers",), "workers 2 → 8", "r006", "r007", verdict, "expected", speed)
    for width, height in ((78, 14), (120, 30)):
        assert words in text(scene(running())._replace(context=RunContext(remedy=outcome)), width, height)
    too_few_steps = replace(outcome, verdict="unknown", speed=None)
    assert "workers 2 → 8" not in text(scene(running())._replace(context=RunContext(remedy=too_few_steps)), 120, 30)


def test_padding_that_was_estimated_says_so() -> None:
    state = running(START_S)
    estimated = {
        number: replace(rank, latest=rank.latest and replace(rank.latest, tokens_estimated=True))
        for number, rank in state.ranks.items()
    }
    assert "padding 6 %" in text(scene(state), 90, 40)
    assert "padding ~6 %" in text(scene(replace(state, ranks=estimated)), 90, 40)


@pytest.mark.parametrize(
    ("sentence", "limit", "expected"),
    [
        (
            "Out of memory while training at step 12 of 400: [enforce fail at alloc_cpu.cpp:127] err == 0.",
            int(1.2 * GIB),
            "Out of memory while training at step 12 of 400; the limit was 1.2 GiB.",
        ),
        ("Out of memory: CUDA out of memory. Tried to allocate 2.31 GiB.", None, "Out of memory."),
        ("The training failed: ValueError: nan.", GIB, "The training failed: ValueError: nan."),
    ],
)
def test_an_end_is_told_without_what_the_allocator_printed(sentence: str, limit: int | None, expected: str) -> None:
    assert outcome_sentence(finished("out-of-memory", sentence), limit) == expected
    assert outcome_sentence(running(), limit) == ""


def test_parts_of_a_loss_stand_below_it_by_name() -> None:
    state = replace(running(), loss=0.75, logged_parts={"loss_d": 1.5, "loss_g": 4.0})
    rows = start_text(state)
    position = next(index for index, row in enumerate(rows) if row.startswith("loss"))
    assert rows[position + 1] == "parts     loss_d 1.5000 · loss_g 4.0000"


def starting(*startup: tuple[float, str], **changes: Any) -> RunState:
    """Return a run before its first step, with phases that began so many seconds ago."""
    phases = tuple((START_S - ago, phase) for ago, phase in startup)
    return replace(RunState(launched_t=phases[0][0], startup=phases), **changes)


def start_text(state: RunState, width: int = 120, **changes: Any) -> list[str]:
    rows = run_rows(RunScene(state, None, START_S)._replace(**changes), width)
    return [plain_text(row).rstrip() for row in rows]


def test_a_start_is_shown_in_phases_with_their_seconds_and_the_usual_time() -> None:
    phases = ((30.0, "importing"), (24.0, "starting"), (20.0, "loading-model"), (8.0, "starting"), (3.0, "training"))
    assert start_text(starting(*phases), width=130, context=STARTED_BEFORE) == [
        "start-up  before torch is loaded 6 s · setting up 9 s · loading the model 12 s · first step 3 s"
        " · usually 41 s in all"
    ]
    assert start_text(starting(*phases), width=60) == [
        "start-up  before torch is loaded 6 s · setting up 9 s",
        "          loading the model 12 s · first step 3 s",
    ]
    shown = run_rows(RunScene(starting(*phases, (1.0, "starting")), None, START_S), 120)[0]
    assert [span.text.strip() for span in shown if span.style == "strong"] == ["setting up 10 s"], "the one under way"
    done = starting(*phases, first_step_t=START_S, step=1)
    assert not any(row.startswith("start-up") for row in start_text(done))


@pytest.mark.parametrize(
    ("changes", "processes", "reason"),
    [
        ({"world_size": 4}, (), "! It waits for 4 of 4 ranks, which have not started."),
        ({}, ((0.5, "main"),), "! It neither computes nor reads from the disk: it waits for the network,"),
        ({}, ((97.0, "main"),), "! It computes on the CPU (97 % of one core)"),
        ({}, (), ""),
    ],
)
def test_after_ten_minutes_a_phase_says_what_it_waits_for(
    changes: dict[str, Any], processes: tuple[tuple[float, str], ...], reason: str
) -> None:
    running_processes = tuple(ProcessSample(7, role, cpu_pct=cpu) for cpu, role in processes)
    sample = Sample(START_S, host=HostSample(disk_read_bytes_s=0.0), processes=running_processes)
    rows = start_text(starting((700.0, "importing"), (650.0, "loading-model"), **changes), sample=sample)
    assert rows[0].endswith("loading the model 10 min")
    assert "".join(rows[1:2]).startswith(reason)
    assert len(rows) == 1 + bool(reason)
    assert len(start_text(starting((500.0, "loading-model"), **changes), sample=sample)) == 1


def test_the_usual_time_of_a_start_reaches_the_live_panel() -> None:
    began = starting((30.0, "importing"), (20.0, "loading-model"))
    shown = LiveScene(START_S, began, History(), None, (), context=STARTED_BEFORE)
    assert "loading the model 20 s · usually 41 s in all" in text(shown, 100, 20)


@pytest.mark.parametrize(
    ("reported", "planned", "guessed", "words"),
    [
        (0.0, 2.0, True, "epoch 0.28 of 2"),
        (0.383, 3.0, True, "epoch 0.38 of 3"),
        (0.383, 1.6, False, "epoch 0.22 of 1.6"),  # before the first line of a resumed run, and between lines
        (0.0, None, False, "epoch 0"),
        (1.0, None, False, "epoch 1"),
    ],
)
def test_the_epoch_moves_within_its_first_one(
    reported: float, planned: float | None, guessed: bool, words: str
) -> None:
    state = replace(running(START_S), epoch=reported, planned_epochs=planned, total_guessed=guessed)
    assert epoch_text(state) == words


def test_an_evaluation_of_the_loss_alone_has_no_row_without_a_value() -> None:
    state = running(START_S)
    assert "evaluated" in text(scene(state), 74, 30)
    loss_only = replace(state, evaluations=(replace(state.evaluations[-1], metrics={"eval_loss": 0.69}),))
    assert "evaluated" not in text(scene(loss_only), 74, 30)


def waiting(number: int, rank_wait_s: float) -> RankState:
    """A rank after 50 steps of 0.4 s, of which it waits for the others so long."""
    first = Steps(t=START_S - 20, step=0, own_steps=0, rank_wait_s=0.0)
    last = Steps(t=START_S, step=50, own_steps=50, train_s=20.0, rank_wait_s=50 * rank_wait_s)
    return RankState(number, 4000 + number, last, (first, last))


def test_the_rank_that_the_others_wait_for_is_the_same_in_the_row_the_bar_and_the_finding() -> None:
    state = replace(running(START_S), ranks={0: waiting(0, 0.3), 1: waiting(1, 0.05)})
    row, *_ = rank_rows(state, 90, in_step=True)
    assert "rank 1 works 0.35 s of a step, the others 0.10 and wait" in plain_text(row)
    shown = text(scene(state)._replace(causes={"slow-rank": 0.6}))
    assert "! other ranks 60 %" in shown
    assert "compute 100 %" not in shown


def test_histories_are_equally_high() -> None:
    recent = [
        replace(
            each, gpus=(replace(each.gpus[0], utilisation_pct=20.0 * n), replace(each.gpus[1], utilisation_pct=0.0))
        )
        for n, each in enumerate(samples(5, gpus=2))
    ]
    rows = [plain_text(row) for row in gpu_rows(GpuScene(recent[-1], recent, past_s=30.0), 120, 20)]
    first, second = (next(y for y, row in enumerate(rows) if row.startswith(f"  {n}"[-2:])) for n in (0, 1))
    assert len(rows) - 1 - second == second - first, "but for the axis"
