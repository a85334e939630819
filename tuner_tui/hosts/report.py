"""What a host prints, checked: JSON lines of `tuner-tui watch --json`, or the table of `nvidia-smi`.

Nothing in a line is trusted. Both sides may be of different versions: unknown keys are ignored, missing ones have
defaults.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tuner_tui.core.json_dataclass import from_json
from tuner_tui.core.text import drop_control
from tuner_tui.core.units import MIB, format_size
from tuner_tui.hardware.sample import GpuSample, HostSample, Sample
from tuner_tui.runs.read.machine_monitor import MachineView

SMI_FIELDS = "index,name,utilization.gpu,memory.used,memory.total,power.draw,power.limit,temperature.gpu"
MAX_LINE_BYTES, MAX_BURST_BYTES, MAX_BYTES_PER_S = 1 << 20, 4 << 20, 1 << 19
"""A machine with eight GPUs and hundreds of loader workers prints about 100 kB a second."""
MAX_BAD_LINES = 50
"""In a row: greetings of the shell and messages of ssh are not reports either."""
MAX_DEPTH, MAX_ITEMS, MAX_TEXT, MAX_FIGURE = 8, 128, 400, 2.0**53
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,6})?", re.ASCII)


class BadReportError(ValueError):
    """What a host prints is no report; the message says why."""


class ReportReader:
    """Reads the output of one connection; `clock` only goes forward. `message` is the end of all other text in it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start_s = clock()
        self._received = 0
        self._rest = b""
        self._text: deque[str] = deque(maxlen=2)
        self._bad_lines = 0
        self._gpus: dict[int, GpuSample] = {}

    @property
    def message(self) -> str:
        return " ".join(self._text)

    def feed(self, data: bytes) -> Iterator[MachineView]:
        """Yield the machine for each report that `data` completes. Raises `BadReportError`."""
        self._received += len(data)
        allowed = MAX_BURST_BYTES + MAX_BYTES_PER_S * (self._clock() - self._start_s)
        if self._received > allowed:
            raise BadReportError(f"it sent more than {format_size(allowed)}")
        *lines, self._rest = (self._rest + data).split(b"\n")
        if max(map(len, (*lines, self._rest))) > MAX_LINE_BYTES:
            raise BadReportError(f"it sent a line of more than {format_size(MAX_LINE_BYTES)}")
        for line in lines:
            yield from self._read(line.decode("utf-8", "replace"))

    def _read(self, text: str) -> Iterator[MachineView]:
        gpu = None
        try:
            if text.startswith("{"):
                yield parse_machine(text)
            else:
                gpu = parse_smi_line(text)
        except ValueError:
            clean = _clean(text)[: MAX_TEXT // 2]
            self._text += [clean] if clean else []
            self._bad_lines += 1
            if self._bad_lines > MAX_BAD_LINES:
                raise BadReportError(f"it sends no reports: {clean}") from None
            return
        self._bad_lines = 0
        if gpu is None:
            return
        if gpu.index in self._gpus:  # nvidia-smi begins its table anew: the last one is whole
            yield MachineView(Sample(time.time(), tuple(self._gpus.values()), HostSample()), ())
            self._gpus = {}
        if len(self._gpus) < MAX_ITEMS:
            self._gpus[gpu.index] = gpu


def parse_machine(text: str) -> MachineView:
    """Read one JSON line. Raises `ValueError`."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    machine = from_json(MachineView, _clean(data, MAX_DEPTH))
    # What a gauge shows must not leave its place.
    gpus = tuple(replace(gpu, utilisation_pct=_percent(gpu.utilisation_pct)) for gpu in machine.sample.gpus)
    host = replace(machine.sample.host, cpu_pct=_percent(machine.sample.host.cpu_pct))
    return replace(machine, sample=replace(machine.sample, gpus=gpus, host=host))


def parse_smi_line(text: str) -> GpuSample:
    """Read one line of `nvidia-smi --query-gpu` with `SMI_FIELDS`, without units. Raises `ValueError`."""
    cells = [cell.strip() for cell in text.split(",")]
    if len(cells) != SMI_FIELDS.count(",") + 1 or not cells[0].isdecimal():
        raise ValueError("not a GPU")
    busy, used, total, power, limit, temperature = (
        float(cell) if _NUMBER.fullmatch(cell) else None for cell in cells[2:]
    )
    used, total = (None if mib is None else int(mib * MIB) for mib in (used, total))
    name = _clean(cells[1])
    return GpuSample(int(cells[0][:4]), name, _percent(busy), used, total, power, limit, temperature)


def _clean(value: Any, depth: int = 1) -> Any:
    """Return parsed JSON with bounded depth, lengths and figures, and text that cannot control a terminal.

    No figure of a report is negative: those, and what is not finite, become unknown.
    """
    if isinstance(value, str):
        return " ".join(drop_control(value[: 2 * MAX_TEXT].replace("\n", " ").replace("\t", " ")).split())[:MAX_TEXT]
    if isinstance(value, int | float):
        return value if 0 <= value <= MAX_FIGURE else None
    if depth == 0 or value is None:
        return None
    if isinstance(value, list):
        return [_clean(item, depth - 1) for item in value[:MAX_ITEMS]]
    return {key: _clean(item, depth - 1) for key, item in list(value.items())[:MAX_ITEMS]}


def _percent(value: float | None) -> float | None:
    return None if value is None else min(100.0, value)
