"""Changes the code in one place at a time and runs the tests that execute it: which changes does no test notice?

`python -m tests.mutation --sample 60 --seed 1` prints each mutant that survives, and for each package the share that
was killed. It works in copies of the repository. The first run notes which tests execute which lines, which takes
about twice as long as the tests of the packages, and is done again when the code or a test has changed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant, mutants_of

ROOT = Path(__file__).parent.parent.parent
TARGETS = {
    "advice": ("tests/advice",),
    "memory": ("tests/memory", "tests/advice"),
    "settings": ("tests/settings",),
    "tuning/search": ("tests/tuning/search",),
    "runs/supervise/outcome.py": ("tests/runs/supervise/test_outcome.py",),
    "runs/log_parsing/fatal_failure.py": ("tests/runs/log_parsing", "tests/advice/crash"),
}
"""The code that is changed, and the tests that should notice."""
UNTIMED = "not alone and not full and not train and not gpu"
MOST_S = 60.0
"""Tests run for one mutant, the fastest first, up to this many seconds; one that they miss is missed."""
TIMEOUT_S = 180.0
POLL_S = 0.05


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sample", type=int, default=60, help="mutants to try of each target")
    options.add_argument("--seed", type=int, default=1, help="which mutants")
    options.add_argument("--target", choices=sorted(TARGETS), action="append", help="only this code")
    options.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    options.add_argument("--lines", type=Path, default=ROOT / ".mutation-lines", help="the folder for noted lines")
    options.add_argument("--goal", type=float, default=0.0, help="exit with 1 if a target's share is below")
    chosen = options.parse_args()
    targets = chosen.target or list(TARGETS)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [make_copy(Path(folder, str(number))) for number in range(chosen.jobs)]
        lines = chosen.lines / digest(copies[0])
        for tests in sorted({path for target in targets for path in TARGETS[target]}):
            note_lines(lines / tests.replace("/", "-"), tests, copies[0], chosen.jobs)
        noted = NotedLines.read(lines)
        sample = [
            (target, mutant) for target in targets for mutant in choose(copies[0], target, chosen.sample, chosen.seed)
        ]
        import_libraries(sorted({path for target in targets for path in TARGETS[target]}))
        tried = [(mutant, noted.tests_for(mutant)) for _, mutant in sample]
        broken = try_all([(mutant.undone, tests) for mutant, tests in tried[:: max(1, len(tried) // 3)]], copies)
        if broken:
            sys.exit(f"Tests fail without a change: {', '.join(map(str, broken))}")
        killed = try_all(tried, copies)
    shares = []
    for target in targets:
        killed_here = [mutant in killed for name, mutant in sample if name == target]
        low, high = interval(sum(killed_here), len(killed_here))
        shares.append(sum(killed_here) / len(killed_here))
        print(f"{target}: {sum(killed_here)} of {len(killed_here)} killed, {shares[-1]:.0%} ({low:.0%} to {high:.0%})")
    sys.exit(min(shares) < chosen.goal)


def interval(killed: int, tried: int) -> tuple[float, float]:
    """Wilson's interval of 95 % for the share that is killed."""
    share, z = killed / tried, 1.96
    middle = (share + z * z / (2 * tried)) / (1 + z * z / tried)
    half = z / (1 + z * z / tried) * sqrt(share * (1 - share) / tried + z * z / (4 * tried * tried))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True)
class NotedLines:
    """By file and line, the tests that execute it; and the time that a test takes."""

    tests: dict[str, dict[int, set[str]]]
    seconds: dict[str, float]

    @classmethod
    def read(cls, folder: Path) -> NotedLines:
        """The notes of all runs below `folder`."""
        tests: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        seconds = {}
        for file in folder.glob("tests*/*.json"):
            for test, noted in json.loads(file.read_text()).items():
                seconds[test] = noted["seconds"]
                for path, lines in noted["lines"].items():
                    for line in lines:
                        tests[path][line].add(test)
        return cls(tests, seconds)

    def tests_for(self, mutant: Mutant) -> list[str]:
        """The tests that execute the mutant, the fastest first; those of its module for code outside functions."""
        by_line = self.tests.get(str(mutant.path), {})
        lines: Iterable[int] = by_line if mutant.runs_at_import else range(mutant.line, mutant.last_line + 1)
        result = sorted({test for line in lines for test in by_line.get(line, ())}, key=lambda test: self.seconds[test])
        chosen: list[str] = []
        left_s = MOST_S
        for test in result:
            left_s -= self.seconds[test]
            if left_s < 0 and chosen:
                break
            chosen.append(test)
        return chosen


