"""Changes the code in one place at a time and runs the tests that call it: which changes does no test notice?

`python -m tests.mutation --sample 100 --seed 1` prints each mutant that survives, and the share that was killed. It
works in a copy of the repository. The first run notes which tests call which function, which takes as long as the
tests of the packages.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from tests.mutation.mutants import Mutant, mutants_of

ROOT = Path(__file__).parent.parent.parent
TARGETS = {
    "advice": ("tests/advice",),
    "memory": ("tests/memory", "tests/advice/recommend", "tests/advice/test_expected_memory.py"),
    "settings": ("tests/settings",),
    "tuning/search": ("tests/tuning/search",),
    "runs/supervise/outcome.py": ("tests/runs/supervise/test_outcome.py", "tests/advice/crash/test_cause.py"),
}
"""The code that is changed, and the tests that should notice."""
UNTIMED = "not alone and not train and not gpu"
MOST_TESTS = 150
"""Tests run for one mutant, the fastest first; one called by more is noticed by these."""
TIMEOUT_S = 120


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sample", type=int, default=100, help="mutants to try, over all targets")
    options.add_argument("--seed", type=int, default=1, help="which mutants")
    options.add_argument("--target", choices=sorted(TARGETS), action="append", help="only this code")
    options.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    options.add_argument("--calls", type=Path, default=ROOT / ".mutation-calls.json", help="the file of noted calls")
    options.add_argument("--goal", type=float, default=0.0, help="exit with 1 below this share")
    chosen = options.parse_args()
    targets = chosen.target or list(TARGETS)
    if not chosen.calls.exists():
        note_calls(chosen.calls, sorted({path for target in targets for path in TARGETS[target]}))
    noted = json.loads(chosen.calls.read_text())
    sample = choose(targets, chosen.sample, chosen.seed)
    copies: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(chosen.jobs) as pool:
        for number in range(chosen.jobs):
            copies.put(make_copy(Path(folder, str(number))))
        verdicts = []
        for mutant, killed in zip(sample, pool.map(lambda one: is_killed(one, noted, copies), sample), strict=True):
            verdicts.append(killed)
            if not killed:
                print("survived:", mutant, flush=True)
    for target in targets:
        own = [
            killed
            for mutant, killed in zip(sample, verdicts, strict=True)
            if str(mutant.path).startswith(f"tuner_tui/{target}")
        ]
        print(f"{target}: {sum(own)} of {len(own)} killed")
    share = sum(verdicts) / len(sample)
    print(f"all: {sum(verdicts)} of {len(sample)} killed ({share:.0%})")
    sys.exit(share < chosen.goal)


def note_calls(file: Path, tests: list[str]) -> None:
    """Run the tests once and write down which functions each of them calls."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.calls"]
    subprocess.run(
        [*command, "-m", UNTIMED, *tests], cwd=ROOT, env={**os.environ, "MUTATION_CALLS": str(file)}, check=False
    )


def choose(targets: list[str], number: int, seed: int) -> list[Mutant]:
    """As many mutants of each target as there are of it in all, at random."""
    found: list[Mutant] = []
    for target in targets:
        root = ROOT / "tuner_tui" / target
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            found += mutants_of(path.relative_to(ROOT), path.read_text())
    return random.Random(seed).sample(found, min(number, len(found)))


def make_copy(folder: Path) -> Path:
    """A copy of what the tests need, in which one mutant after another is tried."""
    for name in ("tuner_tui", "tests", "presets"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "__snapshots__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def is_killed(mutant: Mutant, noted: dict[str, dict[str, list[str]]], copies: Queue[Path]) -> bool:
    """Whether a test fails with the change."""
    tests = tests_for(mutant, noted)
    if not tests:
        return False
    copy = copies.get()
    target = copy / mutant.path
    source = target.read_text()
    target.write_text(mutant.apply(source))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return True
    finally:
        target.write_text(source)
        copies.put(copy)
    return done.returncode != 0


def tests_for(mutant: Mutant, noted: dict[str, dict[str, list[str]]]) -> list[str]:
    """The tests that call the mutant's function, the fastest first; those of its module where none is noted."""
    called = set(noted["calls"].get(f"{mutant.path}:{mutant.first_line}", []))
    if not called:
        module = f"{mutant.path}:"
        called = {test for name, tests in noted["calls"].items() if name.startswith(module) for test in tests}
    seconds: dict[str, float] = noted["seconds"]  # type: ignore[assignment]
    return sorted(called, key=lambda test: seconds.get(test, 0.0))[:MOST_TESTS]


if __name__ == "__main__":
    main()
