"""Out of memory in the middle of a real training: the automatic fallback goes on, and nothing else has changed."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs
from msgspec.structs import replace

from tests.tuning.builders import resolved
from tuner_tui.core.file_locks import is_locked
from tuner_tui.runs.launch.prepare import LaunchRequest, prepare
from tuner_tui.runs.launch.start import launch, start_fallback
from tuner_tui.runs.read.reader import RunReader, RunView
from tuner_tui.runs.read.status import continuation_of, wait_for_fallback
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.store.record import read_record
from tuner_tui.settings.job import BuiltinJob

PROBE = Path(__file__).with_name("probe_training.py")
SETTINGS: dict[str, Any] = {
    "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "max_length": 1024, "max_steps": 24,
    "save_strategy": "steps", "save_steps": 5, "eval_strategy": "no", "logging_steps": 1, "learning_rate": 1e-3,
    "dataloader_pin_memory": False,
}  # fmt: skip
ENVIRON = {
    **os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_TOP_PAD_": "0",
}  # fmt: skip
"""Every tensor of some size is a mapping of its own and goes back at once: what a step takes is what its tensors take,
the same each time. With the C library's own thresholds the same training takes up to 90 MB more or less."""
SHARE = 0.75
"""Of what the long samples need at micro batch 16 there is this much; at 8 they need half of it."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """320 short samples, and two long ones that come in the second half of the first epoch."""
    draw = random.Random(0)
    rows = []
    for row in range(320):
        label = draw.randint(0, 1)
        count = 900 if row in (145, 230) else draw.randint(5, 20)
        words = [draw.choice(["alpha", "beta", "gamma", "delta", "good" if label else "bad"]) for _ in range(count)]
        rows.append(json.dumps({"text": " ".join(words), "label": label}))
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(rows) + "\n")
    return path


def losses(output: Path) -> dict[int, float]:
    """The loss of every step, from the last checkpoint, which knows those before the resumption too.

    No two steps have the same samples, so losses that agree tell that their order does.
    """
    history = json.loads((output / "checkpoint-24" / "trainer_state.json").read_bytes())["log_history"]
    return {entry["step"]: entry["loss"] for entry in history if "loss" in entry}


def uninterrupted(data: Path, output: Path) -> tuple[dict[int, float], int]:
    """Losses of the training without a limit, and the limit in bytes under which it runs out of memory."""
    config = output.with_suffix(".yaml")
    config.write_text(yaml.safe_dump({**SETTINGS, "model": "tiny", "data": str(data), "output_dir": str(output)}))
    command = [sys.executable, str(PROBE), str(config)]
    result = subprocess.run(command, env=ENVIRON, capture_output=True, text=True, check=False, timeout=240)
    assert result.returncode == 0, result.stderr[-2000:]
    steps = [tuple(map(int, groups)) for groups in re.findall(r"^data (\d+) peak (\d+)$", result.stdout, re.MULTILINE)]
    before = steps[9]
    growth = steps[-1][1] - before[1]
    assert growth > 200e6, "the long samples were to be large"
    return losses(output), int(max(private for private, _ in steps[:10]) + SHARE * growth)


def ended(folder: RunFolder) -> RunView:
    wait_for_fallback(folder)
    return RunReader(folder).poll()


@pytest.mark.full
@pytest.mark.train
def test_it_goes_on_from_the_checkpoint_as_if_nothing_had_happened(data: Path, tmp_path: Path) -> None:
    expected, limit = uninterrupted(data, tmp_path / "free")
    request = LaunchRequest(
        job=BuiltinJob(data=str(data), fallback=3),
        resolved=resolved(**SETTINGS),
        interpreter=sys.executable,
        cwd=tmp_path,
        memory_limit_bytes=limit,
        environ=ENVIRON,
        root=tmp_path / "runs",
    )
    first = launch(prepare(request))
    assert is_locked(first.fallback_lock)
    views = chain(first)
    assert [view.state.outcome for _, view in views] == ["out-of-memory", "completed"], describe(views)
    (_, view), (following, after) = views
    fell = view.state.fell_back
    assert fell is not None
    assert (fell.number, fell.most) == (1, 3)
    # 8 × 2 or 4 × 4, by what the estimate lets fit on this machine; the effective batch is held.
    assert dict(fell.change) in (
        {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
    )
    assert fell.step == after.state.first_step == 10
    record = read_record(following)
    assert record.parent == first.id
    assert record.resumed_from == str(first.output / "checkpoint-10")
    assert losses(following.output) == pytest.approx(expected, rel=2e-5)


def chain(folder: RunFolder) -> list[tuple[RunFolder, RunView]]:
    """The run and those that went on after it, once all is decided."""
    views = [(folder, ended(folder))]
    while (following := continuation_of(folder, views[-1][1].state)) is not None:
        folder = following
        views.append((folder, ended(folder)))
    return views


def watched(request: LaunchRequest, times: int) -> RunFolder:
    """Launched with so many fallbacks."""
    wanted = replace(request, job=structs.replace(request.job, fallback=times))
    return launch(prepare(wanted))


def describe(views: list[tuple[RunFolder, RunView]]) -> str:
    return "\n".join(f"{view.status.sentence} {view.state.fallback_ended or ''}" for _, view in views)


def test_a_run_that_ends_well_is_left_alone(tmp_path: Path) -> None:
    from tests.runs.sandbox import Sandbox

    box = Sandbox(tmp_path)
    request = box.request("print('done')")
    folder = watched(request, 3)
    state = ended(folder).state
    assert (state.outcome, state.fell_back, state.fallback_ended) == ("completed", None, None)
    assert not is_locked(folder.fallback_lock)
    start_fallback(folder, read_record(folder).job, request.environ)


def test_out_of_memory_with_nothing_to_try_is_told(tmp_path: Path) -> None:
    from tests.runs.sandbox import Sandbox

    box = Sandbox(tmp_path)
    request = box.request("raise MemoryError('Unable to allocate 9.00 TiB')")
    folder = watched(request, 3)
    state = ended(folder).state
    assert state.outcome == "out-of-memory"
    assert state.fell_back is None
    assert state.fallback_ended is not None
    assert "no other change keeps" in state.fallback_ended.sentence
