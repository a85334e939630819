"""Real trainings whose steps are slow in known ways, profiled."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.inspection.test_ask import Processes, select_for
from tests.observer.observed_process import events_of, last_steps, observe, printed_losses
from tuner_tui.core.procfs import ProcessStat, read_stat
from tuner_tui.inspection.ask import offers_of
from tuner_tui.inspection.ask_profile import ProfileAnswer, ask_for_profiles, watch_lines
from tuner_tui.inspection.slow_step import SlowStep, judge_step
from tuner_tui.inspection.step_trace import read_trace, reduce_trace
from tuner_tui.runs.events.types import Event, Steps
from tuner_tui.runs.store.codec import decode_events

SCRIPT = Path(__file__).parent / "scripts" / "slow_steps.py"
TIMEOUT_S = 300.0


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.end()


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """Imports torch once for all kinds of slow steps."""
    started = Processes(tmp_path_factory.mktemp("slow-steps"))
    yield started.start(str(SCRIPT), stdin=subprocess.PIPE)
    started.end()


@pytest.fixture
def slow_training(parent: subprocess.Popen[str], kind: str) -> Iterator[ProcessStat]:
    """A child whose steps are slow in that way."""
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(f"{kind}\n")
    parent.stdin.flush()
    pid = int(parent.stdout.readline())
    try:
        yield that_trains(pid)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def training(processes: Processes, *command: str) -> ProcessStat:
    """A training that has made its first steps."""
    return that_trains(processes.start(*command).pid)


def that_trains(pid: int) -> ProcessStat:
    """The process, once it has made its first steps."""
    deadline = time.monotonic() + TIMEOUT_S
    while "profile" not in offers_of(pid):
        assert time.monotonic() < deadline
        select_for(0.1)
    stat = read_stat(pid)
    assert stat is not None
    return stat


def ask(process: ProcessStat, steps: int = 10, patience_s: float = TIMEOUT_S) -> ProfileAnswer:
    [answer] = ask_for_profiles({0: process}, steps, 0.1, lambda _: None, patience_s)
    return answer


def verdict(process: ProcessStat) -> SlowStep:
    lines = watch_lines([process], {process.pid: 0}, 1.0).get(0, ())
    answer = ask(process)
    assert answer.refusal is None
    assert answer.plain is not None
    return judge_step(reduce_trace(read_trace(answer.trace), answer.plain), lines)


@pytest.mark.parametrize(
    ("kind", "bound", "where"),
    [
        ("slow-collate", "input", "pad_rows "),
        ("heavy-layer", "device", "module middle"),
        pytest.param("slow-loader", "input", "decode ", marks=pytest.mark.alone),
        pytest.param("python-loss", "host", "python_loss ", marks=pytest.mark.alone),
        pytest.param("slow-logging", "host", "log_step ", marks=pytest.mark.alone),
        pytest.param("slow-optimizer", "device", "the optimizer", marks=pytest.mark.alone),
        pytest.param("tiny-operators", "device", "module middle", marks=pytest.mark.alone),
        # Between so many small operators a process that has to wait for a core looks as if it ran code of its own.
        pytest.param("reads-values", ("device", "host"), "read_values ", marks=pytest.mark.alone),
    ],
)
def test_slow_steps(slow_training: ProcessStat, bound: str | tuple[str, ...], where: str) -> None:
    answer = verdict(slow_training)
    assert answer.bound in bound
    assert answer.where.startswith(where)


@pytest.mark.parametrize("kind", ["heavy-layer"])
def test_a_module_that_has_a_number_for_a_name_is_shown_with_its_class(slow_training: ProcessStat) -> None:
    answer = ask(slow_training)
    assert answer.plain is not None
    times = reduce_trace(read_trace(answer.trace), answer.plain)
    assert {"encoder.0 (Linear)", "encoder.2 (Linear)", "middle"} <= {row.name for row in times.modules}


def test_asked_twice_and_results_stay_the_same(
    tmp_path: Path, processes: Processes, capfd: pytest.CaptureFixture[str]
) -> None:
    """The losses of the profiled training are those of one without the observer's profile, which prints nothing."""
    process = training(processes, str(SCRIPT), "slow-disk", "100000")
    assert ask(process).refusal is None
    assert ask(process).refusal is None
    started = processes.started[0]
    started.kill()
    assert started.stdout is not None
    assert "profiler_start" not in capfd.readouterr().err
    losses = printed_losses(started.stdout.read())
    assert len(losses) > 20, "two times ten steps were profiled"
    plain = observe(tmp_path / "plain", str(SCRIPT), "slow-disk", str(len(losses)))
    assert losses == printed_losses(plain.output)


