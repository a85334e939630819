"""Following a tuning to its end: entries as JSON lines, or plain lines."""

from __future__ import annotations

from tuner_tui.cli.interrupts import Interrupts
from tuner_tui.cli.output import DONE, FAILED, INTERRUPTED, OUT_OF_MEMORY, TERMINATED, line, note
from tuner_tui.cli.tune_lines import TuneLines
from tuner_tui.tuning.process.trial_log import LogEntry, TrialCompleted, TuningEnded, encode_entry
from tuner_tui.tuning.process.tuning_reader import TuningReader
from tuner_tui.tuning.store import TuningFolder

LOOK_EVERY_S = 0.5


def follow_tuning(folder: TuningFolder, as_json: bool, interrupts: Interrupts) -> int:
    """Print what happens until nobody works on it any longer; the exit code says how it ended.

    An interrupt ends the trial under way and the tuning; what was measured stays.
    """
    reader, lines = TuningReader(folder), TuneLines()
    ended: TuningEnded | None = None
    last: TrialCompleted | None = None
    asked = False
    while True:
        live = folder.live  # before the entries: what an ended process wrote is then all there
        for entry in reader.entries():
            _print(entry, lines, as_json)
            ended = entry if isinstance(entry, TuningEnded) else None
            last = entry if isinstance(entry, TrialCompleted) else last
        if not live:
            return _code(folder, ended, last, interrupts)
        if not asked and (interrupts.interrupts or interrupts.terminated):
            asked = True
            note("Ending the trial; what was measured stays.")
            folder.abort()
        interrupts.wait(LOOK_EVERY_S)


def _print(entry: LogEntry, lines: TuneLines, as_json: bool) -> None:
    for text in [encode_entry(entry).decode().rstrip()] if as_json else lines.of(entry):
        line(text)


def _code(folder: TuningFolder, ended: TuningEnded | None, last: TrialCompleted | None, interrupts: Interrupts) -> int:
    if ended is None or ended.status == "aborted":
        if ended is None:
            note(f"The process that tuned is gone; its last words may be in {folder.log}.")
        note(f"`tuner-tui tune --resume {folder.id}` goes on from here.")
        if ended is None:
            return FAILED
        return TERMINATED if interrupts.terminated and not interrupts.interrupts else INTERRUPTED
    verdict = ended.verdict
    if ended.status == "finished" and verdict is not None and verdict.best is not None:
        # Time that held nothing but the start found nothing: whoever goes on with the winner has none.
        return FAILED if ended.early and ended.preset is None else DONE
    out_of_memory = last is not None and last.tried.measurement.outcome == "out-of-memory"
    return OUT_OF_MEMORY if out_of_memory else FAILED
