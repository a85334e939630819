"""Runs scripts one after the other, each in a forked child and with a run folder of its own: torch is imported once.

`forked.py CASES [MODULE...]`: JSON, of each case the folder in which it runs, the script and its arguments; and what is
imported before. What is in the run folder goes to `run` in the case's folder when the child has ended, what it prints
to `output`, and its exit code to `exit-code`.
"""

import gc
import importlib
import json
import os
import runpy
import sys
from pathlib import Path

import torch._dynamo  # noqa: F401 - imported by the first optimizer otherwise

for name in sys.argv[2:]:
    importlib.import_module(name)
gc.freeze()  # else each child looks through all of torch for garbage, and copies it
run = Path(os.environ["TUNER_RUN_DIR"])
for folder, *command in json.loads(sys.argv[1]):
    if os.fork() == 0:
        os.chdir(folder)
        output = os.open("output", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
        raise SystemExit
    _, status = os.wait()
    Path(folder, "exit-code").write_text(str(os.waitstatus_to_exitcode(status)))
    Path(folder, "run").mkdir()
    for file in run.iterdir():
        file.rename(Path(folder, "run", file.name))
