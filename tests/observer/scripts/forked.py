"""Runs a script several times, each in a forked child and with a run folder of its own: torch is imported once.

`forked.py SCRIPT CASES`: JSON, of each case its folder and the arguments. What is in the run folder goes to `run` in
the case's folder when the child has ended, what it prints to `output`.
"""

import json
import os
import runpy
import sys
from pathlib import Path

import torch._dynamo  # noqa: F401 - imported by the first optimizer otherwise

script, run = sys.argv[1], Path(os.environ["TUNER_RUN_DIR"])
for folder, arguments in json.loads(sys.argv[2]):
    if os.fork() == 0:
        output = os.open(f"{folder}/output", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        sys.argv = [script, *arguments]
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    os.wait()
    Path(folder, "run").mkdir()
    for file in run.iterdir():
        file.rename(Path(folder, "run", file.name))