def note_lines(folder: Path, tests: str, copy: Path, jobs: int) -> None:
    """Run the tests once, unless that was done, and write down which lines each of them executes."""
    if folder.exists():
        return
    unfinished = folder.with_name(f"unfinished-{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.lines"]
    command += ["-n", str(jobs), "--dist", "worksteal", "-m", UNTIMED, tests]
    environment = {**os.environ, "MUTATION_LINES": str(unfinished), "PYTHONPATH": str(copy)}
    subprocess.run(command, cwd=copy, env=environment, check=False)
    unfinished.rename(folder)


def digest(root: Path) -> str:
    """What the noted lines are valid for: the code and the tests."""
    files = sorted(path for folder in ("tuner_tui", "tests") for path in (root / folder).rglob("*.py"))
    files = [path for path in files if path.parent != root / "tests" / "mutation"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def choose(root: Path, target: str, number: int, seed: int) -> list[Mutant]:
    """Mutants of a target at random."""
    code = root / "tuner_tui" / target
    files = sorted(code.rglob("*.py")) if code.is_dir() else [code]
    mutants = [mutant for path in files for mutant in mutants_of(path.relative_to(root), path.read_text())]
    return random.Random(seed).sample(mutants, min(number, len(mutants)))


def make_copy(folder: Path) -> Path:
    """A copy of what the tests need, in which one mutant after another is tried.

    Modules that pytest has compiled name the file that they come from, so these are left out.
    """
    left_out = ("__snapshots__", ".git", ".*_cache", ".hypothesis", ".venv", ".mutation-lines", "*-pytest-*.pyc")
    ignored = shutil.ignore_patterns(*left_out)
    shutil.copytree(ROOT, folder, ignore=ignored)
    return folder


def import_libraries(tests: list[str]) -> None:
    """Import what the tests import, without the package and the tests: a fork imports only these."""
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--collect-only", "-n", "0", "-p", "no:cacheprovider", *tests])
    for name in [name for name in sys.modules if name.split(".")[0] in {"tuner_tui", "tests"}]:
        if not name.startswith("tests.mutation"):
            del sys.modules[name]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One mutant that is tried by a process of its own."""

    mutant: Mutant
    copy: Path
    source: str
    times_ns: tuple[int, int]
    deadline: float

    @classmethod
    def begin(cls, mutant: Mutant, copy: Path, number: int) -> Attempt:
        """Write the mutant; no other has the same time, by which Python and pytest know compiled files."""
        target = copy / mutant.path
        source, stat = target.read_text(), target.stat()
        target.write_text(mutant.apply(source))
        os.utime(target, (number, number))
        return cls(mutant, copy, source, (stat.st_atime_ns, stat.st_mtime_ns), time.monotonic() + TIMEOUT_S)

    def restore(self) -> None:
        """Undo the change, with the time of the file."""
        target = self.copy / self.mutant.path
        target.write_text(self.source)
        os.utime(target, ns=self.times_ns)


def try_all(mutants: list[tuple[Mutant, list[str]]], copies: list[Path]) -> set[Mutant]:
    """The mutants for which a test fails, or hangs; prints the others as soon as they are known."""
    killed: set[Mutant] = set()
    running: dict[int, Attempt] = {}
    copies = list(copies)
    waiting = [(mutant, tests) for mutant, tests in mutants if tests]
    for mutant, tests in mutants:
        if not tests and mutant.text != mutant.original:
            print("no test executes:", mutant, flush=True)
    while waiting or running:
        while waiting and copies:
            mutant, tests = waiting.pop()
            attempt = Attempt.begin(mutant, copies.pop(), number=len(waiting) + 1)
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                run_tests(tests, attempt.copy)
            running[pid] = attempt
        for pid, attempt in list(running.items()):
            status = exit_status(pid, attempt)
            if status is None:
                continue
            del running[pid]
            attempt.restore()
            copies.append(attempt.copy)
            if status == -signal.SIGKILL:
                print("no test ended in time:", attempt.mutant, flush=True)
            if status:
                killed.add(attempt.mutant)
            elif attempt.mutant.text != attempt.mutant.original:
                print("survived:", attempt.mutant, flush=True)
        time.sleep(POLL_S)
    return killed


def run_tests(tests: list[str], copy: Path) -> None:
    """In the fork: end with pytest's exit code."""
    os.setsid()
    os.chdir(copy)
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(silent, stream)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path[:] = [str(copy), *(path for path in sys.path if Path(path).resolve() != ROOT)]
    code = 1
    try:
        code = int(pytest.main(["-x", "-n", "0", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(code)


def exit_status(pid: int, attempt: Attempt) -> int | None:
    """The exit code of the fork; None while it runs. One that takes too long is ended."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended:
        return os.waitstatus_to_exitcode(status)
    if time.monotonic() < attempt.deadline:
        return None
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -signal.SIGKILL


if __name__ == "__main__":
    main()
