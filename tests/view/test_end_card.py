"""The card of a run that has ended, at any width, and what it leaves out because it is not known."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes.live_run import GIB, START_S, finished, history, sample
from tests.fakes.ui_backend import DATA_WAIT, OUT_OF_MEMORY
from tuner_tui.runs.events.progress import History
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Checkpoint, Evaluated, Finished, Raised
from tuner_tui.runs.read.checkpoints import SavedCheckpoint
from tuner_tui.runs.read.run_context import PastRun, RunContext
from tuner_tui.runs.store.remedy_outcomes import RemedyOutcome
from tuner_tui.view.cells import line, line_width, plain_text
from tuner_tui.view.end_card import (
    EndScene,
    Fact,
    end_facts,
    end_rows,
    fact_rows,
    headline,
    next_keys,
    speed_against_earlier,
)

CHECKPOINT = SavedCheckpoint(Path("/data/runs/r007/output/checkpoint-1200"), 1200)
CONTEXT = RunContext((PastRun("r006", 150.0, 40.0), PastRun("r005", 190.0, 44.0)), None, CHECKPOINT, 0.61, "€ 0.18")


def scene(outcome: str = "completed", sentence: str = "", **changes: Any) -> EndScene:
    shown = EndScene(finished(outcome, sentence), history(), "r007", "llama-1b-sft", CONTEXT, (), sample())
    return shown._replace(**changes)


def lines(shown: EndScene, width: int = 118, height: int = 24) -> list[str]:
    return [plain_text(row).rstrip() for row in end_rows(shown, width, height)]


def facts(shown: EndScene) -> dict[str, str]:
    return {fact.label: fact.text for fact in end_facts(shown)}


def test_the_headline_says_outcome_length_speed_and_cost() -> None:
    # 1,240 steps of 64 samples in 396.8 s of training are 200 samples/s; it was launched 460 s before the last moment
    # and ended 5 s before it.
    first = "1,240 of 9,000 steps in 7 min 35 s   5 % faster than r005   GPUs 0.61 kWh · € 0.18"
    assert lines(scene(), width=150)[0] == first, "outcome and name stand in the status line"
    assert plain_text(line(*headline(scene()))).startswith("✓ Completedr007 llama-1b-sft1,240 of")


def test_a_run_with_a_remedy_says_whether_it_helped_and_how_to_take_it_back() -> None:
    outcome = RemedyOutcome(("checkpointing",), "gradient checkpointing on", "r006", "r007", "not kept", "31 % slower")
    shown = scene(context=replace(CONTEXT, remedy=outcome))
    for width in (80, 120):
        assert "Remedy gradient checkpointing on since r006, not as expected: 31 % slower." in lines(shown, width)
    assert ("U", "undo the remedy") in next_keys(shown._replace(can_take_back=True))
    assert "U" not in dict(next_keys(shown))  # it was taken back


def test_the_headline_of_a_run_with_a_remedy_has_the_gain_of_the_verdict() -> None:
    judged = RemedyOutcome(("more-workers",), "workers 0 → 6", "r006", "r007", "kept", "", speed=(7.2, 7.0, 7.5))
    for outcome, run, text in (
        (judged, "r006", "7.2× faster than r006"),
        (replace(judged, speed=None), "r006", None),  # the sentence says why it is not exact
        (judged, "r005", "2.0× faster than r005"),
    ):
        past = (PastRun(run, 100.0, None),)
        compared = speed_against_earlier(scene(context=RunContext(past, remedy=outcome)))
        assert (None if compared is None else compared.text) == text


def test_a_sentence_that_is_too_long_for_the_card_ends_with_a_mark() -> None:
    sentence = "measured 7.2× as fast, not exact: " + "other programs used the CPU, " * 20
    outcome = RemedyOutcome(("workers",), "workers 0 → 6", "r006", "r007", "kept", sentence)
    shown = lines(scene(context=replace(CONTEXT, remedy=outcome)), 80)
    first = next(index for index, row in enumerate(shown) if row.startswith("Remedy workers"))
    assert [row.endswith("…") for row in shown[first : first + 3]] == [False, False, True]


def test_the_key_names_another_training_that_is_set_now() -> None:
    assert dict(next_keys(scene()))["t"] == "run again"
    assert "t train python wait.py" in " ".join(lines(scene(start=("t", "train python wait.py")), 80))


@pytest.mark.parametrize(
    ("speeds", "text"),
    [
        ((200.5,), "as fast as r006"), ((100.0,), "2.0× faster than r006"), ((250.0,), "20 % slower than r006"),
        ((None,), None), ((), None),
    ],
)  # fmt: skip
def test_the_speed_is_compared_with_the_fastest_earlier_run_of_this_training(
    speeds: tuple[float | None, ...], text: str | None
) -> None:
    past = tuple(PastRun("r006", speed, None) for speed in speeds)
    compared = speed_against_earlier(scene(context=RunContext(past)))
    assert (None if compared is None else compared.text) == text


def test_the_facts_are_loss_evaluation_speed_memory_checkpoint_and_the_best_change() -> None:
    shown = facts(scene(findings=(DATA_WAIT,)))
    assert shown["loss"].startswith("4.0")
    assert shown["loss"].endswith("→ 1.8404")
    assert shown["best eval"] == "◆ 1.7131 at step 1,000"
    assert shown["metrics"] == "accuracy 0.8412"
    assert shown["speed"] == "3.12 steps/s · 48.0k tokens/s"
    assert shown["peak memory"] == "61.2 of 80 GiB"
    assert shown["checkpoint"] == str(CHECKPOINT.path)
    assert shown["next time"].startswith(DATA_WAIT.remedies[0].title)


def test_the_best_evaluation_is_known_only_where_each_has_a_value() -> None:
    shown = scene()
    unread = Evaluated(t=1.0, rank=0, step=1, seconds=0.1)
    state = replace(shown.state, evaluations=(unread, *shown.state.evaluations))
    assert facts(shown._replace(state=state))["eval"] == facts(shown)["best eval"]


def test_what_is_unknown_is_absent() -> None:
    bare = RunState(finished=Finished(t=START_S, outcome="failed", sentence="It raised."))
    shown = EndScene(bare, History(), "r001")
    assert lines(shown)[:3] == ["no step", "It raised.", ""]
    assert facts(shown) == {}
    assert not any("kWh" in text or "time " in text or "loss" in text for text in lines(shown))
    assert "checkpoint" not in facts(scene(context=None))
    assert "checkpoint" not in facts(scene(context=RunContext()))  # something was saved, under an unknown name


def test_a_loss_that_is_not_finite_names_the_replay() -> None:
    shown = scene()
    bad = shown._replace(state=replace(shown.state, loss=math.nan, not_finite_since=41))
    assert ("P", "replay to the nan") in next_keys(bad)
    assert "P" not in dict(next_keys(shown))


def test_the_time_is_one_bar_with_its_parts_in_words() -> None:
    shown = "\n".join(lines(scene()))
    # 396.8 s of training in 455 s, of which 2 % waited; 16 s of evaluation and 4 s of saving.
    for part in ("compute 85 %", "evaluation 4 %", "other 3 %", "start and end 8 %"):
        assert part in shown
    contended = "\n".join(lines(scene(findings=(replace(DATA_WAIT, cause="cpu-contended", lost_share=0.6),))))
    assert "compute incl. no free core 85 %" in contended, "how much of each is known of the last seconds only"
    counted = "\n".join(lines(scene(context=replace(CONTEXT, core_wait_share=0.5))))
    # Half of the time it waited, whether or not a finding says so.
    for part in ("! no free core 50 %", "start and end 8 %"):
        assert part in counted
    assert "no free core" not in "\n".join(lines(scene(context=replace(CONTEXT, core_wait_share=0.1))))


@pytest.mark.parametrize(
    ("outcome", "findings", "keys"),
    [
        ("completed", (), "t o v S C x"),
        ("completed", (DATA_WAIT,), "t a v S C x"),
        ("stopped", (), "R t v S C x"),
        ("out-of-memory", (OUT_OF_MEMORY,), "enter R t E v S C x"),
    ],
)
def test_the_keys_are_those_that_can_do_something(outcome: str, findings: tuple[Any, ...], keys: str) -> None:
    assert " ".join(key for key, _ in next_keys(scene(outcome, findings=findings))) == keys
    assert [key for key, _ in next_keys(scene("stopped", context=RunContext()))] == ["t", "v", "S", "x"]


def test_after_out_of_memory_enter_resumes_or_starts_again_and_the_remedy_stands_once() -> None:
    out = scene("out-of-memory", findings=(OUT_OF_MEMORY,))
    assert next_keys(out)[0] == ("enter", "apply the remedy and resume")
    assert next_keys(out._replace(context=RunContext()))[0][1] == "apply the remedy and start again"
    assert "next time" not in facts(out), "it stands in the findings"


def test_a_checkpoint_that_the_script_cannot_load_is_named_and_not_offered() -> None:
    shown = scene("failed", context=replace(CONTEXT, is_loadable=False))
    assert "checkpoint" in facts(shown)
    assert "R" not in dict(next_keys(shown))
    assert "R" in dict(next_keys(scene("failed")))


def test_after_out_of_memory_the_memory_is_that_of_the_error() -> None:
    message = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 1.00 GiB is "
        "free. Process 71 has 20.00 GiB memory in use. Including non-PyTorch memory, this process has 59.00 GiB memory "
        "in use. Of the allocated memory 40.00 GiB is allocated by PyTorch, and 16.00 GiB is reserved but unallocated."
    ).replace("reserved but", "reserved by PyTorch but")
    out = scene("out-of-memory", findings=(replace(OUT_OF_MEMORY, evidence=(message, "in forward (train.py:7)")),))
    assert facts(out)["peak memory"] == "59.0 of 80.0 GiB, tensors 40.0 GiB"
    assert "2.0 GiB requested, 1.0 GiB free" in " ".join(lines(out)[:2])
    shown = "\n".join(lines(out, height=40))
    assert all(part in shown for part in ("tensors 50 %", "cached 20 %", "other programs 25 %", "context 4 %"))
    assert "tensors" not in "\n".join(lines(scene("out-of-memory", findings=(OUT_OF_MEMORY,))))


def test_a_failed_run_leaves_what_ended_it_to_the_findings_and_names_the_key_to_its_log() -> None:
    shown = lines(scene("out-of-memory", "It ran out.", findings=(OUT_OF_MEMORY,)), width=74)
    assert not any(OUT_OF_MEMORY.sentence in text for text in shown)
    assert any("E log at the error" in text for text in shown)
    assert sum("loss  " in text for text in shown) == 1


@pytest.mark.parametrize(
    ("outcome", "evidence", "raised", "offered"),
    [
        ("failed", "ended by SIGKILL", False, False),
        ("failed", "ended by SIGKILL", True, True),
        ("failed", "ended by SIGABRT", False, True),
        ("failed", "exit code 1", False, True),
        ("lost", "", False, False),
        ("lost", "", True, True),
        ("completed", "", False, False),
    ],
)
def test_the_log_at_the_error_is_offered_where_it_has_one(
    outcome: str, evidence: str, raised: bool, offered: bool
) -> None:
    shown = scene(outcome, findings=(replace(OUT_OF_MEMORY, evidence=(evidence,)),))
    error = Raised(t=START_S, type="ValueError", message="3 labels") if raised else None
    shown = shown._replace(state=replace(shown.state, raised=error))
    assert (("E", "log at the error") in next_keys(shown)) == offered


def test_a_search_for_faster_settings_needs_a_speed() -> None:
    shown = scene()
    assert "o" in dict(next_keys(shown))
    assert "o" not in dict(next_keys(shown._replace(state=replace(shown.state, step=None))))


def test_a_resumed_run_names_the_steps_that_it_made() -> None:
    state = replace(finished("completed", ""), first_step=800, step=1240, total_steps=9000)
    assert "steps 801 to 1,240 of 9,000 in " in lines(scene(state=state))[0]


def test_the_peak_of_a_run_without_a_gpu_is_that_of_its_ram() -> None:
    state = finished("completed", "")
    ranks = {
        number: replace(rank, latest=replace(rank.latest, allocated_peak_bytes=None, rss_peak_bytes=2 * GIB))
        for number, rank in state.ranks.items()
        if rank.latest is not None
    }
    assert facts(scene(state=replace(state, ranks=ranks)))["peak memory"] == "2.0 of 512 GiB RAM"


def test_the_reason_stands_once_and_a_long_path_keeps_its_end() -> None:
    sentence = "The training was ended at step 3 by SIGKILL."
    shown = lines(scene("killed", sentence), width=46)
    assert sum("SIGKILL" in text for text in shown) == 1
    saved = next(text for text in shown if text.startswith("checkpoint"))
    assert saved.endswith("output/checkpoint-1200")
    assert "…" in saved
    by_event = replace(finished("stopped", ""), checkpoint=Checkpoint(t=START_S, step=40, path="/o/checkpoint-40"))
    assert facts(scene(state=by_event, context=None))["checkpoint"] == "/o/checkpoint-40"


@given(st.integers(48, 200), st.integers(4, 60), st.sampled_from(["completed", "failed", "out-of-memory", "odd"]))
def test_no_row_is_wider_than_the_card(width: int, height: int, outcome: str) -> None:
    rows = end_rows(
        scene(outcome, "A reason of some length that needs two rows.", findings=(DATA_WAIT,)), width, height
    )
    assert all(line_width(row) <= width for row in rows)


@pytest.mark.parametrize("width", range(60, 120))
def test_no_key_is_alone_in_the_last_row_below_many(width: int) -> None:
    shown = lines(scene(), width, 40)
    first = next(n for n, row in enumerate(shown) if row.startswith("t run again"))
    rows = [row.split("   ") for row in shown[first:]]
    assert len(rows) == 1 or len(rows[-1]) > 1, rows


@pytest.mark.parametrize("width", [48, 70, 116, 196])
@pytest.mark.parametrize("outcome", ["completed", "failed", "out-of-memory"])
def test_the_keys_are_in_sight_and_the_facts_stand_beside_the_loss_where_there_is_room(
    width: int, outcome: str
) -> None:
    for height in range(16, 50):
        shown = lines(scene(outcome, "Out of memory.", findings=(DATA_WAIT,)), width, height)
        assert len(shown) <= height
        assert any("x share" in row for row in shown[-3:])
    beside = [row for row in shown if "speed   " in row and re.search("[│┤]", row)]
    assert bool(beside) is (width >= 66)


def test_a_fact_is_not_broken_within_a_value() -> None:
    fact = Fact("speed", "156 steps/s · 1.25k samples/s, and what it says further, which is longer than any row here")
    shown = [plain_text(row) for row in fact_rows([fact], 38)]
    assert shown[:2] == ["speed       156 steps/s ·", "            1.25k samples/s,"]


def test_what_a_completed_run_has_left_behind_is_said() -> None:
    left = "Processes still running: 4711 (python fork.py)."
    assert left in lines(scene("completed", f"Completed at step 9,000. {left}"))
    assert not any("Completed at" in row for row in lines(scene("completed", "Completed at step 9,000.")))