LOOP = """
import os, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def steps(count):
    for _ in range(count):
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        torch.randn(256, 256) @ torch.randn(256, 256)
"""


GROWS = f"""{LOOP}
taken = []
while True:
    steps(1)
    if torch.autograd._profiler_enabled() and not taken:
        taken.append(torch.ones(64 << 20))
"""


def test_the_memory_that_a_profile_takes_is_not_the_peak_of_the_training(processes: Processes) -> None:
    process, events = training(processes, "-c", GROWS), processes.folder / "events.jsonl"
    before = last_steps(_read_events(events))
    assert ask(process).refusal is None
    count, deadline = len(_read_events(events)), time.monotonic() + TIMEOUT_S
    while not events_of(_read_events(events)[count:], Steps):
        assert time.monotonic() < deadline
        select_for(0.1)
    after = last_steps(_read_events(events))
    assert before.rss_peak_bytes is not None
    assert after.rss_peak_bytes is not None
    assert after.rss_peak_bytes - before.rss_peak_bytes < 128 << 20
    assert (after.anonymous_bytes or 0) - (before.anonymous_bytes or 0) > 200 << 20


def _read_events(path: Path) -> list[Event]:
    return list(decode_events(path.read_bytes().splitlines()))


def test_a_training_with_its_own_profiler(processes: Processes) -> None:
    code = (
        LOOP + "steps(9)\nwith torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]): steps(10**9)"
    )
    assert "a profiler of its own" in (ask(training(processes, "-c", code)).refusal or "")


def test_a_profiler_that_the_training_starts_meanwhile_is_not_disturbed(processes: Processes) -> None:
    code = LOOP + (
        "steps(9)\nwhile True:\n  steps(2000)\n"
        "  with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as mine: steps(2)\n"
        "  assert any(event.key == 'aten::mm' for event in mine.key_averages())"
    )
    process = training(processes, "-c", code)
    for _ in range(3):
        refusal = ask(process, 100).refusal
        assert refusal is None or "profiler of its own" in refusal
    assert processes.started[0].poll() is None


def test_a_training_that_makes_no_more_steps(processes: Processes) -> None:
    process = training(processes, "-c", LOOP + "steps(9)\nimport time\ntime.sleep(600)")
    assert ask(process, patience_s=1.0).refusal == "it finishes no steps"


def test_a_training_that_ends_while_it_is_recorded(processes: Processes) -> None:
    process = training(processes, "-c", LOOP + "steps(9)\nwhile not torch.autograd._profiler_enabled(): steps(1)")
    assert ask(process).refusal == "the training ended before its steps were recorded"
    assert processes.started[0].wait(TIMEOUT_S) == 0


def test_a_process_that_does_not_train(processes: Processes) -> None:
    process = processes.say("import time\nprint('ready', flush=True)\ntime.sleep(600)")
    stat = read_stat(process.pid)
    assert stat is not None
    assert "has finished no step" in (ask(stat).refusal or "")


def test_a_forked_child_that_trains_is_asked_for_itself(processes: Processes) -> None:
    code = LOOP + (
        "import select, sys\nwhile not select.select([sys.stdin], [], [], 0)[0]: steps(1)\n"
        "if os.fork() == 0:\n  print('child', os.getpid(), flush=True)\n  steps(10**9)\nos.wait()"
    )
    parent = processes.start("-c", code, stdin=subprocess.PIPE)
    assert ask(that_trains(parent.pid)).refusal is None
    assert parent.stdin is not None
    parent.stdin.write("\n")
    parent.stdin.flush()
    assert parent.stdout is not None
    match = re.match(r"child (\d+)", parent.stdout.readline())
    assert match is not None
    child = that_trains(int(match[1]))
    assert ask(child).refusal is None
    os.kill(child.pid, signal.SIGKILL)
