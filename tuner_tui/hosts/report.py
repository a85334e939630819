"""What a host says about itself in one line of JSON: written by `watch --json --brief` there, checked and read here.

Nothing in a line is trusted. Both sides may be of different versions: unknown keys are ignored, missing ones have
defaults.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner_tui import __version__
from tuner_tui.core.json_dataclass import from_json, to_json
from tuner_tui.core.text import drop_control
from tuner_tui.core.units import KIB, MIB
from tuner_tui.hardware.processes.process_names import program_name
from tuner_tui.hardware.sample import GpuSample, HostSample, Sample
from tuner_tui.runs.read.machine_monitor import LiveRun, MachineView, WatchedJob
from tuner_tui.runs.store.folder import list_runs
from tuner_tui.runs.store.supervisor_state import read_supervisor_state

REPORT_FORMAT = 1
MOST_JOBS, MOST_COMMAND, MOST_SENTENCE = 32, 80, 160
MOST_ENDED, ENDED_WITHIN_S, SEARCHED_RUNS = 4, 86_400.0, 12
MOST_DEPTH, MOST_ITEMS, MOST_TEXT, MOST_FIGURE = 8, 128, 400, 2.0**53


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended lately; `ended_t` in seconds since the epoch, by the host's clock."""

    run: str
    outcome: str
    sentence: str = ""
    ended_t: float | None = None


@dataclass(frozen=True, slots=True)
class HostReport(MachineView):
    """A machine as `watch --json` shows it, without processes, and the runs that ended lately.

    `format` is higher where a program of today would misread the line. `hidden_jobs` were left out of `jobs`.
    """

    ended: tuple[EndedRun, ...] = ()
    hidden_jobs: int = 0
    format: int = REPORT_FORMAT
    version: str | None = None


class BadReportError(ValueError):
    """A line that is no report; the message says why."""


def brief_line(view: MachineView, ended: Sequence[EndedRun]) -> str:
    """Return `view` as one line of JSON: rounded, without processes and without what a table does not show."""
    jobs = sorted(view.jobs, key=lambda job: (job.run is None, -(job.gpu_memory_bytes or 0), -(job.cpu_pct or 0)))
    report = HostReport(
        Sample(round(view.sample.time_s, 1), tuple(map(_brief_gpu, view.sample.gpus)), _brief_host(view.sample.host)),
        tuple(map(_brief_job, jobs[:MOST_JOBS])),
        view.problem,
        view.notes,
        tuple(ended),
        max(0, len(jobs) - MOST_JOBS),
        REPORT_FORMAT,
        __version__,
    )
    data = {**to_json(report), "format": REPORT_FORMAT}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _mib(size_bytes: int | None) -> int | None:
    return None if size_bytes is None else size_bytes // MIB * MIB


def _brief_gpu(gpu: GpuSample) -> GpuSample:
    return GpuSample(
        gpu.index,
        gpu.name,
        _whole(gpu.utilisation_pct),
        _mib(gpu.memory_used_bytes),
        gpu.memory_total_bytes,
        _whole(gpu.power_w),
        _whole(gpu.power_limit_w),
        _whole(gpu.temperature_c),
        throttle=gpu.throttle,
        lost=gpu.lost,
        age_s=_whole(gpu.age_s),
        xid=gpu.xid,
        xid_age_s=_whole(gpu.xid_age_s),
    )


def _brief_host(host: HostSample) -> HostSample:
    return HostSample(
        cpu_pct=_whole(host.cpu_pct),
        ram_used_bytes=_mib(host.ram_used_bytes),
        ram_total_bytes=host.ram_total_bytes,
        disk_free_bytes=_mib(host.disk_free_bytes),
        shm_free_bytes=_mib(host.shm_free_bytes),
    )


def _brief_job(job: WatchedJob) -> WatchedJob:
    run = job.run
    if run is not None:
        eta_s, loss = _whole(run.eta_s), None if run.loss is None else float(f"{run.loss:.4g}")
        run = replace(run, path="", training=None, supervisor=None, eta_s=eta_s, loss=loss)
    command = () if run is not None else _brief_command(job.command)
    return replace(
        job, command=command, processes=(), run=run, gpu_memory_bytes=_mib(job.gpu_memory_bytes),
        sm_pct=_whole(job.sm_pct), cpu_pct=_whole(job.cpu_pct), rss_bytes=_mib(job.rss_bytes),
        started_s=_whole(job.started_s),
    )  # fmt: skip


def _brief_command(command: Sequence[str]) -> tuple[str, ...]:
    """Return the first words, without the folders of the program and its script."""
    words: list[str] = []
    room = MOST_COMMAND
    for word in (*map(program_name, command[:2]), *command[2:]):
        words.append(word if len(word) <= room else f"{word[:room]}…")
        room -= len(word) + 1
        if room <= 0:
            break
    return tuple(words)


def recently_ended(root: Path, now_s: float) -> tuple[EndedRun, ...]:
    """Return the newest runs in `root` that ended within a day, newest first."""
    found: list[EndedRun] = []
    for folder in list_runs(root)[:SEARCHED_RUNS]:
        known = read_supervisor_state(folder.state)
        if known is None or known.outcome is None or known.ended_t is None:
            continue
        if abs(now_s - known.ended_t) < ENDED_WITHIN_S:
            found.append(EndedRun(folder.id, known.outcome, known.sentence[:MOST_SENTENCE], round(known.ended_t)))
    return tuple(found[:MOST_ENDED])


