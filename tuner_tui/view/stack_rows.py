"""Where the processes of a run are, as rows: the answer first, then each process with its calls."""

from __future__ import annotations

from collections.abc import Iterable

from tuner_tui.core.units import format_percent
from tuner_tui.inspection.hang import find_activity
from tuner_tui.inspection.process_dump import ProcessDump, ThreadStack
from tuner_tui.runs.supervise.stall import Inspection
from tuner_tui.view.cells import WARN, Line, TextSpan, line, shorten, wrapped_rows

MAX_FRAMES = 12
"""Calls shown of a thread; those in between are counted."""


def stack_rows(inspection: Inspection, width: int) -> list[Line]:
    """Return the rows of all processes. Threads that are only in libraries are counted, not shown."""
    hang = inspection.hang
    rows = wrapped_rows(f"{WARN} " * hang.is_certain + hang.sentence, width, "bad" if hang.is_certain else "")
    rows += [row for fact in hang.evidence for row in wrapped_rows(f"· {fact}", width, "dim")]
    if inspection.elsewhere:
        ranks = ", ".join(map(str, inspection.elsewhere))
        rows.append(line(TextSpan(shorten(f"· ranks {ranks} run on other machines and were not asked", width), "dim")))
    for process in sorted(inspection.processes, key=lambda each: (each.rank is None, each.rank or 0, each.pid)):
        rows.append(())
        rows += _process_rows(process, width)
    return rows


def _process_rows(process: ProcessDump, width: int) -> Iterable[Line]:
    name = f"process {process.pid} ({process.name})" if process.rank is None else f"rank {process.rank}"
    doing = process.silence or find_activity(process).phrase
    pid = "" if process.rank is None else f" · pid {process.pid}"
    load = f"{format_percent(process.cpu_share * 100)} CPU"
    yield line(TextSpan(name, "strong"), shorten(f"{pid} · {doing} · {load}", width))
    yield from _thread_rows((process.in_data_set() if process.is_loader_worker else process).main, width)
    others = process.threads[1:]
    of_program = [stack for stack in others if stack.own_frame is not None]
    for stack in of_program:
        yield line(TextSpan("  another thread", "dim"))
        yield from _thread_rows(stack, width)
    if len(others) > len(of_program):
        yield line(TextSpan(f"  {len(others) - len(of_program)} more threads in libraries", "dim"))


def _thread_rows(stack: ThreadStack, width: int) -> Iterable[Line]:
    frames = stack.frames
    shown = [n for n, frame in enumerate(frames) if n < 2 or not frame.is_library][:MAX_FRAMES]
    before = -1
    for number in shown:
        if number > before + 1:
            yield line(TextSpan(f"    … {number - before - 1} calls in libraries", "dim"))
        frame, before = frames[number], number
        yield line("    ", TextSpan(shorten(str(frame), width - 4), "dim" if frame.is_library else ""))
    if frames and before < len(frames) - 1:
        yield line(TextSpan(f"    … {len(frames) - 1 - before} calls above", "dim"))
