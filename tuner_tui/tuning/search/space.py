"""The search space: limits of memory and data, and the values of each knob that can run here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from tuner_tui.advice.batch_scaling import divisors
from tuner_tui.advice.recommend.target import TrainingTarget, target_of
from tuner_tui.core.units import format_share
from tuner_tui.hardware.capabilities import least_capabilities, supports
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.hardware.other_load import OtherLoad
from tuner_tui.memory.fit import PeakModel
from tuner_tui.settings.apply import build_command
from tuner_tui.settings.distributed import AccelerateConfig
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import FIELDS, Settings, Value, format_value
from tuner_tui.settings.rules import Problem, RuleContext, find_problems
from tuner_tui.tuning.search.batch_search import RESERVE
from tuner_tui.tuning.trial import Measurement, SkippedChange, WholeJob

MICRO, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
WORKERS, PREFETCH = "dataloader_num_workers", "dataloader_prefetch_factor"
PIN, PERSISTENT = "dataloader_pin_memory", "dataloader_persistent_workers"
CHECKPOINTING = "gradient_checkpointing"
MAX_MICRO = int(FIELDS[MICRO].maximum or 0)
MAX_BATCH_DEFICIT = 0.25
"""Micro batches by which a step may fall short of the effective batch before another one is added."""
TUNED_FIELDS = (
    MICRO, ACCUMULATION, "precision", "tf32", "attn_implementation", "gradient_checkpointing", "optim",
    "torch_compile", "train_sampling_strategy", WORKERS, PREFETCH, PIN, PERSISTENT,
)  # fmt: skip
"""The fields that a search may change. Others, such as the learning rate, would change the result of the training."""
KNOB_VALUES: dict[str, tuple[Value, ...]] = {
    "precision": ("bf16", "fp16"),
    "tf32": (True,),
    "attn_implementation": ("sdpa", "flash_attention_2", "flash_attention_3"),
    "gradient_checkpointing": (False, True),
    "optim": ("adamw_torch_fused",),
    "torch_compile": (True, False),
    "train_sampling_strategy": ("group_by_length",),
    PREFETCH: (2, 4, 8),
    PIN: (True,),
    PERSISTENT: (True,),
}
WORKER_COUNTS = (0, 1, 2, 4, 6, 8, 12, 16)
SPARE_CORES = 2
GPU_ONLY = (PIN, "tf32")
NOT_REACHED = "it cannot be passed to this command; only its own code can change it"
WORKERS_REPEAT = "the data is a stream that does not divide itself: each worker would deliver all samples"
MAX_CPU_SHARE = 0.2
"""Share of the cores that others may use where a training computes on them: less than one core of four,"""
MAX_CPU_SHARE_IN_TRIAL = 0.15
"""and during a trial, when they compete with it and get less."""
MAX_CPU_SHARE_WITH_GPU = 0.75
"""The same where a training computes on a GPU."""
MAX_GPU_SHARE = 0.2
"""Utilisation of a GPU by others; a desktop takes less."""


class Quiet(Struct, frozen=True, kw_only=True):
    """When a run counts as undisturbed; by default, always.

    Attributes:
        busy: What made the machine busy before the first trial; empty if it was quiet.
        gpu_in_use: Whether others used a GPU then; during a trial they cannot be distinguished from the training.
        max_cpu_share: The share of the cores that others may use during a trial.
    """

    busy: str = ""
    gpu_in_use: bool = False
    max_cpu_share: float = 1.0

    @staticmethod
    def after(load: OtherLoad, on_gpu: bool) -> Quiet:
        """Return the rule for trials on a machine that had this load by others."""
        gpu_in_use = on_gpu and load.gpu_share is not None and load.gpu_share > MAX_GPU_SHARE
        max_share = MAX_CPU_SHARE_WITH_GPU if on_gpu else MAX_CPU_SHARE
        cpu_in_use = load.cpu_share is not None and load.cpu_share > max_share
        reasons = []
        if gpu_in_use:
            users = f": {', '.join(load.gpu_processes)}" if load.gpu_processes else ""
            reasons.append(f"other processes used {format_share(load.gpu_share or 0.0)} of a GPU at the start{users}")
        if cpu_in_use:
            users = ", ".join(f"{process.command} {process.cores:.1f} cores" for process in load.processes)
            share = format_share(load.cpu_share or 0.0)
            reasons.append(f"other processes used {share} of the CPU at the start: {users or 'not visible from here'}")
        return Quiet(
            busy="; ".join(reasons),
            gpu_in_use=gpu_in_use,
            max_cpu_share=MAX_CPU_SHARE_WITH_GPU if on_gpu else MAX_CPU_SHARE_IN_TRIAL,
        )

    def is_disturbed(self, run: Measurement) -> bool:
        """Return whether others kept the machine busy during `run`; where that was not seen, before the first trial."""
        if self.gpu_in_use:
            return True
        return bool(self.busy) if run.others_cpu_share is None else run.others_cpu_share > self.max_cpu_share


class SearchSpace(Struct, frozen=True, kw_only=True):
    """What a search may try.

    Attributes:
        machine: Hardware, interpreter and job, for the rules on settings.
        capacity_bytes: Memory of one GPU (of the host without a GPU) for the training. None if unknown: no micro batch
            larger than the start's is tried.
        reserve: Share of the capacity to leave free.
        dataset_size: Number of training samples, if known.
        processes: Data-parallel replicas of the model.
        cores: Usable CPU cores per process.
        hold_effective_batch: Whether the effective batch must stay exactly the same.
        prior: Memory estimate made before any run.
        candidates: For each field, the values that can run here, the start's own included.
        unreachable: Fields that do not reach the job.
        rejected: Values that cannot run here.
        quiet: When a run counts as undisturbed by other programs.
        whole_job: The training whose time is to be shortest; None if throughput counts, or its length is unknown.
        workers_repeat: The data is a stream that several workers would repeat.
        waits_idly: The training waits for data while cores are idle, so that there may be more workers than cores.
    """

    machine: RuleContext = field(default_factory=RuleContext)
    capacity_bytes: int | None = None
    reserve: float = RESERVE
    dataset_size: int | None = None
    processes: int = 1
    cores: int | None = None
    hold_effective_batch: bool = True
    prior: PeakModel | None = None
    candidates: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    unreachable: frozenset[str] = frozenset()
    rejected: tuple[SkippedChange, ...] = ()
    whole_job: WholeJob | None = None
    quiet: Quiet = field(default_factory=Quiet)
    workers_repeat: bool = False
    waits_idly: bool = False

    @property
    def limit_bytes(self) -> int | None:
        """Peak memory that leaves the reserve free; None if the capacity is unknown."""
        return None if self.capacity_bytes is None else int(self.capacity_bytes * (1 - self.reserve))

    @property
    def on_gpu(self) -> bool:
        return bool(self.machine.gpus) and not self.machine.no_gpu

    @property
    def max_micro(self) -> int:
        """The largest micro batch that the dataset can fill."""
        if self.dataset_size is None:
            return MAX_MICRO
        return max(1, min(MAX_MICRO, self.dataset_size // self.processes))

    def micro_batches(self, start: Settings) -> tuple[int, ...] | None:
        """The micro batches that hold the start's effective batch exactly, ascending; None if any may be tried."""
        if not self.hold_effective_batch:
            return None
        return tuple(size for size in divisors(start.effective_batch()) if size <= self.max_micro)

    def with_micro(self, settings: Settings, start: Settings, micro: int) -> Settings:
        """Return `settings` with another micro batch and the accumulation that holds the start's effective batch.

        If none holds it exactly, the effective batch grows: a smaller one would need more optimizer steps.
        """
        accumulation = max(1, math.ceil(start.effective_batch() / micro - MAX_BATCH_DEFICIT))
        return settings.changed(**{MICRO: micro, ACCUMULATION: accumulation})

    def within_data(self, start: Settings) -> Settings:
        """Return the start, with a smaller micro batch if the dataset cannot fill its own."""
        if start.per_device_train_batch_size <= self.max_micro:
            return start
        sizes = self.micro_batches(start)
        return self.with_micro(start, start, self.max_micro if sizes is None else max(sizes))

    def refusal(self, settings: Settings, change: Mapping[str, Value]) -> str | None:
        """Return why `change` is invalid for `settings`, or None. Problems that they already have do not count."""
        before = {problem.sentence for problem in self._problems(settings)}
        new = [problem for problem in self._problems(settings.changed(**change)) if problem.sentence not in before]
        concerned = [
            problem.sentence for problem in new if problem.severity == "error" or set(problem.fields) & set(change)
        ]
        return concerned[0] if concerned else None

    def _problems(self, settings: Settings) -> tuple[Problem, ...]:
        machine = self.machine
        cores = None if self.waits_idly else self.cores
        return find_problems(settings, gpus=machine.gpus, interpreter=machine.interpreter, job=machine.job, cores=cores)


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
    """Return the search space of `job` on this machine.

    `memory_limit_bytes` caps the memory of a GPU, or of the host without a GPU; without it, a training on the host may
    use the memory that is available. `accelerate` is the job's accelerate config file. Raises `SettingsError` if the
    command cannot take settings in its `apply` mode.
    """
    target = target_of(inventory, interpreter, job, accelerate).trained_with(start)
    sizes = (dataset_size, job.max_samples if isinstance(job, BuiltinJob) else None)
    bare = SearchSpace(
        machine=target.machine,
        capacity_bytes=_capacity(target, memory_limit_bytes),
        dataset_size=min((size for size in sizes if size is not None), default=None),
        processes=target.replicas,
        cores=max(1, inventory.cpu.usable_cores // target.processes),
        hold_effective_batch=hold_effective_batch,
        prior=prior,
        unreachable=frozenset(TUNED_FIELDS).intersection(
            build_command(job, start, interpreter, "", chosen=TUNED_FIELDS).not_applied
        ),
    )
    return with_candidates(bare, start)


def _capacity(target: TrainingTarget, limit_bytes: int | None) -> int | None:
    """Memory of one process in bytes; None if a GPU does not report its memory."""
    if target.on_gpu:
        return min((size for size in (target.memory_bytes, limit_bytes) if size is not None), default=None)
    if limit_bytes is not None:  # counts private memory, so it does not compare with the resident memory below
        return limit_bytes
    memory = target.inventory.memory
    sizes = (size for size in (memory.usable_bytes, memory.available_bytes) if size is not None)
    return min(sizes) // target.processes


def with_candidates(space: SearchSpace, start: Settings) -> SearchSpace:
    candidates: dict[str, tuple[Value, ...]] = {}
    rejected: list[SkippedChange] = []
    cores = space.cores or 1
    most = max(WORKER_COUNTS) if space.waits_idly else cores
    workers = sorted({count for count in (*WORKER_COUNTS, max(0, cores - SPARE_CORES)) if count <= most})
    for name, values in (*KNOB_VALUES.items(), (WORKERS, tuple(workers))):
        given: Value = getattr(start, name)
        runnable = [given]
        for value in values:
            if value == given:
                continue
            reason = _rejection(space, start, name, value)
            if reason is None:
                runnable.append(value)
            else:
                rejected.append(SkippedChange(knob=name, value=format_value(name, value), reason=reason))
        candidates[name] = tuple(runnable)
    return replace(space, candidates=candidates, rejected=tuple(rejected))


def _rejection(space: SearchSpace, start: Settings, name: str, value: Value) -> str | None:
    if name in space.unreachable:
        return NOT_REACHED
    if not space.on_gpu and name in GPU_ONLY:
        return "it has no effect without a GPU"
    if name == WORKERS and space.workers_repeat and max(int(value or 0), start.dataloader_num_workers) > 1:
        return WORKERS_REPEAT
    if value == "fp16" and space.refusal(start, {"precision": "bf16"}) is None and space.on_gpu:
        return "bf16 is as fast here and needs no loss scaler"
    if str(value).startswith("flash") and (reason := _flash_rejection(space, str(value))):
        return reason
    refusals = [space.refusal(settings, {name: value}) for settings in _with_requirements(start, name)]
    return None if None in refusals else refusals[0]


def _flash_rejection(space: SearchSpace, value: str) -> str | None:
    """Return why a flash kernel is not known to run: its package is missing, or the GPU is too old."""
    package = {"flash_attention_2": "flash-attn", "flash_attention_3": "flash-attn-3"}[value]
    gpu = space.machine.weakest_gpu
    if value == "flash_attention_3" and (gpu is None or not supports([gpu], "flash-3")):
        return f"FlashAttention-3 needs compute capability {least_capabilities()['flash-3']}"
    if space.machine.version_text(package) is None:
        return f"{package} is not installed; sdpa runs the same kind of kernel"
    return None


def _with_requirements(start: Settings, name: str) -> Iterable[Settings]:
    """Return the start, and the start with other settings that the knob may require."""
    if name == "attn_implementation":
        return (start, start.changed(precision="bf16"), start.changed(precision="fp16"))
    if name == WORKERS:  # without workers, prefetching and persistence are invalid
        return (start, start.changed(**{PREFETCH: None, PERSISTENT: False}))
    if name in (PREFETCH, PERSISTENT):
        return (start.changed(**{WORKERS: max(1, start.dataloader_num_workers)}),)
    return (start,)
