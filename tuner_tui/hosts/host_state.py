"""The state of one host: what ssh and the host said so far, when to try again, and what to do about it."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from tuner_tui import __version__
from tuner_tui.core.text import drop_control
from tuner_tui.core.units import GIB, format_duration, format_size
from tuner_tui.hardware.sample import GpuSample
from tuner_tui.hosts.address import HostAddress
from tuner_tui.hosts.report import BadReportError, HostReport, ProbeReader, parse_report
from tuner_tui.hosts.ssh import StreamEnd

STALE_S, SILENT_S = 20.0, 60.0
"""Without a report for so long, figures are marked as old; the connection is given up."""
SLOW_S, ANSWER_S = 15.0, 45.0
"""For the connection, authentication, the start of Python and the first sample."""
FIRST_RETRY_S, LAST_RETRY_S, PERSON_RETRY_S = 2.0, 60.0, 300.0
"""Failures that only a person can end are not repeated often: a host may lock out who fails to log in."""
CLOCK_TOLERANCE_S = 10.0
MOST_LINE, BURST_BYTES, BYTES_PER_S = 64 * 1024, 192 * 1024, 8 * 1024
"""A host that sends more is cut off. Reports are kept to 2 kB/s by those who write them."""
CLOCK_REPORTS, RATE_REPORTS = 5, 12
MOST_BAD_LINES = 20
SHOWN_MESSAGE = 300


class HostState(StrEnum):
    """How a host is; the value is the word for it."""

    CONNECTING = "connecting"
    LIVE = "live"
    STALE = "stale"
    ABSENT = "no tuner-tui"
    OLDER = "old tuner-tui"
    PASSWORD = "needs login"  # noqa: S105  a word for a state
    KEY_CHANGED = "key changed"
    KEY_UNKNOWN = "key unknown"
    UNREACHABLE = "unreachable"
    REFUSED = "bad data"


PERSON_NEEDED = frozenset({HostState.PASSWORD, HostState.KEY_CHANGED, HostState.KEY_UNKNOWN, HostState.REFUSED})
_FAILURES: tuple[tuple[re.Pattern[str], HostState, str, str], ...] = (
    (
        re.compile(r"REVOKED HOST KEY|marked as revoked", re.IGNORECASE),
        HostState.KEY_CHANGED,
        "Its host key was revoked: whoever has that key may not be the host. Nothing was sent.",
        "",
    ),
    (
        re.compile(r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key for \S+ has changed", re.IGNORECASE),
        HostState.KEY_CHANGED,
        "Its host key is not the known one: another machine answers, or it was installed anew. Nothing was sent.",
        "Only if it was installed anew: ssh-keygen -R {name}",
    ),
    (
        re.compile(r"Host key verification failed|No \S+ host key is known", re.IGNORECASE),
        HostState.KEY_UNKNOWN,
        "Its host key is not known yet.",
        "To compare and accept it: ssh {name}",
    ),
    (
        re.compile(r"Permission denied \([^)]*(?:password|keyboard-interactive)", re.IGNORECASE),
        HostState.PASSWORD,
        "It asks for a password, which is never answered here.",
        "Enter logs in on this terminal; or set up a key: ssh-copy-id {name}",
    ),
    (
        re.compile(r"Permission denied|Too many authentication failures|no mutual signature", re.IGNORECASE),
        HostState.PASSWORD,
        "It accepts none of your keys.",
        "ssh-copy-id {name}, or name the key in ~/.ssh/config",
    ),
)
_FINGERPRINT = re.compile(r"The fingerprint for the \S+ key sent by the remote host is \S+")


@dataclass(frozen=True, slots=True)
class HostView:
    """A host at one moment. `sentence` says what is wrong with it, `advice` what to do; both may be empty.

    `report` is the newest one, also of a host that no longer answers; `age_s` is its age where that matters.
    `clock_offset_s` is how far its clock is ahead of this machine's.
    """

    name: str
    state: HostState = HostState.CONNECTING
    sentence: str = ""
    advice: str = ""
    report: HostReport | None = None
    age_s: float | None = None
    clock_offset_s: float | None = None
    bytes_per_s: float | None = None

    @property
    def current(self) -> HostReport | None:
        """The report, if its figures are those of now."""
        return self.report if self.state in (HostState.LIVE, HostState.ABSENT, HostState.OLDER) else None


class HostTracker:
    """Follows one host from what arrives; the times passed in are of a clock that only goes forward."""

    def __init__(self, host: HostAddress, now_s: float) -> None:
        self.host = host
        self._state = HostState.CONNECTING
        self._sentence = self._advice = ""
        self._report: HostReport | None = None
        self._heard_s = self._began_s = now_s
        self._failures = 0
        self._offsets: deque[float] = deque(maxlen=CLOCK_REPORTS)
        self._arrivals: deque[tuple[float, int]] = deque(maxlen=RATE_REPORTS)
        self._lines = LineReader(now_s)
        self._probe = ProbeReader()
        self._bad_lines = 0

    def begin(self, now_s: float) -> None:
        """A connection is tried."""
        self._began_s = now_s
        self._lines, self._probe, self._bad_lines = LineReader(now_s), ProbeReader(), 0
        self._arrivals.clear()
        if self._report is None and self._failures == 0:
            self._state = HostState.CONNECTING

    def feed(self, data: bytes, received: int, now_s: float, wall_s: float) -> bool:
        """Take bytes of `received` in all so far; False if the host is to be cut off."""
        try:
            for line in self._lines.feed(data, received, now_s):
                self._take(line, received, now_s, wall_s)
        except BadReportError as error:
            self._fail(HostState.REFUSED, f"It was cut off: {error}.", "")
            return False
        return True

    def _take(self, line: bytes, received: int, now_s: float, wall_s: float) -> None:
        if line.startswith(b"{"):
            self._show(parse_report(line), HostState.LIVE, received, now_s, wall_s)
            return
        found = self._probe.feed(line)
        if found is not None:
            state = HostState.OLDER if self._probe.missing == "older" else HostState.ABSENT
            self._show(found, state, received, now_s, wall_s)
        elif self._probe.missing is None and line.strip():  # a greeting of its shell's start-up files
            self._bad_lines += 1
            if self._bad_lines > MOST_BAD_LINES:
                raise BadReportError("it sends text instead of reports")

    def _show(self, report: HostReport, state: HostState, received: int, now_s: float, wall_s: float) -> None:
        self._report, self._heard_s, self._failures = report, now_s, 0
        self._offsets.append(report.sample.time_s - wall_s)
        self._arrivals.append((now_s, received))
        self._state, self._sentence, self._advice = state, "", ""
        if state is HostState.ABSENT:
            self._sentence = "It has no tuner-tui: only its GPUs and load are shown."
            self._advice = (
                f"To install it there: ssh {self.host.name} python3 -m pip install --user tuner-tui=={__version__}"
                f"   or name it: {self.host.name}=PATH"
            )
        elif state is HostState.OLDER:
            self._sentence = "Its tuner-tui is older than this one: only its GPUs and load are shown."
            self._advice = (
                f"To update it: ssh {self.host.name} python3 -m pip install --user --upgrade tuner-tui=={__version__}"
            )

    def end(self, end: StreamEnd) -> None:
        """The connection has ended by itself."""
        message = " ".join(drop_control(end.message.replace("\n", " ")).split())
        for pattern, state, sentence, advice in _FAILURES:
            if pattern.search(message):
                sent = _FINGERPRINT.search(message) if state is HostState.KEY_CHANGED else None
                detail = "" if sent is None else f" ssh: {sent[0][:SHOWN_MESSAGE]}"
                self._fail(state, sentence + detail, advice.format(name=self.host.name))
                return
        last = (end.message.strip().splitlines() or [""])[-1]
        reason = " ".join(drop_control(last).split())[:SHOWN_MESSAGE]
        self._fail(HostState.UNREACHABLE, reason or f"The connection ended (code {end.code}).", "")

    def give_up(self, now_s: float) -> bool:
        """True if the connection has been silent for too long; it is then noted."""
        first = not self._arrivals
        if now_s - (self._began_s if first else self._heard_s) < (ANSWER_S if first else SILENT_S):
            return False
        waited = format_duration(ANSWER_S if first else SILENT_S)
        self._fail(HostState.UNREACHABLE, f"It is connected but has said nothing for {waited}.", "")
        return True

    def _fail(self, state: HostState, sentence: str, advice: str) -> None:
        self._failures += 1
        self._state, self._sentence, self._advice = state, sentence, advice

    @property
    def retry_s(self) -> float:
        """Seconds to wait before the next attempt."""
        if self._state in PERSON_NEEDED:
            return PERSON_RETRY_S
        return min(LAST_RETRY_S, FIRST_RETRY_S * 2.0 ** (max(1, self._failures) - 1))

    def view(self, now_s: float) -> HostView:
        """The host as it is to be shown at `now_s`."""
        age_s = None if self._report is None else now_s - self._heard_s
        state, sentence = self._state, self._sentence
        if age_s is not None and age_s > STALE_S and self._state in (HostState.LIVE, HostState.ABSENT, HostState.OLDER):
            state = HostState.STALE
            sentence = "No news: the figures are old."
        if self._state is HostState.CONNECTING and now_s - self._began_s > SLOW_S:
            sentence = "It takes long to answer."
        # A report is always late by its time on the way, never early: the largest offset is nearest to the clock's own.
        offset_s = max(self._offsets) if self._offsets else None
        if state is HostState.LIVE and offset_s is not None and abs(offset_s) > CLOCK_TOLERANCE_S:
            way = "ahead" if offset_s > 0 else "behind"
            sentence = f"Its clock is {format_duration(abs(offset_s))} {way}; ages are by its own clock."
        fresh = state in (HostState.LIVE, HostState.ABSENT, HostState.OLDER)
        return HostView(
            self.host.name,
            state,
            sentence,
            self._advice if state is self._state else "",
            self._report,
            None if fresh or age_s is None else age_s,
            None if offset_s is None else round(offset_s, 1),
            self._rate(),
        )

    def _rate(self) -> float | None:
        if len(self._arrivals) < 2:
            return None
        (first_s, first), (last_s, last) = self._arrivals[0], self._arrivals[-1]
        return round((last - first) / (last_s - first_s), 1) if last_s > first_s else None


class LineReader:
    """Splits what a host sends into lines. Raises `BadReportError` for a line too long, or more than it may send."""

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._rest = b""

    def feed(self, data: bytes, received: int, now_s: float) -> list[bytes]:
        """Return the lines that `data` completes; `received` are all bytes so far, standard error included."""
        # A token bucket: the first reports and a banner may come at once, after that the mean rate counts.
        allowed = BURST_BYTES + BYTES_PER_S * (now_s - self._began_s)
        if received > allowed:
            raise BadReportError(f"it sent more than {format_size(allowed)}")
        *lines, self._rest = (self._rest + data).split(b"\n")
        if max(map(len, (*lines, self._rest))) > MOST_LINE:
            raise BadReportError(f"it sent a line of more than {format_size(MOST_LINE)}")
        return lines


# What is free, and what is wrong, in a few words

FREE_BYTES, FREE_PCT = GIB, 10.0
"""A card with less in use and without a job is free: the driver itself takes some hundred MiB."""
NEARLY_FULL, LOW_DISK_BYTES = 0.95, 5 * GIB


def free_gpus(report: HostReport) -> tuple[int, ...]:
    """Return the indices of the GPUs that nothing uses."""
    taken = {index for job in report.jobs for index in job.gpus}
    return tuple(gpu.index for gpu in report.sample.gpus if gpu.index not in taken and _is_idle(gpu))


def _is_idle(gpu: GpuSample) -> bool:
    if gpu.lost or gpu.memory_used_bytes is None:
        return False
    return gpu.memory_used_bytes < FREE_BYTES and (gpu.utilisation_pct or 0.0) < FREE_PCT


def describe_free(report: HostReport) -> str:
    """Return such as `3 of 8 GPUs free`; empty for a host without GPUs."""
    number = len(report.sample.gpus)
    return f"{len(free_gpus(report))} of {number} GPU{'s' if number > 1 else ''} free" if number else ""


def describe_problems(view: HostView) -> list[str]:
    """Return what is wrong with the host itself, and the runs that stall; the GPUs' problems are in their rows."""
    found = [view.sentence] if view.sentence else []
    report = view.current
    if report is None:
        return found
    host = report.sample.host
    if host.ram_used_bytes is not None and host.ram_total_bytes:
        share = host.ram_used_bytes / host.ram_total_bytes
        found += ["Its memory is nearly full."] if share > NEARLY_FULL else []
    if host.disk_free_bytes is not None and host.disk_free_bytes < LOW_DISK_BYTES:
        found.append(f"The disk of its runs has {format_size(host.disk_free_bytes)} left.")
    found += [f"{job.run.run} is stalled." for job in report.jobs if job.run is not None and job.run.phase == "stalled"]
    return found


def summarize(views: tuple[HostView, ...]) -> str:
    """Return such as `3 of 4 hosts live · 5 of 12 GPUs free`."""
    reports = [view.current for view in views]
    known = [report for report in reports if report is not None]
    gpus = sum(len(report.sample.gpus) for report in known)
    free = sum(len(free_gpus(report)) for report in known)
    hosts = f"{len(known)} of {len(views)} host{'s' if len(views) > 1 else ''} answer{'s' if len(known) == 1 else ''}"
    return f"{hosts} · {free} of {gpus} GPUs free" if gpus else hosts
