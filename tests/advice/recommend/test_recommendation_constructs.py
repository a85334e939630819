"""What is recommended is taken by the installed transformers: asked in a subprocess, never imported here."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fakes.inventories import box, make_gpu
from tuner_tui.advice.recommend.recommendation import DEFAULT_JOB, recommend
from tuner_tui.hardware.interpreter import probe_interpreter
from tuner_tui.settings.apply import build_command
from tuner_tui.settings.job import BuiltinJob

pytestmark = [
    pytest.mark.full,  # loads torch and transformers for what test_recommendation_properties.py checks without them
    pytest.mark.train,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs the train extra"),
]
BOXES = [
    box(cores=2),
    box(make_gpu("K80", gib=11.2), cores=4),
    box(make_gpu("T4", gib=15.0), shm_mib=64),
    box(make_gpu("H100", gib=79.6), cores=128),
    box(make_gpu("GB10")),
]
JOBS = [DEFAULT_JOB, BuiltinJob(task="causal-lm", model="llama-1b")]
CONSTRUCT = """
import json, sys, yaml
from tuner_tui.trainer.job_file import parse_config
for path in json.loads(sys.stdin.read()):
    parse_config(yaml.safe_load(open(path).read()), path)
print("constructed")
"""


def test_whatever_is_recommended_constructs(tmp_path: Path) -> None:
    python = probe_interpreter(Path(sys.executable))
    paths: list[str] = []
    for inventory in BOXES:
        for job in JOBS:
            # TrainingArguments asks the GPU of this machine for TF32, which need not have it.
            settings = recommend(inventory, python, job).settings.changed(tf32=None)
            path = tmp_path / f"{len(paths)}.yaml"
            path.write_text(build_command(job, settings, python, str(tmp_path)).config_yaml or "")
            paths.append(str(path))
    done = subprocess.run(
        [sys.executable, "-c", CONSTRUCT],
        input=json.dumps(paths),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split() == ["constructed"], done.stderr
