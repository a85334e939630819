"""Why a run ended badly: one cause, from the exit, the kernel's evidence, the observer and the end of the output."""

from __future__ import annotations

from tuner_tui.advice.finding import Finding
from tuner_tui.advice.remedies import remedies_for
from tuner_tui.advice.situation import Situation

WHERE = {"evaluating": "evaluation", "saving": "checkpoint"}


def crash_findings(situation: Situation) -> tuple[Finding, ...]:
    """At most one finding: the cause of the failure. Empty for a run that lives, ended well or was stopped."""
    state = situation.state
    if state.outcome in {"completed", "stopped"}:
        return ()
    if state.out_of_memory is not None and state.finished is not None:
        where = WHERE.get(state.out_of_memory.where or "", state.out_of_memory.where)
        return (_finding("gpu-oom", "Out of memory", (state.out_of_memory.message,), where, situation),)
    if state.exited is not None and (state.exited.exit_code or state.exited.signal):
        last = tuple(line for line in situation.log if line.strip())[-3:]
        return (_finding("unknown", "The training failed", last, None, situation),)
    return ()


def _finding(
    cause: str, sentence: str, evidence: tuple[str, ...], where: str | None, situation: Situation
) -> Finding:
    return Finding(
        cause, "failed", sentence, evidence, "certain", where, remedies_for(cause, situation, where)
    )
