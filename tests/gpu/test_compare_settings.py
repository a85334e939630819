"""Trainer defaults, the field notes' preset and tuned settings on one model and its data: the tuned are the fastest.

Each is a trial as in the tuner, with memory limited to 8, 16 and 24 GB as on the GPUs of the notes. With `-s`, the
figures are printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec import convert, structs

from tuner_tui.core.units import GIB
from tuner_tui.runs.launch.command import has_gpu
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import FIELDS, Origin, OriginKind, Resolved, Settings
from tuner_tui.settings.presets import find_preset
from tuner_tui.tuning.trial import Measurement, Trial, TrialProtocol
from tuner_tui.tuning.trial_runner import TrialCallbacks, TrialRunner

MAIN = "from tuner_tui.cli.main import main; main()"
LONGER = TrialProtocol(spread=0.01, least_s=5.0, most_s=30.0)
QUICK = TrialProtocol(spread=0.5, least_s=0.1, most_s=1.0)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A model with its data under a memory limit, and the notes' preset for a GPU of that size."""

    name: str
    preset: str
    cap_bytes: int | None
    job: BuiltinJob

    @property
    def noted(self) -> Settings:
        """The notes' settings, with the common sequence length."""
        return convert({**find_preset(self.preset).preset.settings, "max_length": 64}, Settings)

    @property
    def default(self) -> Settings:
        """Trainer defaults: the fused optimizer since torch 2.8, unlike those of `Settings`."""
        return Settings(optim="adamw_torch_fused", max_length=64)


BERT = BuiltinJob(task="classification", model="bert-base", data="stdlib", max_samples=20_000)
ON_GPU = (
    Scenario("8 GB", "rtx3070-8gb", 8 * 10**9, BERT),
    Scenario("16 GB", "t4-16gb", 16 * 10**9, BERT),
    Scenario("24 GB", "rtx3090-24gb", 24 * 10**9, BERT),
    Scenario("whole GPU", "a100-80gb", None, BERT),
)
TINY = BuiltinJob(task="classification", model="tiny", data="stdlib", max_samples=400)
ON_CPU = Scenario("3 GiB", "demo", 3 * GIB, TINY)


def tuned(scenario: Scenario, root: Path, minutes: float) -> Settings:
    """The winner of `tuner-tui tune`, started from the notes' settings."""
    preset = root / "start.yaml"
    start = {
        "version": 1,
        "name": "start",
        "settings": structs.asdict(scenario.noted),
        "job": structs.asdict(scenario.job),
    }
    preset.write_text(json.dumps(start))
    limit = [] if scenario.cap_bytes is None else ["--memory-limit", str(scenario.cap_bytes)]
    command = [sys.executable, "-c", MAIN, "tune", "--json", "--preset", str(preset), "--most-minutes", str(minutes)]
    done = subprocess.run([*command, *limit], env=environ(root), stdout=subprocess.PIPE, text=True, check=False)
    ended = json.loads(done.stdout.splitlines()[-1])
    assert ended.get("verdict") is not None, ended.get("sentence")
    return convert(ended["verdict"]["winner"], Settings)


def environ(root: Path) -> dict[str, str]:
    return {**os.environ, "TUNER_STATE_DIR": str(root / "state"), "XDG_CONFIG_HOME": str(root / "config")}


def compare(
    scenario: Scenario, rivals: Mapping[str, Settings], root: Path, terms: TrialProtocol
) -> dict[str, Measurement]:
    """One trial of each."""
    request = LaunchRequest(
        job=scenario.job,
        resolved=Resolved(scenario.default, dict.fromkeys(FIELDS, Origin(OriginKind.FLAG))),
        interpreter=sys.executable,
        memory_limit_bytes=scenario.cap_bytes,
        environ=environ(root),
    )
    runner = TrialRunner(request, terms)
    collected = {}
    for who, settings in rivals.items():
        trial = Trial(number=1, purpose="confirm", settings=settings, reason=who)
        run = collected[who] = runner.run(trial, TrialCallbacks()).measurement
        print(scenario.name, who, run.outcome, run.samples_s, run.tokens_s, run.peak_bytes)
    return collected


@pytest.mark.full
@pytest.mark.train
def test_in_small_on_a_processor(tmp_path: Path) -> None:
    for run in compare(ON_CPU, {"default": ON_CPU.default, "noted": ON_CPU.noted}, tmp_path, QUICK).values():
        assert run.outcome == "measured", run.sentence
        assert run.tokens_s is not None
        assert run.peak_bytes is not None
        assert 0.3 * GIB < run.peak_bytes < 3 * GIB


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(os.environ), reason="no NVIDIA GPU")
@pytest.mark.parametrize("scenario", ON_GPU, ids=lambda scenario: scenario.name)
def test_on_a_gpu_the_tuned_settings_are_the_fastest(scenario: Scenario, tmp_path: Path) -> None:
    winner = tuned(scenario, tmp_path, minutes=6.0)
    rivals = {"tuned": winner, "Trainer's defaults": scenario.default, f"notes: {scenario.preset}": scenario.noted}
    runs = compare(scenario, rivals, tmp_path, LONGER)
    best = runs.pop("tuned")
    assert best.throughput is not None, best.sentence
    for run in runs.values():
        assert run.throughput is None or best.throughput > 0.95 * run.throughput
