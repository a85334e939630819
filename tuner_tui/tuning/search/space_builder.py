"""Builds the search space of a job on a box, without values that cannot run there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tuner_tui.advice.recommend.target import TrainingTarget, target_of
from tuner_tui.hardware.gpu.capabilities import FLASH_3
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.memory.fit import PeakModel
from tuner_tui.settings.apply import build_command
from tuner_tui.settings.distributed import AccelerateConfig
from tuner_tui.settings.fields import Value, format_value
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.knobs import PERSISTENT, PIN, PREFETCH, WORKERS
from tuner_tui.tuning.search.skip_reasons import NOT_REACHED
from tuner_tui.tuning.search.space import ACCUMULATION, MICRO, SearchSpace
from tuner_tui.tuning.trial import SkippedChange

TUNED_FIELDS = (
    MICRO, ACCUMULATION, "precision", "tf32", "attn_implementation", "gradient_checkpointing", "optim",
    "torch_compile", "train_sampling_strategy", WORKERS, PREFETCH, PIN, PERSISTENT,
)  # fmt: skip
"""The fields a tuning may change. All others make another training: its learning rate, its model, its length."""
KNOB_VALUES: dict[str, tuple[Value, ...]] = {
    "precision": ("bf16", "fp16"),
    "tf32": (True,),
    "attn_implementation": ("sdpa", "flash_attention_2", "flash_attention_3"),
    "gradient_checkpointing": (False, True),
    "optim": ("adamw_torch_fused",),
    "torch_compile": (True,),
    "train_sampling_strategy": ("group_by_length",),
    PREFETCH: (2, 4, 8),
    PIN: (True,),
    PERSISTENT: (True,),
}
WORKER_COUNTS = (0, 1, 2, 4, 6, 8, 12, 16)
SPARE_CORES = 2
GPU_ONLY = (PIN, "tf32")


def build_space(
    inventory: Inventory,
    interpreter: Interpreter | None,
    job: BuiltinJob | CommandJob,
    start: Settings,
    *,
    memory_limit_bytes: int | None = None,
    dataset_size: int | None = None,
    hold_effective_batch: bool = True,
    prior: PeakModel | None = None,
    accelerate: AccelerateConfig | None = None,
) -> SearchSpace:
    """What may be tried for `job` here. `accelerate` is what files say of how accelerate starts it.

    `memory_limit_bytes` caps what the training may take of a card, or of the host where there is none; without it a
    training on the host may take what other programs leave of its memory.
    """
    target = target_of(inventory, interpreter, job, accelerate)
    bare = SearchSpace(
        box=target.box,
        capacity_bytes=_capacity(target, memory_limit_bytes),
        dataset_size=_dataset_size(job, dataset_size),
        processes=target.replicas,
        cores=max(1, inventory.cpu.usable_cores // target.processes),
        hold_effective_batch=hold_effective_batch,
        prior=prior,
        unreachable=unreachable_fields(job, start, interpreter),
    )
    return with_candidates(bare, start)


def _capacity(target: TrainingTarget, limit_bytes: int | None) -> int | None:
    """Bytes that one process may take; None where a card does not tell.

    On the host a limit counts private memory and stands alone: what is available there counts resident memory.
    """
    if target.on_gpu:
        return min((size for size in (target.memory_bytes, limit_bytes) if size is not None), default=None)
    if limit_bytes is not None:
        return limit_bytes
    memory = target.inventory.memory
    known = (size for size in (memory.usable_bytes, memory.available_bytes) if size is not None)
    return min(known) // target.processes


def unreachable_fields(
    job: BuiltinJob | CommandJob, start: Settings, interpreter: Interpreter | None
) -> frozenset[str]:
    """The tuned fields that the job's way of taking settings cannot carry.

    Raises `SettingsError` where the command cannot take settings in the way the job says.
    """
    return frozenset(build_command(job, start, interpreter, "", chosen=TUNED_FIELDS).not_applied) & frozenset(
        TUNED_FIELDS
    )


def with_candidates(space: SearchSpace, start: Settings) -> SearchSpace:
    """The space with every value that can run, the start's own included, and with the others rejected."""
    candidates: dict[str, tuple[Value, ...]] = {}
    rejected: list[SkippedChange] = []
    for name, values in (*KNOB_VALUES.items(), (WORKERS, worker_counts(space))):
        own: Value = getattr(start, name)
        runnable = [own]
        for value in values:
            if value == own:
                continue
            reason = _rejection(space, start, name, value)
            if reason is None:
                runnable.append(value)
            else:
                rejected.append(SkippedChange(knob=name, value=format_value(name, value), reason=reason))
        candidates[name] = tuple(runnable)
    return replace(space, candidates=candidates, rejected=tuple(rejected))


def worker_counts(space: SearchSpace) -> tuple[int, ...]:
    """Loader workers worth a trial: some of the usable cores, and all but two."""
    cores = space.cores or 1
    return tuple(sorted({count for count in (*WORKER_COUNTS, max(0, cores - SPARE_CORES)) if count <= cores}))


def _rejection(space: SearchSpace, start: Settings, name: str, value: Value) -> str | None:
    """Why a value cannot run here, whatever the other knobs."""
    if name in space.unreachable:
        return NOT_REACHED
    if not space.on_gpu and name in GPU_ONLY:
        return "it has no effect without a GPU"
    if value == "fp16" and space.refusal(start, {"precision": "bf16"}) is None and space.on_gpu:
        return "bf16 computes as fast here and needs no loss scaler"
    if str(value).startswith("flash"):
        return _flash_rejection(space, str(value)) or _refusal(space, start, name, value)
    return _refusal(space, start, name, value)


def _refusal(space: SearchSpace, start: Settings, name: str, value: Value) -> str | None:
    """What the rules on settings say, with what the knob may need beside it."""
    refusals = [space.refusal(settings, {name: value}) for settings in _with_requirements(start, name)]
    return None if None in refusals else refusals[0]


def _flash_rejection(space: SearchSpace, value: str) -> str | None:
    """Why a flash kernel is not known to run: its package is not there, or it is written for newer cards."""
    package = {"flash_attention_2": "flash-attn", "flash_attention_3": "flash-attn-3"}[value]
    card = space.box.weakest
    if value == "flash_attention_3" and (card is None or card.capability is None or card.capability < FLASH_3):
        return "FlashAttention-3 is written for capability 9.0"
    if space.box.version_text(package) is None:
        return f"the interpreter is not known to have {package}; sdpa runs the same kind of kernel"
    return None


def _with_requirements(start: Settings, name: str) -> Iterable[Settings]:
    """The start, with what a knob may need beside it."""
    if name == "attn_implementation":
        return (start, start.changed(precision="bf16"), start.changed(precision="fp16"))
    if name in (PREFETCH, PERSISTENT):
        return (start.changed(**{WORKERS: max(1, start.dataloader_num_workers)}),)
    return (start,)


def _dataset_size(job: BuiltinJob | CommandJob, known: int | None) -> int | None:
    """The samples there are, as far as anybody knows."""
    most = job.max_samples if isinstance(job, BuiltinJob) else None
    return min((size for size in (known, most) if size is not None), default=None)
