"""Machines in any state by a seed: any runs, GPUs, findings and names, and files that hold any value."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, get_args

from msgspec.structs import replace

from tests.fakes import live_run
from tests.fakes.tuning_views import FakeTunings, aborted, at_its_end, under_way
from tests.fakes.ui_backend import INTERPRETER, FakeBackend, FakeBox, listed, opened
from tests.runs.builders import record
from tuner_tui.advice.finding import Finding, FindingSeverity, Remedy
from tuner_tui.core.procfs import ProcessId, this_machine
from tuner_tui.hardware.inventory import Cpu, Gpu, GpuProcess, HostMemory, Inventory
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events import types as ev
from tuner_tui.runs.queue.listing import QueueLine
from tuner_tui.runs.read.log_reader import LogReader
from tuner_tui.runs.read.reader import RunReader, RunRow, RunView, list_run_or_damage
from tuner_tui.runs.read.status import RunStatus, StatusKind
from tuner_tui.runs.store.codec import decode_sample, encode_event, encode_sample
from tuner_tui.runs.store.folder import RunFolder, SupervisorState, create_folder, write_supervisor_state
from tuner_tui.runs.store.record import write_record
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.ui.app import TunerApp
from tuner_tui.ui.followed_run import FollowedRun, RunDiagnoser, compare_runs, read_context
from tuner_tui.view.comparison_rows import ComparisonScene

FIGURES = (0, 1, -1, 0.0, -0.5, 1e-300, 1e18, 2**62, -(2**62), math.nan, math.inf, -math.inf, "nan", "inf", None)
OTHER_VALUES: tuple[Any, ...] = (
    "",
    "x" * 300,
    "中文" * 40,
    "[red]",
    "\x1b[2J",
    "a\nb",
    [],
    {},
    [None],
    True,
    10**400,
    "-inf",
)
NAMES = (
    "", "x", "train", "a" * 200, "中文字" * 30, "ＬＯＲＡ", "[bold]x[/]", "[/]", "a\nb\tc", "\x1b[31mred",
    "e\u0301" * 20,
    "\U0001f469\u200d\U0001f467" * 9, "\u202eabc", "one two " * 30, "$(id)", "{x}", "%s", "\u200b", "\ud7ff",
)  # fmt: skip
WORDS = ("python", "train.py", "--lr", "1e-4", "it's", 'a "b"', "x\ny", *NAMES)
OUTCOMES = ("completed", "stopped", "failed", "out-of-memory", "lost", "unheard-of")
GPU_COUNTS = (0, 1, 2, 8, 64)
STATUSES = get_args(StatusKind)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.31 GiB. GPU 0 has a total capacity of 79.6 GiB"
LINES = (
    "", "epoch 1", "{'loss': 0.5}", "Traceback (most recent call last):", '  File "train.py", line 3, in <module>', OOM,
    "ValueError: x", "\x1b[31mred\x1b[0m", "中" * 300, "a\rb\r" * 50, "\0\1\2\xff", "x" * 5000, "[/bold] [x", "\t\t|\t",
    "100%|██████████| 10/10 [00:00<00:00, 99it/s]", "\u202eabc", "Killed",
)  # fmt: skip


def with_odd_values(value: Any, chosen: Random, share: float) -> Any:
    """A JSON document in which a share of the values are odd: most often figures."""
    if isinstance(value, dict):
        return {key: with_odd_values(item, chosen, share) for key, item in value.items() if chosen.random() > share / 4}
    if isinstance(value, list):
        return [with_odd_values(item, chosen, share) for item in value]
    if chosen.random() >= share:
        return value
    if isinstance(value, str):
        return chosen.choice(NAMES)
    return chosen.choice(FIGURES if chosen.random() < 0.9 else OTHER_VALUES)


def odd_line(line: bytes, chosen: Random, share: float) -> bytes:
    """A line of a file with odd values; torn now and then."""
    data = json.loads(line)
    head = {key: data.pop(key) for key in ("v", "kind", "story", "t", "time_s") if key in data}
    changed = json.dumps({**head, **with_odd_values(data, chosen, share)}).encode()
    return (changed[: chosen.randrange(len(changed))] if chosen.random() < share / 10 else changed) + b"\n"


def story(chosen: Random, start_s: float) -> Iterator[ev.Event]:
    """The events of a run, which ends at any point."""
    ranks, rank_events = chosen.choice((0, 1, 1, 2, 8)), range(chosen.choice((0, 1, 3, 40)))
    total = chosen.choice((None, 0, 1, 10, 100_000_000))
    yield ev.Launched(t=start_s, pid=999_999, argv=tuple(chosen.choices(WORDS, k=3)))
    for rank in range(ranks):
        yield ev.Started(t=start_s + 1, rank=rank, pid=1000 + rank, world_size=ranks, torch="2.13.0", device="cuda")
    yield ev.Plan(t=start_s + 2, rank=0, total_steps=total, epochs=3.0, parameters=10**9, guessed=chosen.random() < 0.3)
    names = ("loading-model", "compiling", "training", "evaluating", "saving", "skipping", "ending", "中文")
    yield ev.Phase(t=start_s + 3, rank=0, phase=chosen.choice(names))
    effect = {"per_device_train_batch_size": 8, "optimizer": "AdamW", "precision": "bf16", "n_gpu": 2, "device": "cuda"}
    yield ev.InEffect(t=start_s + 3, rank=0, values=effect)
    waits = chosen.choice((0.0, 0.4, 0.99))
    for n in rank_events:
        now_s = start_s + 4 + n
        for rank in range(ranks):
            yield live_run.steps(now_s, 3 * n, rank, data_wait=waits)
        if chosen.random() < 0.7:
            yield ev.Metrics(
                t=now_s, rank=0, step=3 * n, loss=2.0 / (n + 1), learning_rate=1e-4, grad_norm=1.0, epoch=n / 9
            )
        if chosen.random() < 0.1:
            yield ev.Evaluated(t=now_s, rank=0, step=3 * n, metrics={"eval_loss": 1.0, chosen.choice(NAMES): 0.5})
        if chosen.random() < 0.1:
            yield ev.Checkpoint(t=now_s, rank=0, step=3 * n, path=f"/out/{chosen.choice(NAMES)}/checkpoint-{n}")
    end_s = start_s + 5 + len(rank_events)
    ends: tuple[ev.Event, ...] = (
        ev.OutOfMemory(t=end_s, rank=0, message=OOM, where="training", step=3),
        ev.Raised(t=end_s, rank=0, type="ValueError", message=chosen.choice(NAMES), where="train.py:3", step=1),
        ev.Hung(t=end_s, cause="data-loader", sentence=chosen.choice(NAMES), evidence=NAMES[:3]),
        ev.NotFinite(t=end_s, rank=0, step=5),
        ev.Profiled(t=end_s, bound="device", share=0.9, where="x", sentence=chosen.choice(NAMES)),
        ev.StopRequested(t=end_s, how="stop"),
        ev.Saved(t=end_s, rank=0, step=2, path="/out/last.pt", resumable=True),
        ev.Unobserved(t=end_s, reason=chosen.choice(NAMES)),
        ev.Exited(t=end_s, exit_code=1, signal=chosen.choice((None, 9, 11)), oom_kill=chosen.choice((None, True))),
        ev.FellBack(t=end_s, into="r002", number=1, most=2, change={"per_device_train_batch_size": 4}),
        ev.FallbackEnded(t=end_s, sentence=chosen.choice(NAMES)),
    )
    yield from chosen.sample(ends, chosen.choice((0, 0, 1, 3)))


def write_run(root: Path, chosen: Random, now_s: float) -> RunFolder:
    """A run in any state, with any content of its files."""
    folder, start_s, share = create_folder(root), now_s - 60, chosen.choice((0.0, 0.0, 0.05, 0.3))
    jobs = (BuiltinJob(model=chosen.choice(NAMES)), CommandJob(command=("python", *chosen.choices(WORDS, k=4))))
    values = {"per_device_train_batch_size": chosen.choice((1, 8, 4096)), "learning_rate": 1e-4}
    preset = chosen.choice((None, *NAMES))
    write_record(
        folder, replace(record(values, preset=preset, job=chosen.choice(jobs)), id=folder.id, created_t=start_s)
    )
    gone, outcome = ProcessId(2**22 - 7, 1), chosen.choice((None, *OUTCOMES))
    events, problems = [*story(chosen, start_s)], tuple(chosen.choices(NAMES, k=chosen.choice((0, 2))))
    if outcome is not None:
        events += [ev.Finished(t=now_s, outcome=outcome, sentence=chosen.choice(NAMES), step=7, total_steps=9)]
    write_supervisor_state(
        folder.state,
        SupervisorState(
            this_machine(), gone, start_s, gone, None if outcome is None else now_s, exit_code=1,
            outcome=outcome, sentence=chosen.choice(NAMES), problems=problems,
        ),
    )  # fmt: skip
    folder.events.write_bytes(b"".join(odd_line(encode_event(event), chosen, share) for event in events))
    shape = {"gpus": chosen.choice(GPU_COUNTS[:4]), "cores": chosen.choice((0, 1, 64))}
    samples = live_run.samples(chosen.choice((0, 1, 40)), now_s, **shape)
    folder.samples.write_bytes(b"".join(odd_line(encode_sample(sample), chosen, share) for sample in samples))
    folder.output_log.write_text("\n".join(chosen.choices(LINES, k=chosen.choice((0, 1, 30)))), errors="replace")
    if chosen.random() < 0.15:
        file = chosen.choice((folder.record, folder.state, folder.events, folder.samples, folder.output_log))
        file.write_bytes(file.read_bytes()[: chosen.randrange(400)])
    return folder


def sample_of(chosen: Random, now_s: float, gpus: int) -> Sample:
    """What is measured now, as its reader gives it."""
    line = encode_sample(live_run.sample(now_s, gpus=gpus, cores=chosen.choice((0, 1, 8, 256))))
    return decode_sample(odd_line(line, chosen, chosen.choice((0.0, 0.3, 1.0)))) or Sample(now_s)


def gpu_of(chosen: Random, gpu: Gpu) -> Gpu:
    """The GPU with unknown and odd facts."""
    odd = {
        "name": NAMES, "memory_total_bytes": (None, 0, 1, 2**62), "memory_used_bytes": (None, 0, 2**62),
        "capability": (None, (0, 0), (99, 9)), "power_limit_w": (None, 0.0), "mig": (True, None), "uuid": (None, ""),
        "processes": ((GpuProcess(5, None, chosen.choice(NAMES), "user" * 9, 200.0),),),
    }  # fmt: skip
    return replace(gpu, **{name: chosen.choice(values) for name, values in odd.items() if chosen.random() < 0.3})


def inventory_of(chosen: Random, count: int) -> Inventory:
    """A machine with that many GPUs, some facts of which are unknown."""
    inventory = live_run.inventory(count)
    if chosen.random() < 0.6:
        return inventory
    return replace(
        inventory, gpus=tuple(gpu_of(chosen, gpu) for gpu in inventory.gpus), hostname=chosen.choice(NAMES),
        cpu=Cpu(None, None, 1, 1, chosen.choice((None, 0.1))), memory=HostMemory(chosen.choice((0, 1, 2**40))),
        shm=None, disk=None, driver_version=None, cuda_version=None, container=chosen.choice((None, *NAMES)),
        logout_warning=chosen.choice((None, *NAMES)), cuda_visible_devices=chosen.choice((None, "", "0", "7", "x")),
    )  # fmt: skip


def finding_of(chosen: Random, severity: FindingSeverity) -> Finding:
    """A finding with any texts and remedies."""
    changes: tuple[dict[str, Any], ...] = ({}, {"per_device_train_batch_size": 4}, {"precision": "fp16", "seed": 1})
    remedies = [
        Remedy(
            chosen.choice(NAMES), chosen.choice(NAMES), chosen.choice(changes), chosen.choice(NAMES),
            chosen.choice(NAMES), chosen.choice(NAMES), env=chosen.choice(({}, {"X": "[y]"})),
            command=chosen.choice(((), ("python", "x.py"))), batch_note=chosen.choice(NAMES),
        )
        for _ in range(chosen.choice((0, 1, 5)))
    ]  # fmt: skip
    evidence = tuple(chosen.choices(NAMES, k=chosen.choice((0, 3))))
    cause = chosen.choice(("data-wait", "gpu-oom", "unheard-of"))
    return Finding(
        cause=cause, severity=severity, sentence=chosen.choice(NAMES), evidence=evidence, confidence="likely",
        where=chosen.choice(("", "training", *NAMES)), remedies=tuple(remedies),
    )  # fmt: skip


@dataclass
class OneView(RunReader):
    """Reads the same again and again."""

    view: RunView

    def poll(self, with_samples: bool = True) -> RunView:
        return self.view


class AnyMachine:
    """A machine by a seed, and the screen over it. Its runs are in `root`."""

    def __init__(self, seed: int, root: Path) -> None:
        self.chosen = chosen = Random(seed)
        self.now_s = time.time()
        gpus = chosen.choice(GPU_COUNTS)
        self.runs = [write_run(root, chosen, self.now_s) for _ in range(chosen.choice((0, 1, 3)))]
        severities = [level for level in get_args(FindingSeverity) if chosen.random() < 0.4]
        self.findings = tuple(finding_of(chosen, level) for level in severities)
        self.diagnoses = chosen.random() < 0.5
        self.status = chosen.choice((None, *STATUSES))
        python = replace(INTERPRETER, packages=chosen.choice((INTERPRETER.packages, {}, {"torch": "x"})))
        tunings = [make() for make in (under_way, at_its_end, aborted) if chosen.random() < 0.4]
        views = {f"t{n:03d}": replace(view, title=chosen.choice(NAMES)) for n, view in enumerate(tunings)}
        self.box = FakeBox(
            opened=opened(chosen.choice((None, *NAMES)), per_device_train_batch_size=chosen.choice((1, 16, 65536))),
            presets=[listed(chosen.choice(NAMES) or "x", chosen.choice(NAMES)) for _ in range(chosen.choice((0, 3)))],
            inventory=inventory_of(chosen, gpus), interpreter=python, sample=sample_of(chosen, self.now_s, gpus),
            launch_error=chosen.choice((None, *NAMES)), shortage=chosen.choice(("", *NAMES)), lacking=self.findings[:1],
            tuner=FakeTunings(views, seen=chosen.choice((None, *views.values()))),
            queue=tuple(
                QueueLine(f"r{n:03d}", f"/runs/r{n:03d}", "waiting", chosen.choice(NAMES), chosen.choice(NAMES))
                for n in range(chosen.choice((0, 1, 30)))
            ),
        )  # fmt: skip

    def app(self) -> TunerApp:
        """The screen over the machine, which follows the newest run."""
        chosen = self.chosen
        options = {"theme": chosen.choice(("dark", "light", "sixteen")), "colour": chosen.random() < 0.7}
        backend = FakeBackend(
            self.box, follow_run=self._follow, list_runs=self._list, watch_recent=self._watch,
            compare_runs=self._compare,
        )  # fmt: skip
        folder = self.runs[-1].path if self.runs else None
        return self.box.app(backend, folder, ascii_only=chosen.random() < 0.3, **options)

    def _follow(self, folder: Path) -> FollowedRun:
        run = RunFolder(folder)
        if not run.record.exists():  # that of a restart, which no box has made
            run = next(iter(self.runs), run)
        view = RunReader(run).poll()
        if self.status is not None:
            alive = self.status == "running"
            view = replace(
                view, status=RunStatus(self.status, "It is so.", pid=5 if alive else None, training_alive=alive)
            )
        diagnose = RunDiagnoser(run)
        return FollowedRun(
            OneView(view), LogReader(run.output_log),
            lambda view, inventory: diagnose(view, inventory) if self.diagnoses else self.findings,
            read_context=partial(read_context, run),
        )  # fmt: skip

    def _list(self) -> Sequence[RunRow]:
        return [list_run_or_damage(folder, self.now_s) for folder in self.runs]

    def _watch(self) -> Iterator[tuple[RunRow, ...]]:
        while True:
            yield tuple(self._list())

    def _compare(self, first: Path, second: Path) -> Iterator[ComparisonScene]:
        return compare_runs(RunFolder(first), RunFolder(second))
