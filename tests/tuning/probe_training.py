"""The built-in job, with the memory it takes after each step: `python probe_training.py CONFIG`, in bytes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import transformers.trainer
from transformers import TrainerCallback

from tuner_tui.trainer.main import main


def figure(name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


class RecordTraining(TrainerCallback):
    """Private memory, which RLIMIT_DATA counts, and the largest resident set so far."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        print(f"data {figure('VmData')} peak {figure('VmHWM')}", flush=True)


transformers.trainer.DEFAULT_CALLBACKS.append(RecordTraining)
sys.exit(main(sys.argv[1:]))
