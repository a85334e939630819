"""The presets of the tuning notes: each as the notes have it, good on its own hardware, completed by recommendation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.inventories import box, make_gpu, python
from tuner_tui.advice.recommend.recommendation import DEFAULT_JOB, recommend
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.runs.launch.prepare import missing_path_problem
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.preset_file import Preset, is_measured
from tuner_tui.settings.presets import find_preset, shipped_folder
from tuner_tui.settings.resolve import resolve
from tuner_tui.settings.rules import find_problems

T4, V100, K80 = make_gpu("T4", gib=15.0), make_gpu("V100", gib=15.8), make_gpu("K80", gib=11.17)
A100_40, A100_80, RTX3070, RTX3090 = (
    make_gpu("A100", gib=39.4),
    make_gpu("A100", gib=79.2),
    make_gpu("RTX 3070"),
    make_gpu("RTX 3090"),
)
HARDWARE = {
    "rtx3070-8gb": RTX3070, "rtx3070-8gb-8bit": RTX3070, "t4-16gb": T4, "rtx3090-24gb-max-perf": RTX3090,
    "v100-16gb": V100, "rtx3090-24gb": RTX3090, "a100-40gb": A100_40, "a100-80gb": A100_80, "k80-12gb": K80,
    "conservative": K80, "balanced": RTX3070, "optimized": T4, "max-performance": A100_40,
}  # fmt: skip
INTERPRETER = python(bitsandbytes="0.49.0")
NOTED: dict[str, dict[str, Any]] = yaml.load(
    Path(__file__).with_name("notes_presets.yaml").read_text("utf-8"), yaml.CSafeLoader
)


def preset(name: str) -> Preset:
    return find_preset(name, (shipped_folder(),)).preset


@pytest.mark.parametrize("name", NOTED)
def test_a_preset_is_as_the_notes_have_it(name: str, tmp_path: Path) -> None:
    loaded = preset(name)
    settings = resolve(preset=loaded).settings
    values = NOTED[name]["values"]
    assert {key: getattr(settings, key) for key in values} == values
    assert not set(NOTED[name].get("open", ())) & loaded.settings.keys()
    assert loaded.after
    assert "tuning notes" in (loaded.source or "")
    job = loaded.job
    assert isinstance(job, BuiltinJob)
    model = "google/gemma-3-1b-pt" if name == "rtx3090-24gb-max-perf" else "bert-base-uncased"
    assert (job.task, job.model) == ("classification", model)
    assert "name a CSV" in (missing_path_problem(job, tmp_path) or ""), "the data are left to the user"


def test_every_preset_of_the_notes_is_in_the_table() -> None:
    shipped = {path.stem for path in shipped_folder().glob("*.yaml")}
    assert NOTED.keys() == set(HARDWARE) == {name for name in shipped if is_measured(preset(name))}


@pytest.mark.parametrize(("name", "gpu"), HARDWARE.items(), ids=list(HARDWARE))
def test_a_preset_is_good_on_its_own_hardware(name: str, gpu: Gpu) -> None:
    loaded = preset(name)
    assert loaded.for_ is not None
    assert loaded.for_.suits((gpu,), 16)
    settings = resolve(preset=loaded).settings
    assert find_problems(settings, gpus=(gpu,), interpreter=INTERPRETER, job=DEFAULT_JOB, cores=16) == ()


@pytest.mark.parametrize(("name", "gpu"), HARDWARE.items(), ids=list(HARDWARE))
def test_what_a_preset_leaves_open_is_recommended_and_what_it_gives_wins(name: str, gpu: Gpu) -> None:
    values = preset(name).settings
    recommended = recommend(box(gpu), INTERPRETER, DEFAULT_JOB, values)
    assert {key: getattr(recommended.settings, key) for key in values} == values
    assert find_problems(recommended.settings, gpus=(gpu,), interpreter=INTERPRETER, job=DEFAULT_JOB, cores=16) == ()


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
