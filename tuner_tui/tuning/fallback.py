"""The automatic fallback after out of memory: the smaller settings, and the detached process that restarts with them.

The training stays the same if every optimizer step sees the same samples and computes the same up to rounding. So the
effective batch is held exactly; shorter sequences, adapters or another optimizer are left to the user.

The process, `python -m tuner_tui.tuning.fallback DIR`, waits for the end of the run in DIR. If that is out of memory,
it launches the next attempt, which resumes the lineage, records this in the events of the ended run, and waits for the
next attempt in turn. It holds `fallback.lock` until it has decided, so that followers know that the run may continue.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.advice.batch_scaling import smaller_micro_batches
from tuner_tui.advice.crash.findings import crash_findings
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.advice.findings.non_finite import LOSS_IGNORES_ACCUMULATION
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.settings_check import unreachable_settings
from tuner_tui.advice.situation import Situation, chosen_settings, effective_settings, situation_of_run
from tuner_tui.core.file_locks import acquire_lock, wait_unlocked
from tuner_tui.core.line_files import append_line
from tuner_tui.core.redaction import redact_text
from tuner_tui.runs.events.types import FallbackEnded, FellBack
from tuner_tui.runs.launch.command import MEMORY_HISTORY, LaunchError
from tuner_tui.runs.launch.restart import plan_restart, restart
from tuner_tui.runs.launch.start import ProcessSpec, adopt, start_supervisor
from tuner_tui.runs.log_parsing.fatal_failure import OUT_OF_MEMORY_CAUSES
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.runs.supervise.run_processes import detach
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import FIELDS, Resolved, Settings, Value, format_value
from tuner_tui.tuning.search.space import ACCUMULATION, CHECKPOINTING, MICRO, PERSISTENT, PIN, PREFETCH, WORKERS

EVAL_BATCH = "per_device_eval_batch_size"
SAME_TRAINING = frozenset({MICRO, ACCUMULATION, CHECKPOINTING, EVAL_BATCH, WORKERS, PREFETCH, PERSISTENT, PIN})
"""Fields that do not change the result of the training."""


class FallbackStep(Struct, frozen=True):
    """Continue with `resolved`, which differs by `change` from what the run had."""

    resolved: Resolved
    change: Mapping[str, Value]
    number: int
    sentence: str


def decide_fallback(
    situation: Situation,
    resolved: Resolved,
    max_steps: int,
    used: int = 0,
    unreachable: frozenset[str] = frozenset(),
    run: str | None = None,
) -> FallbackStep | str | None:
    """Return what follows the ended `run` of `situation`, which was launched with `resolved`.

    None if the run did not run out of memory, a sentence if no restart helps. At most `max_steps` restarts are made, of
    which `used` were made already.
    Remedies that change fields in `unreachable` are left out, because these do not reach the training.
    """
    finding = out_of_memory_finding(situation)
    if finding is None:
        return None
    if used >= max_steps:
        retries = "1 retry" if max_steps == 1 else f"{max_steps} retries"
        return f"Out of memory again after {retries}, the most allowed."
    in_effect = situation.state.in_effect
    present = effective_settings(resolved.settings, chosen_settings(resolved, situation.job), in_effect)
    remedies = remedies_for(finding.cause, replace(situation, settings=present), finding.where)
    usable = (candidate for candidate in remedies if _is_usable(candidate, finding, situation, present, unreachable))
    remedy = next(usable, None)
    where = f" ({finding.where})" if finding.where else ""
    if remedy is None:
        return f"Out of memory{where}, and {_nothing_left(remedies, situation)}."
    change = _at_least_halved(remedy.change, present) if used else remedy.change
    origin = replace(remedy, change=change).origin(finding.cause, run, present, {})
    after = replace(
        resolved, settings=present.changed(**change), origins={**resolved.origins, **dict.fromkeys(change, origin)}
    )
    description = describe_change(change, present, after.settings)
    return FallbackStep(after, change, used + 1, f"Out of memory{where}: {description}")


def out_of_memory_finding(situation: Situation) -> Finding | None:
    """Return the finding that the run ran out of memory, or None. A bare SIGKILL is not enough evidence."""
    state = situation.state
    if state.outcome not in ("out-of-memory", "failed", "lost"):
        return None
    for finding in crash_findings(situation):
        if finding.cause in OUT_OF_MEMORY_CAUSES and finding.confidence != "possible":
            return finding
    if state.outcome != "out-of-memory":
        return None
    return Finding("gpu-oom", "failed", "The run ended out of memory", (), "likely")


def describe_change(change: Mapping[str, Value], before: Settings, after: Settings) -> str:
    """Return the change as text, with the effective batch if the micro batch changes."""
    parts = []
    for name, value in change.items():
        now, then = (format_value(name, content) or "none" for content in (getattr(before, name), value))
        parts.append(f"{FIELDS[name].label} {now} → {then}")
    held = f" (effective batch stays {after.effective_batch()} per device)" if MICRO in change else ""
    return ", ".join(parts) + held


def _at_least_halved(change: Mapping[str, Value], present: Settings) -> Mapping[str, Value]:
    """The change with at most half the micro batch, because every restart costs a start and the steps lost."""
    if MICRO not in change:
        return change
    micro, accumulation = present.per_device_train_batch_size, present.gradient_accumulation_steps
    half = next((size for size in smaller_micro_batches(micro, accumulation) if 2 * size <= micro), None)
    return change if half is None else {**change, MICRO: half, ACCUMULATION: micro * accumulation // half}


def _is_usable(
    remedy: Remedy, finding: Finding, situation: Situation, present: Settings, unreachable: frozenset[str]
) -> bool:
    names = remedy.change.keys()
    if not names or not names <= SAME_TRAINING or names & unreachable:
        return False
    if EVAL_BATCH in names and finding.where not in ("evaluation", None):
        return False
    return MICRO not in names or _holds_effective_batch(remedy, situation, present)


def _holds_effective_batch(remedy: Remedy, situation: Situation, present: Settings) -> bool:
    """Whether the effective batch, the steps of an epoch and the gradient stay exactly the same."""
    state, in_effect = situation.state, situation.state.in_effect
    if present.changed(**remedy.change).effective_batch() != present.effective_batch():
        return False
    # Without the last incomplete batch, another micro batch drops other samples.
    if in_effect.get("dataloader_drop_last") or in_effect.get(LOSS_IGNORES_ACCUMULATION):
        return False
    adjustable = state.accepts_orders and MICRO in in_effect and ACCUMULATION in in_effect
    return isinstance(situation.job, BuiltinJob) or adjustable


def _nothing_left(remedies: tuple[Remedy, ...], situation: Situation) -> str:
    manual = [remedy.title for remedy in remedies if not remedy.change or not remedy.change.keys() <= SAME_TRAINING]
    sentence = "no other change keeps the training the same"
    if situation.state.in_effect.get(LOSS_IGNORES_ACCUMULATION):
        sentence += " (this model's gradients would grow with accumulation)"
    return f"{sentence}; by hand: {', '.join(manual[:3])}" if manual else sentence


def main(argv: list[str]) -> None:
    """Watch the run in the folder `argv[0]`."""
    folder = RunFolder(Path(argv[0]))
    spec, lock = detach(lambda data: (ProcessSpec.load(data), acquire_lock(folder.fallback_lock, needed=False)))
    # The lock of the next attempt is taken before the event that names it, so that followers find it held.
    for used in range(spec.job.fallback + 1):
        wait_until_ended(folder)
        event = continue_run(folder, spec, used)
        following = RunFolder(folder.path.with_name(event.into)) if isinstance(event, FellBack) else None
        next_lock = None if following is None else acquire_lock(following.fallback_lock, needed=False)
        if event is not None:
            try:
                append_line(folder.events, encode_event(replace(event, sentence=redact_text(event.sentence))))
            except OSError as error:  # a full disk does not stop the next attempt
                sys.stderr.write(f"{folder.events}: {error.strerror}\n")
        os.close(lock)
        if following is None or next_lock is None:
            return
        folder, lock = following, next_lock


def wait_until_ended(folder: RunFolder) -> None:
    """Block until the run has ended. A training whose supervisor was killed gets a new one."""
    while True:
        wait_unlocked(folder.lock)
        status = read_status(folder)
        if status.kind in ("starting", "running"):  # on a file system without locks
            time.sleep(1.0)
            continue
        if not (status.kind == "lost" and status.training_alive):
            return
        try:
            adopt(folder)
        except LaunchError:
            if read_status(folder).kind == "lost":  # else another process may have adopted it first
                raise


def continue_run(folder: RunFolder, spec: ProcessSpec, used: int) -> FellBack | FallbackEnded | None:
    """Restart the ended run in `folder` if it is out of memory. Return the event to record, None for any other end."""
    view = RunReader(folder).poll()
    if view.record is None:
        return None
    situation = situation_of_run(folder, view)
    unreachable = unreachable_settings(situation)
    decided = decide_fallback(situation, view.record.resolved, spec.job.fallback, used, unreachable, folder.id)
    if decided is None:
        return None
    if isinstance(decided, str):
        return FallbackEnded(t=time.time(), sentence=decided)
    try:
        following, step = _launch_step(folder, decided, spec)
    except LaunchError as error:
        return FallbackEnded(t=time.time(), sentence=f"{decided.sentence}. The retry could not be launched: {error}")
    resumed = f"continues as {following.id} from the checkpoint of step {step:,}"
    restarted = f"starts again as {following.id} from step 0, because there is no complete checkpoint"
    return FellBack(
        t=time.time(),
        into=following.id,
        number=decided.number,
        most=spec.job.fallback,
        sentence=f"{decided.sentence}; {resumed if step else restarted}.",
        change=decided.change,
        step=step,
    )


def _launch_step(folder: RunFolder, decided: FallbackStep, spec: ProcessSpec) -> tuple[RunFolder, int]:
    """Launch the next attempt. Return its folder and the step at which it starts. Raises `LaunchError`."""
    environ = {**spec.environ, **MEMORY_HISTORY}
    plan = plan_restart(folder, resolved=decided.resolved, job=spec.job, environ=environ, allow_from_scratch=True)
    not_applied = decided.change.keys() & set(plan.prepared.applied.not_applied)
    if not_applied:
        raise LaunchError(f"{', '.join(sorted(not_applied))} cannot be passed to this command.")
    # The next attempt is followed by this process, which needs no other.
    return restart(plan, start=start_supervisor), 0 if plan.checkpoint is None else plan.checkpoint.step


if __name__ == "__main__":
    main(sys.argv[1:])
