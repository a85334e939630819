"""The memory bar under the settings: what it says, when it moves, and what the thread behind it asks for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from tests.fakes import live_run
from tests.fakes.memory_outlooks import GIB, H100, LOSS, estimated, outlook_of
from tests.fakes.ui_backend import INTERPRETER, FakeBox, FakeEstimates, FakeSampler, ended, running
from tests.runs.store.test_record import record
from tests.tuning.builders import resolved
from tests.ui.pilots import app_of, notes, on_screen, press_to, press_until, screen_text, until, value
from tuner_tui.advice.estimate import (
    UNMEASURED_IMPORTS,
    DataOutlook,
    EstimateRequest,
    JobMemoryEstimator,
    MemoryEstimator,
    MemoryOutlook,
)
from tuner_tui.advice.recommend.duration_estimate import UNMEASURED, DurationEstimate
from tuner_tui.advice.recommend.sample_lengths import SampleLengths
from tuner_tui.advice.recommend.target import training_code_of
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import HostMemory
from tuner_tui.hardware.sample import GpuSample, Sample
from tuner_tui.memory.closed_form import MemoryPhase
from tuner_tui.memory.device import Device
from tuner_tui.memory.estimate import RanOut, estimate_from_phases
from tuner_tui.memory.trace import TraceError
from tuner_tui.memory.training_code import BUILT_IN, TrainingCode, training_code
from tuner_tui.runs.events.types import InEffect, Steps
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import create_folder
from tuner_tui.runs.store.record import write_record
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Origin, OriginKind, Resolved, Settings
from tuner_tui.ui.terminal.base_widgets import RowsPanel
from tuner_tui.view.cells import line_width, plain_text
from tuner_tui.view.estimate_rows import estimate_rows, memory_bar, source

SMALL = estimate_from_phases(
    (MemoryPhase("loss", 0.0, 0.0, 0.0, 0.0, 10 * 2**20),),
    Settings(per_device_train_batch_size=32),
    Device(False, capacity_bytes=16 * GIB),
    0.0,
    "traced",
)


def request(batch: int = 8, **changes: Any) -> EstimateRequest:
    fields: dict[str, Any] = {
        "resolved": Resolved(Settings(per_device_train_batch_size=batch)),
        "job": BuiltinJob(model="bert-base"),
        "inventory": live_run.inventory(),
        "interpreter": INTERPRETER,
    }
    return EstimateRequest(**{**fields, **changes})


def texts(shown: MemoryOutlook | None, width: int = 60) -> list[str]:
    return [plain_text(row).rstrip() for row in estimate_rows(shown, width)]


def test_the_bar_stands_against_the_gpu_with_its_doubt() -> None:
    assert texts(MemoryOutlook(estimated()), 44) == [
        "peak memory ━━━━━━━━━──── ✓ 56 ± 2 of 80 GiB",
        "fits · largest micro batch 22 · by formula",
        "time unknown until a run measures it",
    ]


@pytest.mark.parametrize(
    ("batch", "mark", "words"), [(16, "✓", "fits"), (24, "!", "may not fit"), (40, "✗", "too large")]
)
def test_the_verdict_has_a_mark_and_words(batch: int, mark: str, words: str) -> None:
    bar, verdict, _ = texts(MemoryOutlook(estimated(batch)))
    assert f" {mark} " in bar
    assert verdict.startswith(f"{words} · largest micro batch 22")


def test_a_model_that_fits_at_no_batch_says_so() -> None:
    small = replace(H100, capacity_bytes=8 * GIB)
    assert texts(MemoryOutlook(estimated(1, small)))[1].startswith("too large at any micro batch")


def test_the_phase_that_sets_the_peak_stands_beside_the_bar() -> None:
    assert texts(MemoryOutlook(estimated()), 70)[1] == "fits · largest micro batch 22 · peak in loss · by formula"
    phase = MemoryPhase("evaluation, eval batch 8", 40 * GIB, 0, 0, 0, 0)
    evaluating = replace(estimated(), phases=(phase,))
    assert texts(MemoryOutlook(evaluating), 80)[1].endswith("· peak in evaluation, eval batch 8")
    assert "peak in" not in texts(MemoryOutlook(evaluating, measured=True), 90)[1]


def test_small_memory_has_a_digit_after_the_point_and_whose_it_is() -> None:
    estimate = estimated(1, Device(False, None, 17 * GIB))
    assert texts(MemoryOutlook(estimate, False, "host memory"))[0].startswith("peak RAM ━")
    assert texts(MemoryOutlook(estimate, False, "host memory"))[0].endswith(
        f" {estimate.total_bytes / GIB:.1f} ± {estimate.uncertainty_bytes / GIB:.1f} of 17.0 GiB host memory"
    )


def test_what_is_unknown_says_why_in_a_row() -> None:
    assert texts(MemoryOutlook(unknown="unknown until a run measures it")) == [
        "peak memory unknown until a run measures it",
        "time unknown until a run measures it",
    ]
    assert texts(None) == ["peak memory …"]


def test_the_expected_time_is_shown_next_to_the_memory_and_where_it_comes_from() -> None:
    # 24,000 samples at 100 to 120 samples/s and 10 % for evaluation and saving: 220 to 264 s.
    duration = DurationEstimate(24_000, 100.0, 120.0, 0.1, True, "measured here by r007 with these settings")
    shown = MemoryOutlook(estimated(), duration=duration)
    assert texts(shown, 90)[2] == "time 3 min 30 s to 4 min 30 s + start-up · measured here by r007 with these settings"
    assert texts(shown, 69)[2] == "time 3 min 30 s to 4 min 30 s + start-up · measured here by r007"
    assert texts(shown, 63)[2] == "time 3 min 30 s to 4 min 30 s + start-up · measured here"
    assert texts(shown, 50)[2] == "time 3 min 30 s to 4 min 30 s + start-up"
    assert texts(shown, 36)[2] == "time 3 min 30 s to 4 min 30 s"
    unsized = replace(duration, samples=None)
    assert texts(MemoryOutlook(estimated(), duration=unsized), 60)[2].startswith(
        "time 100–120 samples/s; number of samples unknown"
    )


def test_the_data_has_a_row_of_its_own_that_begins_with_what_a_batch_loses() -> None:
    outlook = DataOutlook(SampleLengths((10, 20, 30, 40), 4_000), cut_share=0.03, padding_share=0.21)
    shown = MemoryOutlook(estimated(), data=outlook)
    assert texts(shown, 80)[3] == "data 21 % padding · 3 % cut · median 20, longest 40 · 4,000 samples"
    assert texts(shown, 32)[3] == "data 21 % padding · 3 % cut"
    packed = outlook._replace(lengths=replace(outlook.lengths, packed=True))
    assert texts(replace(shown, data=packed), 80)[3].startswith("data packed · 3 % cut")


def with_data(folder: Path, text: str) -> EstimateRequest:
    """A request for a command with a data file."""
    (folder / "texts.jsonl").write_text(text)
    job = CommandJob(command=("train",), task="causal-lm", data="texts.jsonl", cwd=str(folder))
    return request(job=job, interpreter=replace(INTERPRETER, path=sys.executable))


def test_data_is_measured_once_and_not_while_a_training_runs(tmp_path: Path) -> None:
    asked = with_data(tmp_path, '{"text": "' + "x" * 40 + '"}\n{"text": "' + "x" * 80 + '"}\n')
    estimator = MemoryEstimator()
    assert estimator.quick(asked).data is None
    assert estimator.refined(replace(asked, training=True)).data is None
    outlook = estimator.refined(asked).data
    assert outlook is not None
    assert (outlook.lengths.ordered, outlook.cut_share) == ((10, 20), 0.0)
    assert MemoryEstimator().quick(asked).data == outlook


def test_data_that_cannot_be_read_is_not_asked_for_again(tmp_path: Path) -> None:
    asked, estimator = with_data(tmp_path, "{no json\n"), MemoryEstimator()
    assert estimator.refined(asked).data is None
    with_data(tmp_path, '{"text": "x"}\n')
    assert estimator.refined(asked).data is None
    assert MemoryEstimator().refined(asked).data is not None


def test_an_unknown_capacity_shows_the_figure_alone() -> None:
    bar, verdict, _ = texts(MemoryOutlook(estimated(16, Device(True))))
    assert "━" not in bar
    assert "56 ± 2 GiB" in bar
    assert "largest" not in verdict


def test_a_largest_batch_of_all_samples_is_no_figure_to_follow() -> None:
    verdict = texts(MemoryOutlook(replace(SMALL, samples=50), False))[1]
    assert verdict.startswith("fits · at any micro batch")
    narrow = [plain_text(row) for row in estimate_rows(MemoryOutlook(replace(SMALL, samples=50), False), 36)]
    assert narrow[1].startswith("fits · at any micro batch")
    assert "…" not in narrow[1]


@given(st.integers(1, 300), st.integers(8, 120), st.floats(0.0, 0.5))
def test_the_bar_never_outgrows_its_place(batch: int, width: int, uncertainty: float) -> None:
    estimate = estimated(batch, uncertainty=uncertainty)
    assert line_width(memory_bar(estimate, width, "gauge")) == width
    bar = estimate_rows(MemoryOutlook(estimate, True, "host memory"), width)[0]
    assert line_width(bar) <= max(width, len("peak memory ✗ 15.5 of 80 GiB ± 102 MiB"))


def test_nothing_is_said_to_fit_beside_a_run_that_failed_with_it() -> None:
    shown = MemoryOutlook(SMALL, on_gpu=False)
    assert "✓" in texts(shown)[0]
    assert texts(shown)[1].startswith("fits")
    bar, words, *_ = (plain_text(row) for row in estimate_rows(shown, 60, "ran out of memory"))
    assert "✓" not in bar
    assert words == "these settings ran out of memory"
    assert "fits" not in words


def test_the_source_of_the_figure_is_shortened_to_its_newest_part() -> None:
    rests_on = "traced, corrected by run r007: ×1.02"
    assert source(rests_on, 40) == rests_on
    assert source(rests_on, 30) == "corrected by run r007: ×1.02"
    assert source(rests_on, 22) == "corrected by run r007"


async def test_the_bar_shows_what_is_being_typed_and_goes_back_where_it_is_not_taken() -> None:
    async with on_screen(FakeBox()) as pilot:
        bar = app_of(pilot).main.query_one("#estimate", RowsPanel)
        await pilot.press("enter", "backspace", "backspace", "4", "0")
        await until(pilot, lambda: bar.values[0] == MemoryOutlook(estimated(40)))
        await press_until(pilot, lambda: bar.values[0] == MemoryOutlook(estimated(16)), "escape")
        assert value(pilot, "per_device_train_batch_size") == 16
        await pilot.press("enter", "backspace", "backspace", "8", "enter")
        await until(pilot, lambda: bar.values[0] == MemoryOutlook(estimated(8)))
        assert value(pilot, "per_device_train_batch_size") == 8


async def test_the_better_figure_comes_when_no_newer_question_does() -> None:
    refined: list[int] = []

    def refine(asked: EstimateRequest) -> MemoryOutlook:
        refined.append(asked.resolved.settings.per_device_train_batch_size)
        return MemoryOutlook(unknown=f"refined {refined[-1]}")

    box = FakeBox()
    async with on_screen(box, backend=box.backend(estimates=FakeEstimates(refined=refine))) as pilot:
        await pilot.press("plus", "plus")
        await until(pilot, lambda: app_of(pilot).main.outlook == MemoryOutlook(unknown="refined 32"))
        assert set(refined) <= {16, 32}


def test_the_real_service_knows_the_built_in_shapes_and_says_what_it_does_not_know() -> None:
    result = MemoryEstimator().quick(request()).estimate
    assert result is not None
    assert result.capacity_bytes == live_run.inventory().gpus[0].memory_total_bytes
    assert MemoryEstimator().quick(request(job=CommandJob(command=("python", "x.py")))).unknown
    assert "nobody/nothing" in MemoryEstimator().quick(request(job=BuiltinJob(model="nobody/nothing"))).unknown


def test_the_memory_of_a_command_is_known_from_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path))
    script = CommandJob(command=("python", "x.py"), apply="inject")
    for batch in (16, 8, 4):
        folder = create_folder(tmp_path / "runs")
        write_record(folder, record(id=folder.id, job=script))
        seen = InEffect(t=1.0, values={"per_device_train_batch_size": batch})
        took = Steps(t=2.0, step=9, own_steps=9, rss_peak_bytes=(2 + batch) * GIB)
        folder.events.write_bytes(encode_event(seen) + encode_event(took))
    box = replace(live_run.inventory(0), memory=HostMemory(64 * GIB, 60 * GIB))
    from_runs = MemoryEstimator().quick(request(job=script, inventory=box))
    assert texts(from_runs, 70)[1] == "fits · largest micro batch 58 · measured by run r003"
    asked = MemoryEstimator().quick(
        request(job=script, inventory=box, resolved=resolved(per_device_train_batch_size=16))
    )
    assert (from_runs.estimate and from_runs.estimate.batch, asked.estimate and asked.estimate.batch) == (4, 16)
    seen_in_run = Resolved(Settings(optim="sgd"), {"optim": Origin(OriginKind.OBSERVED, "in r003")})
    assert MemoryEstimator().quick(request(job=script, inventory=box, resolved=seen_in_run)) == from_runs
    different = request(32, job=structs.replace(script, command=("python", "y.py")), inventory=box)
    assert MemoryEstimator().quick(different).unknown == UNMEASURED


def test_what_does_not_fit_by_a_guess_of_the_imports_is_unknown() -> None:
    """With an empty cache: the imports reserve a gigabyte or more, which the limit counts."""
    box = replace(live_run.inventory(), gpus=())
    shown = MemoryEstimator().quick(request(inventory=box, memory_limit_bytes=2 * GIB))
    assert " ".join(texts(shown, 60)[:-1]) == f"peak RAM {UNMEASURED_IMPORTS}"


def test_without_a_gpu_the_host_or_the_limit_bounds_it() -> None:
    box = replace(live_run.inventory(0), memory=HostMemory(24 * GIB, 20 * GIB))
    host = MemoryEstimator().quick(request(inventory=box))
    assert (host.against, host.estimate and host.estimate.capacity_bytes) == ("", 24 * GIB)
    limited = MemoryEstimator().quick(request(inventory=box, memory_limit_bytes=12 * GIB))
    assert (limited.against, limited.estimate and limited.estimate.capacity_bytes) == ("limit", 12 * GIB)
    two = request(job=BuiltinJob(model="bert-base", launcher="torchrun", processes=2), inventory=box)
    shared = MemoryEstimator().quick(two)
    assert (shared.against, shared.estimate and shared.estimate.capacity_bytes) == (
        "for each of 2 processes",
        12 * GIB,
    ), "the processes share the memory of the host"
    assert MemoryEstimator().quick(structs.replace(two, memory_limit_bytes=8 * GIB)).against == "limit"
    gpu = MemoryEstimator().quick(request(memory_limit_bytes=30 * GIB))
    assert (gpu.against, gpu.estimate and gpu.estimate.capacity_bytes) == ("limit", 30 * GIB)


def test_without_a_gpu_what_is_unknown_is_the_peak_of_the_ram() -> None:
    shown = MemoryEstimator().quick(
        request(job=CommandJob(command=("python", "x.py")), inventory=live_run.inventory(0))
    )
    assert texts(shown, 60)[0] == f"peak RAM {UNMEASURED}"


def test_unedited_settings_and_commands_are_not_traced() -> None:
    nowhere = replace(INTERPRETER, path="/nowhere/python")
    service = MemoryEstimator()
    assert service.refined(request(interpreter=nowhere)) == service.quick(request(interpreter=nowhere))
    assert not service._untraceable
    command = request(job=CommandJob(command=("python", "x.py")), worked_on=True)
    assert service.refined(command) == MemoryOutlook(unknown=UNMEASURED)


def test_what_cannot_be_traced_is_not_tried_again() -> None:
    box = replace(live_run.inventory(), cpu=replace(live_run.inventory().cpu, affinity_cores=10_000, quota_cores=None))
    asked = request(inventory=box, worked_on=True, interpreter=replace(INTERPRETER, path="/nowhere/python"))
    service = MemoryEstimator()
    assert service.refined(asked) == service.quick(asked)
    assert ("bert-base", "classification") in service._untraceable


class Remembered(FakeEstimates):
    """Estimates that remember what they were asked for."""

    def __init__(self) -> None:
        self.asked: list[EstimateRequest] = []

    def quick(self, request: EstimateRequest) -> MemoryOutlook:
        self.asked.append(request)
        return super().quick(request)


async def test_only_edited_settings_are_worth_a_trace() -> None:
    box, estimates = FakeBox(), Remembered()
    asked = estimates.asked
    async with on_screen(box, backend=box.backend(estimates=estimates)) as pilot:
        assert not asked[-1].worked_on
        await press_until(pilot, lambda: asked[-1].worked_on, "plus")


async def test_the_figure_is_asked_for_again_when_a_run_has_ended() -> None:
    box, estimates = FakeBox(view=running()), Remembered()
    asked, backend = estimates.asked, box.backend(estimates=estimates)
    async with on_screen(box, backend=backend, folder=Path("/runs/r001")) as pilot:
        await until(pilot, lambda: asked and app_of(pilot).session.state.running)
        before = len(asked)
        box.view = ended("completed", "Completed.")
        await until(pilot, lambda: len(asked) > before)


async def test_the_figure_is_asked_for_again_while_a_run_measures_more() -> None:
    view = running()
    box, estimates = FakeBox(view=replace(view, state=replace(view.state, step=1, total_steps=None))), Remembered()
    asked, backend = estimates.asked, box.backend(estimates=estimates)
    async with on_screen(box, backend=backend, folder=Path("/runs/r001")) as pilot:
        await until(pilot, lambda: asked and app_of(pilot).session.state.running)
        for step, total in ((200, None), (200, 9000)):
            asked.clear()
            box.view = replace(view, state=replace(view.state, step=step, total_steps=total))
            await until(pilot, lambda: asked)


def test_a_batch_that_ran_out_of_memory_here_is_not_said_to_fit() -> None:
    refuted = replace(estimated(16), ran_out=RanOut("r002", 16), rests_on="r002 ran out of memory with micro batch 16")
    assert texts(MemoryOutlook(refuted), 80) == [
        "peak memory ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ ✗ over 80 GiB",
        "does not fit · r002 ran out of memory with micro batch 16",
        "time unknown until a run measures it",
    ]


def test_of_a_torch_that_uses_no_gpu_the_memory_of_the_host_counts() -> None:
    cpu_torch = replace(INTERPRETER, packages={"torch": "2.13.0+cpu"}, torch_cuda=None)
    shown = MemoryEstimator().quick(request(interpreter=cpu_torch))
    assert texts(shown, 90)[1].startswith("fits in RAM · ")


def test_where_the_evaluation_does_not_fit_its_own_batch_is_to_be_lowered() -> None:
    evaluation = MemoryPhase("evaluation, eval batch 64", 4.0 * GIB, 0.0, 8.0 * GIB, 90.0 * GIB, 0.0)
    estimate = estimate_from_phases((evaluation, LOSS), Settings(), H100, 0.04, "by formula")
    verdict = texts(MemoryOutlook(estimate), 100)[1]
    assert verdict.startswith("too large · lower the eval batch · peak in evaluation, eval batch 64")


@pytest.mark.parametrize(("capacity_gib", "words"), [(16, " · try micro batch 1"), (15, " at any micro batch")])
def test_a_micro_batch_of_1_is_worth_a_try_where_it_fits_at_most_by_the_estimate(capacity_gib: int, words: str) -> None:
    # About 15.5 GiB ± 30 % at a micro batch of 1: the upper end exceeds either capacity, the lower end neither.
    doubtful = MemoryOutlook(estimated(4, replace(H100, capacity_bytes=capacity_gib * GIB), uncertainty=0.3))
    assert doubtful.largest == 0
    assert words in texts(doubtful)[1]
    assert doubtful.nothing_fits is (capacity_gib == 15)
    assert "m shows where it goes" in texts(doubtful, 100)[1]
    assert "m shows" not in texts(MemoryOutlook(estimated(4)), 100)[1], "nobody asks where it fits"
    alone = replace(doubtful, estimate=estimated(1, replace(H100, capacity_bytes=capacity_gib * GIB), uncertainty=0.3))
    assert "try micro batch" not in texts(alone)[1], "it has that already"


@pytest.mark.parametrize(
    ("capacity_gib", "words"),
    [(16, "only a micro batch of 1 may fit;"), (15, "not even a micro batch of 1 fits;")],
)
async def test_the_key_that_fits_the_batch_says_of_a_micro_batch_of_1_what_the_settings_say(
    capacity_gib: int, words: str
) -> None:
    doubtful = MemoryOutlook(estimated(4, replace(H100, capacity_bytes=capacity_gib * GIB), uncertainty=0.3))
    box = FakeBox()
    async with on_screen(box, backend=box.backend(estimates=FakeEstimates(quick=lambda _: doubtful))) as pilot:
        await press_until(pilot, lambda: words in notes(pilot), "f")


@pytest.mark.train
def test_the_parts_of_the_tiny_model_add_up() -> None:
    """It has 871,700 parameters, kept in fp32, and AdamW has two moments of each."""
    python = Interpreter(sys.executable, packages={"torch": "2.13.0"})
    parts = MemoryEstimator().parts(request(job=BuiltinJob(model="tiny", task="classification"), interpreter=python))
    sizes = {(row.name, row.dtype): row.size_bytes for row in parts.by_kind}
    assert sizes["weights", "fp32"] == pytest.approx(871_700 * 4, rel=0.01)
    assert sizes["optimizer states", "fp32"] == pytest.approx(871_700 * 8, rel=0.01)
    assert sum(row.size_bytes for row in parts.by_kind) == parts.total_bytes
    assert sum(row.size_bytes for row in parts.by_module) == parts.total_bytes
    assert parts.title == "tiny · micro batch 8"


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        ("adapter: qlora\nlora_target_modules: [q_proj, v_proj]", ("query", "value")),
        ("adapter: qlora\nlora_target_modules: [q_proj, experts]", ()),
        ("adapter: qlora\nlora_target_linear: true", ()),
        ("finetuning_type: lora\nlora_target: q_proj,down_proj", ("query", "down")),
        ("finetuning_type: lora\nlora_target: all", ()),
        ("lora_r: 8\nlora_query: true\nlora_key: false\nlora_projection: true\nlora_head: true", ("query", "output")),
    ],
)
def test_the_layers_with_adapters_are_read_from_the_options(
    tmp_path: Path, options: str, roles: tuple[str, ...]
) -> None:
    (tmp_path / "run.yaml").write_text(options)
    assert training_code_of(CommandJob(command=("tool", "run.yaml"), cwd=str(tmp_path)), None).adapted == roles


@pytest.mark.parametrize(
    ("script", "words", "transformers", "expected"),
    [
        ("", (), "5.23.0", BUILT_IN),
        ("", (), "4.48.3", training_code("older transformers")),
        ("", (), "4.45.2", training_code("transformers before 4.46")),
        ("model = prepare_model_for_kbit_training(model)", (), "5.23.0", TrainingCode(upcasts=True)),
        ("", ("--deepspeed", "zero2.json"), "5.23.0", training_code("deepspeed")),
        ("", ("--use_liger_kernel", "true"), "5.23.0", training_code("liger")),
        ("", ("--modules_to_save", "norm"), "5.23.0", BUILT_IN),
        (
            "",
            ("--modules_to_save", "lm_head,embed_tokens,norm"),
            "5.23.0",
            replace(training_code("whole layers"), whole_layers=2),
        ),
    ],
)
def test_what_the_code_does_with_memory_is_read_from_script_command_and_release(
    tmp_path: Path, script: str, words: tuple[str, ...], transformers: str, expected: TrainingCode
) -> None:
    (tmp_path / "sft.py").write_text(script)
    job = CommandJob(command=("python", "sft.py", *words), cwd=str(tmp_path))
    python = replace(INTERPRETER, packages={"transformers": transformers})
    assert training_code_of(job, python) == expected


def test_a_tool_with_code_of_its_own_is_not_traced_and_says_what_is_unknown() -> None:
    job = CommandJob(command=("litgpt", "finetune_lora", "x"), dialect="litgpt")
    estimator = JobMemoryEstimator(BuiltinJob(task="causal-lm", model="gpt2"), H100, code=training_code_of(job, None))
    best = estimator.closed_form(Settings(peft_method="lora"))
    assert best is not None
    assert best.rests_on == "by formula, not knowing what else it keeps"
    assert best.uncertainty == training_code("litgpt").uncertainty
    with pytest.raises(TraceError, match="A trace does not cover"):
        estimator.traced(Settings())


def test_the_memory_of_a_model_that_cannot_be_traced_has_its_parts_by_formula() -> None:
    """As of one that is not on this machine: the trace is refused, the shape by name is enough for the formula."""
    python = replace(INTERPRETER, path="/no/python")
    shown = request(job=BuiltinJob(task="causal-lm", model="llama-1b"), interpreter=python)
    parts = MemoryEstimator().parts(shown)
    assert "by formula" in parts.title
    assert {row.name for row in parts.by_kind} == {"weights", "gradients", "optimizer states", "activations"}
    assert sum(row.size_bytes for row in parts.by_kind) == parts.total_bytes
    assert parts.by_module == ()
    optimizer = next(row for row in parts.by_kind if row.name == "optimizer states")
    assert optimizer.remedy is not None
    assert "8bit" in optimizer.remedy.sentence


def test_without_a_model_the_parts_are_not_known() -> None:
    with pytest.raises(TraceError, match="needs the model and task"):
        MemoryEstimator().parts(request(job=CommandJob(command=("python", "train.py"))))


@pytest.mark.parametrize(
    ("unknown", "words"),
    [
        (UNMEASURED, f"that fits is {UNMEASURED}."),
        ("", "that fits is unknown: it takes two runs with different micro batches to see how it grows."),
    ],
)
async def test_the_key_that_fits_the_batch_offers_to_measure_what_is_not_known(unknown: str, words: str) -> None:
    box = FakeBox()
    estimates = FakeEstimates(quick=lambda _: MemoryOutlook(unknown=unknown))
    async with on_screen(box, backend=box.backend(estimates=estimates)) as pilot:
        await press_to(pilot, "Fit batch", "f")
        assert words in " ".join(screen_text(pilot.app).replace("│", " ").split())
        await press_to(pilot, "Tune", "enter")


class Filling(FakeSampler):
    """Each sample is ten seconds after the last one, and other programs hold 40 GiB more of GPU 0."""

    def sample(self, watched: Sequence[int] = ()) -> Sample:
        first, *others = self._sample.gpus
        filled = replace(first, memory_used_bytes=(first.memory_used_bytes or 0) + 40 * GIB, processes=())
        self._sample = replace(self._sample, time_s=self._sample.time_s + 10, gpus=(filled, *others))
        return self._sample


async def test_an_estimate_follows_the_memory_that_other_programs_take() -> None:
    held: list[int | None] = []

    def estimate(request: EstimateRequest) -> MemoryOutlook:
        held.append(request.inventory.gpus[0].memory_used_bytes)
        return outlook_of(request)

    box = FakeBox()
    sampler = Filling(Sample(live_run.START_S, (GpuSample(0, live_run.H100, memory_used_bytes=0),)))
    backend = box.backend(estimates=FakeEstimates(quick=estimate), open_sampler=lambda: sampler)
    async with on_screen(box, backend=backend) as pilot:
        await until(pilot, lambda: len({*held} - {None}) > 1)
