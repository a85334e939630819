"""Compiles the fake driver; `python -m tests.fakes.nvml.build FOLDER SCENARIO` prints the environment that uses it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.fakes.nvml import scenario

SOURCES = Path(__file__).parent
NO_COMPILER = "no C compiler (cc) to build the fake NVIDIA driver library with"


def build_library(folder: Path) -> Path | None:
    """Builds `libnvidia-ml.so.1` in `folder` and gives its path; None where there is no compiler (`NO_COMPILER`)."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "libnvidia-ml.so.1"
    sources = [str(SOURCES / "fake_nvml.c"), str(SOURCES / "scenario.c")]
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", str(library), *sources, "-lm", "-lpthread"], check=True)
    return library


def main(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    library = build_library(folder)
    if library is None:
        raise SystemExit(NO_COMPILER)
    environment = scenario.ALL[name].environment(library, folder)
    for key in ("LD_LIBRARY_PATH", "FAKE_NVML_SCENARIO"):
        print(f"export {key}={environment[key]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
