"""What the card, the findings and the commands state about one run agrees: each fact has one source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.cli.invoke import invoke
from tests.runs.builders import counters, record
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.situation import situation_of_run, situation_of_state
from tuner_tui.core.procfs import ProcessId, this_machine
from tuner_tui.runs.events import types as ev
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder, SupervisorState, create_folder, runs_dir, write_supervisor_state
from tuner_tui.runs.store.record import write_record
from tuner_tui.settings.job import CommandJob
from tuner_tui.ui.followed_run import read_context
from tuner_tui.view.cells import Line, plain_text
from tuner_tui.view.end_card import end_rows, end_scene
from tuner_tui.view.finding_rows import finding_rows
from tuner_tui.view.live_rows import LiveScene, live_rows

START_S, STEPS, BATCH, START_UP_S = 1_700_000_000.0, 120, 16, 5.0
SIZES = ((60, 22), (76, 24), (140, 40))
SCRIPT = "import torch\ntorch.save({}, 'out/ckpt-100.pt')\n"


class RecordedRun(Struct, frozen=True):
    """A run of `STEPS` steps of a second each: it waits `early` of each in the first half, `late` of the rest."""

    name: str
    outcome: str = "completed"
    early: float = 0.02
    late: float = 0.02
    workers: int = 0
    processes: int = 1
    total: int = STEPS
    saves: bool = False
    option: str = ""
    error: str = ""
    signal: int | None = None

    def waited_s(self, step: int) -> float:
        half = STEPS // 2
        return self.early * min(step, half) + self.late * max(0, step - half)

    @property
    def wait(self) -> float:
        return self.waited_s(STEPS) / STEPS


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.68 GiB "
    "of which 1.10 GiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by "
    "PyTorch but unallocated."
)
RUNS = (
    RecordedRun("healthy"),
    RecordedRun("input-bound", early=0.84, late=0.84),
    RecordedRun("faster at last", early=0.88, late=0.82),
    RecordedRun("after the remedy", early=0.3, late=0.3, workers=8),
    RecordedRun("stopped", "stopped", early=0.6, late=0.6, total=400),
    RecordedRun("killed after a checkpoint", "failed", total=400, saves=True, signal=9),
    RecordedRun("killed, with an option", "failed", total=400, saves=True, signal=9, option="--resume"),
    RecordedRun("out of memory", "out-of-memory", total=400, error=OOM),
    RecordedRun("two processes", early=0.5, late=0.5, processes=2),
)


def written(run: RecordedRun, folder: Path) -> RunFolder:
    """The run on disk, with what its script saved in `folder`."""
    (folder / "out").mkdir()
    (folder / "fine.py").write_text(SCRIPT)
    saved = folder / "out" / "ckpt-100.pt"
    saved.write_bytes(b"weights")
    made = create_folder(runs_dir())
    job = CommandJob(command=("python", "fine.py"), cwd=str(folder))
    settings = {"per_device_train_batch_size": BATCH, "dataloader_num_workers": run.workers}
    values = {**settings, "device": "cpu", "optimizer": "AdamW", "dataloader_persistent_workers": run.workers > 0}
    write_record(made, record(settings, id=made.id, job=job, cwd=str(folder), host=this_machine().host))
    gone = ProcessId(2**22 - 7, 1)
    end_s = START_S + START_UP_S + STEPS
    state = SupervisorState(
        this_machine(), gone, START_S, gone, end_s, exit_code=int(run.outcome != "completed"), outcome=run.outcome
    )
    write_supervisor_state(made.state, state)
    events: list[ev.Event] = [
        ev.Launched(t=START_S, pid=gone.pid),
        ev.Plan(t=START_S + 1, rank=0, total_steps=run.total),
    ]
    events.append(ev.Options(t=START_S + 1, rank=0, options=(run.option,) if run.option else ()))
    events.append(ev.InEffect(t=START_S + 2, rank=0, values=values))
    for step in range(1, STEPS + 1):
        now_s = START_S + START_UP_S + step
        counted = {
            "t": now_s,
            "data_wait_s": run.waited_s(step),
            "between_s": 0.0,
            "tokens": None,
            "padding_tokens": None,
        }
        events += [counters(step, BATCH, float(step), rank, **counted) for rank in range(run.processes)]
        if step % 10 == 0:
            events.append(ev.Metrics(t=now_s, rank=0, step=step, loss=4 - step / 50))
    if run.saves:
        events.append(ev.Saved(t=end_s - 20, rank=0, step=100, path=str(saved), resumable=True))
    if run.error:
        events.append(ev.OutOfMemory(t=end_s, rank=0, message=run.error, where="training", step=STEPS))
    if run.signal is not None:
        events.append(ev.Exited(t=end_s, signal=run.signal, oom_kill=False))
    events.append(ev.Finished(t=end_s, outcome=run.outcome, step=STEPS, total_steps=run.total, sentence="It ended."))
    made.events.write_bytes(b"".join(map(encode_event, events)))
    made.output_log.write_text(f"training\n{run.error}\n")
    return made


def plain(rows: Iterable[Line]) -> str:
    return "\n".join(map(plain_text, rows))


class Statements(Struct, frozen=True):
    """All texts on a run that has ended, and those shown while it trained."""

    ended: tuple[str, ...]
    live: tuple[str, ...]

    def numbers(self, pattern: str) -> set[tuple[str, ...]]:
        """What the groups of a pattern match in any text."""
        matches = (match.groups() for text in (*self.ended, *self.live) for match in re.finditer(pattern, text))
        return {tuple(each) for each in matches}


def statements(folder: RunFolder) -> Statements:
    view = RunReader(folder).poll()
    assert view.record is not None
    situation = situation_of_run(folder, view)
    findings = diagnose(situation)
    card = end_scene(folder.id, view, read_context(folder, view), findings)
    listed = (row for row in invoke("ps").stdout.splitlines() if row.startswith(folder.id))
    texts = [invoke("report", folder.id).stdout, invoke("diagnose", folder.id).stdout, next(listed)]
    ends = (ev.Exited, ev.Finished, ev.OutOfMemory)
    state = fold_all(RunState(), [event for event in RunReader(folder).events() if not isinstance(event, ends)])
    now_s = START_S + START_UP_S + STEPS
    shown = diagnose(replace(situation_of_state(state, view.record), inventory=situation.inventory))
    live: list[str] = []
    for width, height in SIZES:
        texts += [plain(end_rows(card, width, height)), plain(row for row, _ in finding_rows(findings, 0, width))]
        causes = {finding.cause: finding.lost_share for finding in shown}
        scene = LiveScene(now_s, state, view.history, None, (), causes=causes)
        live += [plain(live_rows(scene, width, height)), plain(row for row, _ in finding_rows(shown, 0, width))]
    return Statements(tuple(texts), tuple(live))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_numbers_of_a_run_are_the_same_wherever_they_are_shown(run: RecordedRun, tmp_path: Path) -> None:
    shown = statements(written(run, tmp_path))
    assert shown.numbers(r"\b(120) (?:of ([\d,]+) )?steps") <= {("120", str(run.total)), ("120", None)}
    assert shown.numbers(r" (120)/([\d,]+)") == {("120", str(run.total))}
    assert shown.numbers(r"([\d.]+) steps/s") <= {("1.00",), ("1",)}
    assert {float(speed) for (speed,) in shown.numbers(r"(?<!→ )\b([\d.]+) samples/s")} == {BATCH * run.processes}
    assert shown.numbers(r"([\d.]+) → 1\.6000") == {("3.8000",)}, "the first and the last loss"
    ended = {float(share) for text in shown.ended for share in re.findall(r"for data for (\d+) %", text)}
    bars = {float(share) for text in shown.ended for share in re.findall(r"! data (\d+) %", text)}
    if run.wait > 0.25 and run.outcome in ("completed", "stopped"):
        assert ended == {round(100 * run.wait)}
        # A bar of the time of the run has the start, too.
        assert bars == {round(100 * run.wait * STEPS / (STEPS + START_UP_S))}
    live = {share for text in shown.live for share in re.findall(r"data (?:for )?(\d+) %", text)}
    assert live <= {str(round(100 * run.late))}
    assert len(shown.numbers(r"workers (\d+ → \d+)")) <= 1, "the card, the findings and those while it trained"


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_run_is_resumed_everywhere_or_nowhere(run: RecordedRun, tmp_path: Path) -> None:
    shown = statements(written(run, tmp_path))
    can_resume = bool(run.saves and run.option)
    card, found = (
        any(phrase in text for text in shown.ended)
        for phrase in ("resume from the checkpoint", "resume from the newest checkpoint")
    )
    assert (card, found) == (can_resume, can_resume)
    assert any("ckpt-100.pt" in text for text in shown.ended) == run.saves
    assert any("no checkpoint of it is known" in text for text in shown.ended) == (
        run.signal is not None and not run.saves
    )