def parse_report(line: bytes) -> HostReport:
    """Read one line. Raises `BadReportError`."""
    try:
        data = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise BadReportError("it is not JSON") from None
    if not isinstance(data, dict):
        raise BadReportError("it is not an object")
    written = data.get("format", REPORT_FORMAT)
    if written != REPORT_FORMAT:
        version = drop_control(str(data.get("version")))[:20]
        raise BadReportError(f"its tuner-tui {version} is newer than this one; update this one")
    try:
        return _bounded(from_json(HostReport, _clean(data, MOST_DEPTH)))
    except ValueError as error:
        raise BadReportError(f"a value is missing or wrong ({error})") from None


def _clean(value: Any, depth: int) -> Any:
    """Return parsed JSON with bounded depth, lengths and figures, and text that cannot control a terminal.

    No figure of a report is negative: those, and what is not finite, become unknown.
    """
    if isinstance(value, str):
        return " ".join(drop_control(value[: 2 * MOST_TEXT].replace("\n", " ").replace("\t", " ")).split())[:MOST_TEXT]
    if isinstance(value, int | float):
        return value if 0 <= value <= MOST_FIGURE else None
    if depth == 0 or value is None:
        return None
    if isinstance(value, list):
        return [_clean(item, depth - 1) for item in value[:MOST_ITEMS]]
    return {key: _clean(item, depth - 1) for key, item in list(value.items())[:MOST_ITEMS]}


def _bounded(report: HostReport) -> HostReport:
    """Return the report with percentages of at most 100, so that a gauge stays in its place."""
    gpus = tuple(replace(gpu, utilisation_pct=_percent(gpu.utilisation_pct)) for gpu in report.sample.gpus)
    host = replace(report.sample.host, cpu_pct=_percent(report.sample.host.cpu_pct))
    jobs = tuple(job if job.run is None else replace(job, run=_known_run(job.run)) for job in report.jobs)
    return replace(report, sample=replace(report.sample, gpus=gpus, host=host), jobs=jobs)


def _percent(value: float | None) -> float | None:
    return None if value is None else min(100.0, value)


def _known_run(run: LiveRun) -> LiveRun:
    """Return the run with a step that is not beyond the last one."""
    if run.step is not None and run.total_steps is not None:
        return replace(run, total_steps=max(run.step, run.total_steps))
    return run


# A host without a usable tuner-tui: what its driver and kernel report, by `WATCH_SCRIPT`

MOST_CARDS, MOST_NAME = 64, 80
GPU_FIELDS = 8
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,6})?", re.ASCII)


class ProbeReader:
    """Collects the lines of one round; `missing` is `absent` or `older`, what is wrong with the host's tuner-tui."""

    def __init__(self) -> None:
        self.missing: str | None = None
        self._gpus: list[GpuSample] = []
        self._figures: dict[str, float | None] = {}

    def feed(self, line: bytes) -> HostReport | None:
        """Take a line; return the report if it was the last one of a round. Unknown lines are ignored."""
        tag, _, rest = drop_control(line.decode("utf-8", "replace")).partition(":")
        if tag == "tuner-tui" and rest in ("absent", "older"):
            self.missing = rest
        elif tag == "gpu" and len(self._gpus) < MOST_CARDS:
            gpu = _gpu(rest)
            self._gpus += [] if gpu is None else [gpu]
        elif tag == "load":
            words = rest.split()
            self._figures["load"], self._figures["cores"] = (*map(_number, words[:2]), None, None)[:2]
        elif tag in ("MemTotal", "MemAvailable"):
            self._figures[tag] = _number((rest.split() or [""])[0])
        elif tag == "end" and self.missing is not None:
            return self._take(_number(rest))
        return None

    def _take(self, time_s: float | None) -> HostReport | None:
        figures, gpus = self._figures, tuple(self._gpus)
        self._figures, self._gpus = {}, []
        if time_s is None:
            return None
        load, cores = figures.get("load"), figures.get("cores")
        total, available = (_bytes(figures.get(name), KIB) for name in ("MemTotal", "MemAvailable"))
        used = None if total is None or available is None else max(0, total - available)
        cpu_pct = min(100.0, load / cores * 100) if load is not None and cores else None
        return HostReport(Sample(time_s, gpus, HostSample(cpu_pct, (), used, total)), ())


def _gpu(rest: str) -> GpuSample | None:
    cells = [cell.strip() for cell in rest.split(",")]
    if len(cells) != GPU_FIELDS or (index := _number(cells[0])) is None:
        return None
    busy, used, total, power, limit, heat = map(_number, cells[2:])
    busy = None if busy is None else min(100.0, busy)
    return GpuSample(
        int(index), cells[1][:MOST_NAME], busy, _bytes(used, MIB), _bytes(total, MIB), power, limit, heat
    )  # fmt: skip


def _number(text: str) -> float | None:
    """Return a plain number; None for `[N/A]` and anything else."""
    return float(text) if _NUMBER.fullmatch(text.strip()) else None


def _bytes(number: float | None, unit: int) -> int | None:
    return None if number is None or not math.isfinite(number) else int(number * unit)
