"""The presets of the field notes: each as the notes have it, good on its own hardware, completed by recommendation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.inventories import box, card, python
from tuner_tui.advice.recommend.recommendation import DEFAULT_JOB, recommend
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.runs.launch.prepare import missing_path_problem
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.presets import Preset, find_preset, shipped_folder
from tuner_tui.settings.resolve import resolve
from tuner_tui.settings.rules import find_problems

T4, V100, K80 = card("T4", gib=15.0), card("V100", gib=15.8), card("K80", gib=11.17)
A100_40, A100_80, RTX3070, RTX3090 = card("A100", gib=39.4), card("A100", gib=79.2), card("RTX 3070"), card("RTX 3090")
HARDWARE = {
    "rtx3070-8gb": RTX3070, "rtx3070-8gb-8bit": RTX3070, "t4-16gb": T4, "rtx3090-24gb-max-perf": RTX3090,
    "v100-16gb": V100, "rtx3090-24gb": RTX3090, "a100-40gb": A100_40, "a100-80gb": A100_80, "k80-12gb": K80,
    "conservative": K80, "balanced": RTX3070, "optimized": T4, "max-performance": A100_40,
}  # fmt: skip
INTERPRETER = python(bitsandbytes="0.49.0")
Row = tuple[str, int, int | None, int, str | None, int, int | None, dict[str, Any]]
# name, micro batch, eval batch, accumulation, precision, workers, prefetch, more; None: the preset leaves it open
PERSISTENT = {"dataloader_persistent_workers": True}
"""The loader of the utilisation notes with 8 workers and prefetch 4 keeps its workers."""
ROWS: tuple[Row, ...] = (
    ("rtx3070-8gb", 48, 96, 2, None, 4, 2, {"tf32": True}),
    ("rtx3070-8gb-8bit", 64, 128, 2, "fp16", 4, None, {"optim": "adamw_bnb_8bit", "warmup_steps": 0.06}),
    ("t4-16gb", 16, 32, 2, "fp16", 2, None, {"optim": "adamw_torch_fused", "gradient_checkpointing": True,
                                            "max_length": 192, "dataloader_pin_memory": True}),
    ("rtx3090-24gb-max-perf", 12, None, 1, "bf16", 8, 4, {"tf32": True, "optim": "adamw_torch_fused",
                                                         "attn_implementation": "sdpa", "peft_method": "dora",
                                                         "gradient_checkpointing": True,
                                                         "dataloader_persistent_workers": True}),
    ("v100-16gb", 32, None, 1, "fp16", 8, 4, {"learning_rate": 4e-5, "max_length": 128, **PERSISTENT}),
    ("rtx3090-24gb", 48, None, 1, "bf16", 8, 4, {"dataloader_persistent_workers": True, "max_length": 128}),
    ("a100-40gb", 64, None, 1, "bf16", 8, 4, {"max_length": 128, **PERSISTENT}),
    ("a100-80gb", 128, None, 1, "bf16", 8, 4, {"max_length": 128, **PERSISTENT}),
    ("k80-12gb", 16, None, 2, "fp32", 4, 2, {"learning_rate": 3e-5}),
    ("conservative", 8, None, 4, None, 2, None, {}),
    ("balanced", 16, None, 2, None, 4, 2, {}),
    ("optimized", 32, None, 1, None, 8, 4, PERSISTENT),
    ("max-performance", 64, None, 1, None, 8, 4, PERSISTENT),
)  # fmt: skip


def preset(name: str) -> Preset:
    return find_preset(name, (shipped_folder(),)).preset


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_preset_is_as_the_notes_have_it(row: Row) -> None:
    name, micro, evaluation, accumulation, precision, workers, prefetch, more = row
    found = preset(name)
    wanted = {
        "per_device_train_batch_size": micro, "per_device_eval_batch_size": evaluation,
        "gradient_accumulation_steps": accumulation, "precision": precision, "dataloader_num_workers": workers,
        "dataloader_prefetch_factor": prefetch, **more,
    }  # fmt: skip
    settings = resolve(preset=found).settings
    assert {key: getattr(settings, key) for key, value in wanted.items() if value is not None} == {
        key: value for key, value in wanted.items() if value is not None
    }
    assert not {key for key, value in wanted.items() if value is None} & found.settings.keys()
    assert found.after
    assert "field notes" in (found.source or "")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_preset_carries_the_job_of_its_document_and_leaves_the_data_to_the_user(row: Row, tmp_path: Path) -> None:
    """003 trains sentence pairs with Gemma-1B, the others classify texts with a model of BERT's size."""
    job = preset(row[0]).job
    assert isinstance(job, BuiltinJob)
    model = "google/gemma-3-1b-pt" if "max-perf" in row[0] and "3090" in row[0] else "bert-base-uncased"
    assert (job.task, job.model) == ("classification", model)
    assert "name a CSV" in (missing_path_problem(job, tmp_path) or "")


def test_every_preset_of_the_notes_is_in_the_table() -> None:
    shipped = {path.stem for path in shipped_folder().glob("*.yaml")}
    assert {row[0] for row in ROWS} == set(HARDWARE) == shipped - {"cpu", "demo"}


@pytest.mark.parametrize(("name", "gpu"), HARDWARE.items(), ids=list(HARDWARE))
def test_a_preset_is_good_on_its_own_hardware(name: str, gpu: Gpu) -> None:
    found = preset(name)
    assert found.for_ is not None
    assert found.for_.suits((gpu,), 16)
    settings = resolve(preset=found).settings
    assert find_problems(settings, gpus=(gpu,), interpreter=INTERPRETER, job=DEFAULT_JOB, cores=16) == ()


@pytest.mark.parametrize(("name", "gpu"), HARDWARE.items(), ids=list(HARDWARE))
def test_what_a_preset_leaves_open_is_recommended_and_what_it_gives_wins(name: str, gpu: Gpu) -> None:
    values = preset(name).settings
    found = recommend(box(gpu), INTERPRETER, DEFAULT_JOB, values)
    assert {key: getattr(found.settings, key) for key in values} == values
    assert find_problems(found.settings, gpus=(gpu,), interpreter=INTERPRETER, job=DEFAULT_JOB, cores=16) == ()


@pytest.mark.parametrize(
    ("gpu", "precision", "optim"),
    [(K80, "fp32", "adamw_torch"), (T4, "fp16", "adamw_torch_fused"), (A100_40, "bf16", "adamw_torch_fused")],
)
def test_the_ladder_is_completed_by_the_hardware(gpu: Gpu, precision: str, optim: str) -> None:
    for name in ("conservative", "balanced", "optimized", "max-performance"):
        settings = recommend(box(gpu), python(), DEFAULT_JOB, preset(name).settings).settings
        assert (settings.precision, settings.optim) == (precision, optim)


@pytest.mark.parametrize(("before", "name"), [((32, 3), "rtx3070-8gb"), ((8, 4), "t4-16gb")])
def test_where_the_notes_hold_the_effective_batch_it_is_held(before: tuple[int, int], name: str) -> None:
    assert resolve(preset=preset(name)).settings.effective_batch() == before[0] * before[1]
