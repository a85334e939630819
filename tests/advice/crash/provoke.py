"""Provokes real crashes on a machine without a GPU and keeps what they print: `python -m tests.advice.crash.provoke`.

Run by hand when a library's words may have changed. Paths are made neutral; everything else is kept as it was printed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

FOLDER = Path(__file__).parent


def scripts() -> dict[str, str]:
    """The scripts of `provoked.yaml`, with the code that several share in place of its name."""
    snippets: dict[str, str] = yaml.load((FOLDER / "provoked.yaml").read_text("utf-8"), yaml.CSafeLoader)
    shared = {f"<{name}>\n": snippets.pop(name) for name in ("limit", "loader", "trainer")}
    for name, code in shared.items():
        snippets = {key: snippet.replace(name, code) for key, snippet in snippets.items()}
    return snippets


def provoke(script: str) -> str:
    """What the script prints, and the exit status that a shell would show."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(script)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
        result = subprocess.run(
            [sys.executable, "train.py"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            check=False, timeout=300,
        )  # fmt: skip
        return neutral(result.stdout.decode("utf-8", "replace").replace(folder, "/home/ann"))


def neutral(text: str) -> str:
    """Without this machine's folders."""
    text = re.sub(r'[^"\s]*/lib/python3\.\d+/site-packages/', "/opt/env/lib/python3.11/site-packages/", text)
    text = re.sub(r'[^"\s]*/lib/python3\.(\d+)/(?!site-packages)', r"/opt/python/lib/python3.\1/", text)
    return re.sub(r"/tmp/[\w./-]+", "/tmp/folder", text)


def main() -> None:
    """Provoke what is named on the command line, or everything."""
    snippets = scripts()
    for name in sys.argv[1:] or snippets:
        (FOLDER / "provoked" / f"{name}.txt").write_text(provoke(snippets[name]))
        print(name)


if __name__ == "__main__":
    main()
