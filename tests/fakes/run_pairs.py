"""Two made-up runs that differ in batch, precision and what came of them."""

from __future__ import annotations

import math

from msgspec.structs import replace

from tests.runs.builders import view
from tuner_tui.runs.events.progress import Series
from tuner_tui.runs.read.reader import RunView
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.view.comparison_rows import ComparisonScene, compare_views

GB = 2**30


def slower(steps: int = 800) -> RunView:
    """The earlier run: small batches in fp32."""
    losses = tuple((step, 1.4 + 2.6 * math.exp(-step / 160)) for step in range(10, steps + 1, 10))
    run = view({"per_device_train_batch_size": 16, "seed": 7}, steps, 16, 320.0, loss=losses, preset="bert-base")
    return with_memory(run, 20.4 * GB)


def faster(steps: int = 400) -> RunView:
    """The later run: twice the batch in bf16."""
    losses = tuple((step, 1.38 + 2.6 * math.exp(-step / 70)) for step in range(10, steps + 1, 10))
    values = {"per_device_train_batch_size": 32, "precision": "bf16", "seed": 7, "learning_rate": 8e-5}
    run = view(
        values, steps, 32, 190.0, loss=losses, preset="bert-base", versions={"torch": "2.13.0"}, created_t=2.0,
        state={"in_effect": {"precision": "bf16", "optim": "adamw_torch_fused"}},
    )  # fmt: skip
    return with_memory(run, 26.1 * GB)


def with_memory(run: RunView, peak_bytes: float) -> RunView:
    """The run with a peak of memory."""
    memory = Series("peak memory", "B", (1.0, 2.0), (peak_bytes * 0.9, peak_bytes))
    return replace(run, history=replace(run.history, memory_bytes=memory))


def two_runs() -> ComparisonScene:
    """The two, as a look at them finds them."""
    return compare_views(("r006", slower()), ("r007", faster()))


def two_jobs() -> ComparisonScene:
    """Two runs that trained different jobs and logged no loss."""
    second = view(job=BuiltinJob(model="gpt2"), created_t=2.0)
    return compare_views(("r006", view()), ("r007", second), "r006 and r007 train different jobs")
