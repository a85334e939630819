"""A state machine over run folders: starts, kills, damages, stops and looks, in any order; then judges what is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from msgspec import to_builtins

from tests.faults.test_damaged_folders import device, link_to_itself
from tests.runs.sandbox import QUICK_STOP, TIMEOUT_S, wait_gone
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.situation import situation_of_run
from tuner_tui.core.daemon_thread import daemon_call
from tuner_tui.core.procfs import ProcessId, all_processes, is_alive
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.orders import give_order, wait_ended
from tuner_tui.runs.launch.prepare import LaunchRequest, prepare
from tuner_tui.runs.launch.restart import plan_restart
from tuner_tui.runs.launch.start import adopt, launch
from tuner_tui.runs.read.log_reader import LogReader
from tuner_tui.runs.read.reader import RunReader, list_run
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import Order, RunFolder, list_runs, read_supervisor_state
from tuner_tui.runs.supervise.run_processes import named_run
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Resolved, Settings

Result = TypeVar("Result")
PATIENCE_S = 120.0
"""A call that takes longer hangs."""
WAIT = "import signal\nprint('up', flush=True)\nwhile True: signal.pause()\n"
SCRIPTS = {
    "waits": WAIT,
    "deaf": "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT,
    "ranks": (
        "import subprocess, sys\n"
        "ranks = [subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], start_new_session=True)"
        " for _ in range(2)]\nprint(*[rank.pid for rank in ranks], flush=True)\nfor rank in ranks: rank.wait()\n"
    ),
    "completes": "print('done', flush=True)\n",
    "fails": "import sys\nprint('loss 0.5', flush=True)\nsys.exit(3)\n",
}
ENDS = {"completes": {"completed"}, "fails": {"failed"}}
FILES = (
    "run.json", "state.json", "events.jsonl", "events-rank1.jsonl", "samples.jsonl", "output.log", "control", "lock",
    "agreed", "fallback.lock", "supervisor.log",
)  # fmt: skip
GARBAGE = (
    b"", b"\0" * 100, b"{", b"[" * 5000, b'{"v": 1}', b'{"v":1,"created_t":NaN}', b"nan\n", b"\xff\xfe" * 50,
    b'{"v":1,"machine":{"host":"x"},"supervisor":{"pid":1,"start_ticks":0},"started_t":1e400}',
    b'{"v":1,"machine":null,"supervisor":{"pid":-1,"start_ticks":0},"started_t":0}',
    b'{"story":1,"kind":"finished","v":1,"t":1e300,"outcome":"completed"}\n',
    b'{"kind":"steps","v":1,"t":1,"rank":99999999999,"step":-5,"own_steps":1e99}\n',
    b'{"story":1,"kind":"launched","v":1,"t":1,"pid":1,"argv":["x"]}\n',
)  # fmt: skip


KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "itself": link_to_itself,
    "device": device,
}


@dataclass
class Started:
    """A run of the machine. `outcomes` are those that may be found; None until somebody interferes."""

    folder: RunFolder
    script: str
    training: ProcessId
    supervisor: ProcessId
    outcomes: set[str] | None = None
    damaged: bool = False
    seen: str | None = None

    def interfered(self, *outcomes: str) -> None:
        self.outcomes = (self.outcomes or set(ENDS.get(self.script, ()))) | set(outcomes)


class RunMachine(RuleBasedStateMachine):
    """Does anything to runs. What holds at any time is checked after each step, the rest at the end."""

    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tuner-fuzz-"))
        self.started: list[Started] = []
        for name, script in SCRIPTS.items():
            (self.root / f"{name}.py").write_text(script)
        self.stranger = subprocess.Popen(
            [sys.executable, "-c", WAIT], start_new_session=True, stdout=subprocess.DEVNULL
        )

    @rule(target=runs, script=st.sampled_from(sorted(SCRIPTS)))
    def start(self, script: str) -> Started:
        path = self.root / f"{script}.py"
        request = LaunchRequest(
            job=CommandJob(command=(sys.executable, str(path))), resolved=Resolved(Settings()),
            interpreter=sys.executable, cwd=self.root, root=self.root / "runs", stop_timeouts=QUICK_STOP,
        )  # fmt: skip
        folder = self._limited(lambda: launch(prepare(request)))
        supervision = read_supervisor_state(folder.state)
        assert supervision is not None
        assert supervision.training is not None
        made = Started(folder, script, supervision.training, supervision.supervisor)
        self.started.append(made)
        return made

    @rule(run=runs, who=st.sampled_from(["supervisor", "training"]), number=st.sampled_from([9, 15, 19, 18, 10, 1]))
    def signal(self, run: Started, who: str, number: int) -> None:
        process = getattr(run, who)
        if is_alive(process):
            os.kill(process.pid, number)
            run.interfered("stopped", "failed", "lost")
            if number == signal.SIGKILL:
                wait_gone(process)

    @rule(run=runs)
    def kill_a_rank(self, run: Started) -> None:
        for pid in self._marked(run):
            if pid not in (run.training.pid, run.supervisor.pid):
                run.interfered("stopped", "failed", "lost", "completed")
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                return

    @rule(run=runs, name=st.sampled_from(FILES), content=st.sampled_from(GARBAGE), append=st.booleans())
    def write_garbage(self, run: Started, name: str, content: bytes, append: bool) -> None:
        def write(path: Path) -> None:
            with path.open("ab" if append else "wb", buffering=0) as file:
                file.write(content)

        self._damage(run, name, write)

    @rule(run=runs, name=st.sampled_from(FILES), share=st.floats(0, 1))
    def cut(self, run: Started, name: str, share: float) -> None:
        self._damage(run, name, lambda path: os.truncate(path, int(path.stat().st_size * share)))

    @rule(run=runs, name=st.sampled_from(FILES), kind=st.sampled_from(["gone", *sorted(KINDS)]))
    def replace(self, run: Started, name: str, kind: str) -> None:
        def replaced(path: Path) -> None:
            if path.is_dir():
                path.rmdir()
            path.unlink(missing_ok=True)
            if kind != "gone":
                KINDS[kind](path)

        self._damage(run, name, replaced)

    @rule(run=runs, order=st.sampled_from(["stop", "terminate", "kill", "checkpoint"]))
    def order(self, run: Started, order: Order) -> None:
        self._order(run, order)

    @rule(run=runs)
    def adopt(self, run: Started) -> None:
        with suppress(LaunchError):
            self._limited(lambda: adopt(run.folder))
            run.interfered("lost")
        supervision = read_supervisor_state(run.folder.state)
        if supervision is not None and supervision.supervisor.pid > 1 and not run.damaged:
            run.supervisor = supervision.supervisor

    @rule(run=runs)
    def resume(self, run: Started) -> None:
        with suppress(LaunchError):
            self._limited(lambda: plan_restart(run.folder))

    @rule(run=runs)
    def look(self, run: Started) -> None:
        """Everything that reads a run."""

        def read() -> None:
            reader = RunReader(run.folder)
            reader.poll()
            view = reader.poll()
            diagnose(situation_of_run(run.folder, view))
            LogReader(run.folder.output_log).tail(20)

        self._limited(read)

    @rule()
    def list_all(self) -> None:
        """One line for each run, which is valid JSON."""
        for folder in list_runs(self.root / "runs"):
            row = self._limited(partial(list_run, folder, time.time()))
            json.dumps(to_builtins(row), allow_nan=False)

    @rule(run=consumes(runs))
    def delete(self, run: Started) -> None:
        run.damaged = True
        shutil.rmtree(run.folder.path, ignore_errors=True)

    @invariant()
    def no_stranger_is_touched(self) -> None:
        stat = Path(f"/proc/{self.stranger.pid}/stat").read_text().rpartition(")")[2].split()[0]
        assert stat in "SRD", "somebody signalled a process of another program"

    @invariant()
    def outcomes_are_true_and_stay(self) -> None:
        for run in self.started:
            if run.damaged:
                continue
            status = read_status(run.folder)
            if status.outcome is not None:
                allowed = run.outcomes if run.outcomes is not None else ENDS.get(run.script, set())
                assert status.outcome in allowed, (run, status)
                assert run.seen in (None, status.outcome), (run, status)
                run.seen = status.outcome
            assert not (status.kind == "ended" and is_alive(run.training)), (run, status)

    def teardown(self) -> None:
        try:
            for run in self.started:
                if not run.damaged:
                    if read_status(run.folder).live:
                        self._order(run, "kill")
                    assert not read_status(run.folder).live, run
                    status = read_status(run.folder)
                    left = [pid for pid in self._marked(run) if str(pid) not in status.sentence]
                    assert not left, ("left running and not named", left, run, status)
            self.outcomes_are_true_and_stay()
            self.no_stranger_is_touched()
        finally:
            self._clean_up()

    def _order(self, run: Started, order: Order) -> None:
        status = read_status(run.folder)
        if not status.live or status.kind in ("foreign", "broken"):
            return
        if order != "checkpoint":
            run.interfered("stopped", "failed", "lost")

        def give() -> None:
            give_order(run.folder, order)
            if order == "kill":
                wait_ended(run.folder, order, lambda sentence: None)

        with suppress(LaunchError, OSError):
            self._limited(give)

    def _marked(self, run: Started) -> list[int]:
        """Running processes of the run. Those of a deleted one whose name it has are older."""
        named, since = str(run.folder.path), run.training.start_ticks
        running = (process for process in all_processes() if process.is_running and process.start_ticks >= since)
        return [process.pid for process in running if named_run(process.pid) == named]

    def _limited(self, call: Callable[[], Result]) -> Result:
        """The result of a call, which must not hang."""
        try:
            return daemon_call(call).result(PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"{call} hangs") from None

    def _damage(self, run: Started, name: str, how: Callable[[Path], object]) -> None:
        run.damaged = True
        path = run.folder.path / name
        with suppress(OSError):
            if path.is_symlink() or path.is_fifo():
                path.unlink()
            how(path)

    def _clean_up(self) -> None:
        named = str(self.root)
        for process in list(all_processes()):
            if (named_run(process.pid) or "").startswith(named):
                os.kill(process.pid, signal.SIGKILL)
        for run in self.started:
            if is_alive(run.supervisor):
                os.kill(run.supervisor.pid, signal.SIGKILL)
        self.stranger.kill()
        self.stranger.wait(TIMEOUT_S)
        shutil.rmtree(self.root, ignore_errors=True)
