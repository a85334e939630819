"""Recommends settings for a target: precision, data loading, batch, learning rate, each with reason and source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.advice.recommend import batch_and_learning_rate
from tuner_tui.advice.recommend.duration_estimate import EarlierRun, faster_workers
from tuner_tui.advice.recommend.sample_lengths import SampleLengths, assumes_length
from tuner_tui.advice.recommend.target import (
    ConsideredValue,
    RecommendationDraft,
    describe_gpus,
    occupied_gpus,
    select_gpus,
    target_of,
)
from tuner_tui.advice.recommend.workload import Trace, Workload, workload_of
from tuner_tui.core.units import GIB, format_share
from tuner_tui.hardware.capabilities import FP16_SLOW, has_tensor_cores
from tuner_tui.hardware.environment import visible_gpus
from tuner_tui.hardware.interpreter import Interpreter, find_incompatibilities
from tuner_tui.hardware.inventory import Capability, Gpu, Inventory
from tuner_tui.memory.job_task import download_hint, modelled_job, trains_other_task
from tuner_tui.memory.known_shapes import known_shape
from tuner_tui.memory.trace import TraceError
from tuner_tui.settings.distributed import AccelerateConfig, best_kind, is_same_kind
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job, named_model
from tuner_tui.settings.model import FIELDS, Origin, OriginKind, Resolved, Settings, Value
from tuner_tui.settings.rules import MAX_WORKERS, SPARE_CORES, overflows_fp16


def precision(draft: RecommendationDraft) -> None:
    """Recommends a 16-bit precision by compute capability; torch reports emulation as support."""
    target = draft.target
    if not target.on_gpu:
        draft.advise("precision", "fp32", *draft.why("precision-on-cpu"))
        draft.reject("precision", "fp16", *draft.why("fp16-on-cpu"))
    elif target.able("bf16"):
        draft.advise("precision", "bf16", *draft.why("bf16"))
    elif target.weakest is None or target.weakest.capability is None:
        draft.advise("precision", "fp32", *draft.why("capability-unknown"))
    else:
        _before_ampere(draft, target.weakest.capability)


def _before_ampere(draft: RecommendationDraft, capability: Capability) -> None:
    draft.reject("precision", "bf16", *draft.why("bf16-emulated"))
    model = named_model(draft.target.job)
    if overflows_fp16(model):
        draft.reject("precision", "fp16", *draft.why("fp16-overflows", model=model))
        draft.advise("precision", "fp32", *draft.why("fp32-for-overflow"))
        return
    if draft.given.get("weights_dtype") == "bf16" and draft.settings.peft_method == "none":
        draft.reject("precision", "fp16", *draft.why("fp16-of-bf16-weights"))
        draft.advise("precision", "fp32", *draft.why("fp16-of-bf16-weights"))
        return
    if all(map(has_tensor_cores, draft.target.gpus)):
        draft.advise("precision", "fp16", *draft.why("fp16"))
        _note_16_bit_weights(draft)
        return
    slow = "fp16-at-a-64th" if capability == FP16_SLOW else "fp16-without-tensor-cores"
    why = draft.why(slow if draft.target.able("fp16") else "no-fp16")
    draft.reject("precision", "fp16", *why)
    draft.advise("precision", "fp32", *why)


def _note_16_bit_weights(draft: RecommendationDraft) -> None:
    """A command loads its model itself: as saved in Transformers 5, and the loss scaler takes no 16-bit gradients."""
    job, settings = draft.target.job, draft.settings
    modelled = modelled_job(job)
    if isinstance(job, BuiltinJob) or modelled is None or settings.peft_method != "none":
        return
    shape = known_shape(modelled.model, modelled.task)
    saved_in_16_bit = shape is not None and shape.weight_bytes == 2 and not shape.size_only
    if saved_in_16_bit and settings.weights_dtype in ("auto", "saved"):
        draft.note("16-bit-weights", model=modelled.model)


def tf32(draft: RecommendationDraft) -> None:
    """Recommends TF32 for matrix products that stay in fp32."""
    if draft.target.able("tf32"):
        draft.advise("tf32", True, *draft.why("tf32"))
    elif draft.target.on_gpu:
        draft.reject("tf32", True, *draft.why("no-tf32"))


def attention(draft: RecommendationDraft) -> None:
    """Recommends SDPA where the model supports it, the default of Transformers."""
    has_flash = draft.target.able("flash")
    flash = " with torch's flash kernels" if has_flash else ""
    draft.advise("attn_implementation", "auto", *draft.why("attention", flash=flash))
    if draft.target.on_gpu:
        installed = "flash-no-better" if draft.target.has("flash-attn") else "flash-not-installed"
        why = draft.why(installed if has_flash else "flash-needs-ampere")
        draft.reject("attn_implementation", "flash_attention_2", *why)


def compilation(draft: RecommendationDraft) -> None:
    """Rejects `torch.compile` as a default: fast but fragile in the notes."""
    too_old = draft.target.machine.gpu_below("triton") is not None
    draft.reject("torch_compile", True, *draft.why("too-old-for-triton" if too_old else "compile-may-fail"))


MAX_WORKERS_HEAVY, SPARE_CORES_HEAVY = 16, 1
MANY_WORKERS = 8
PREFETCH, PREFETCH_LITTLE = 4, 2
WORKER_BYTES = 1 * GIB
SHORT_HOST_BYTES = 8 * GIB
SMALL_SHM_BYTES = 512 * 2**20
SMALL_SHM_WORKERS = 2
SHM_SHARE = 0.25
BYTES_PER_TOKEN = 3 * 8
"""input_ids, attention_mask, and token_type_ids or labels, 64 bits each."""


def recommend_data_loading(draft: RecommendationDraft, earlier: Sequence[EarlierRun]) -> None:
    prefetch, reason = _prefetch(draft)
    _workers(draft, prefetch, earlier)
    if draft.settings.dataloader_num_workers > 0:
        draft.advise("dataloader_prefetch_factor", prefetch, *draft.why(reason))
        draft.advise("dataloader_persistent_workers", True, *draft.why("persistent-workers"))
    on_gpu = draft.target.on_gpu
    draft.advise("dataloader_pin_memory", on_gpu, *draft.why("pinned-memory" if on_gpu else "pinned-memory-on-cpu"))


def _workers(draft: RecommendationDraft, prefetch: int, earlier: Sequence[EarlierRun]) -> None:
    target = draft.target
    usable_bytes = target.inventory.memory.usable_bytes
    by_memory = usable_bytes // WORKER_BYTES // target.processes
    why = draft.why("memory-of-workers", memory=f"{usable_bytes / GIB:.1f}")
    limits = (_workers_by_cores(draft), (by_memory, why), *_workers_by_shm(draft, prefetch))
    count, (reason, source) = min(limits, key=lambda limit: limit[0])
    if (pair := faster_workers(earlier, count)) is not None:
        fast, slow = pair
        gain = format_share(fast.low_samples_s / slow.high_samples_s - 1)
        why = draft.why("measured-workers", fast=fast.id, slow=slow.id, count=count, gain=gain)
        count, (reason, source) = fast.settings.dataloader_num_workers, why
    needed = any(draft.given.get(name) for name in ("dataloader_prefetch_factor", "dataloader_persistent_workers"))
    if count == 0 and needed:
        count, reason, source = 1, f"prefetch and persistent workers need at least one; otherwise 0: {reason}", source
    draft.advise("dataloader_num_workers", count, reason, source)
    heavy = min(MAX_WORKERS_HEAVY, target.inventory.cpu.usable_cores // target.processes - SPARE_CORES_HEAVY)
    if target.on_gpu and heavy > count >= MAX_WORKERS:
        draft.reject("dataloader_num_workers", heavy, *draft.why("heavy-preprocessing"))


def _workers_by_cores(draft: RecommendationDraft) -> tuple[int, tuple[str, str]]:
    """Workers by the notes' rule, from the cores available to one training process; with reason and source."""
    target = draft.target
    if not target.on_gpu:
        return 0, draft.why("workers-on-cpu")
    usable = target.inventory.cpu.usable_cores
    cores = usable // target.processes
    each = f" for each of {target.processes} processes" if target.processes > 1 else ""
    if cores < 2:
        shared = f" for {target.processes} processes" if target.processes > 1 else ""
        return 0, draft.why("one-core", cores=f"{usable} usable core{'s' if usable > 1 else ''}{shared}")
    if cores <= SPARE_CORES:  # on two, one worker still loads while the GPU computes
        return 1, draft.why("few-cores", cores=cores, each=each)
    left = ", two left for training" if cores < MAX_WORKERS + SPARE_CORES else f": {MAX_WORKERS} are enough"
    return min(MAX_WORKERS, cores - SPARE_CORES), draft.why("cores", cores=cores, each=each, left=left)


def _workers_by_shm(draft: RecommendationDraft, prefetch: int) -> Iterator[tuple[int, tuple[str, str]]]:
    """The most workers that /dev/shm allows, with reason and source. A full /dev/shm kills workers with a bus error."""
    target, shm = draft.target, draft.target.inventory.shm
    if shm is None or shm.free_bytes >= SMALL_SHM_BYTES:
        return
    free = f"{shm.free_bytes / 2**20:.0f}"
    if isinstance(target.job, CommandJob):
        yield 0, draft.why("shm-of-a-command", free=free)
        return
    settings = draft.settings
    batch_bytes = settings.per_device_train_batch_size * target.replicas * settings.max_length * BYTES_PER_TOKEN
    fitting = int(SHM_SHARE * shm.free_bytes / (batch_bytes * prefetch * target.processes))
    why = draft.why("shm-of-workers", free=free, prefetch=prefetch, batch=f"{batch_bytes / 2**20:.2f}")
    yield min(SMALL_SHM_WORKERS, fitting), why


def _prefetch(draft: RecommendationDraft) -> tuple[int, str]:
    shm = draft.target.inventory.shm
    if draft.target.inventory.memory.usable_bytes < SHORT_HOST_BYTES:
        return PREFETCH_LITTLE, "prefetch-little-memory"
    if shm is not None and shm.free_bytes < SMALL_SHM_BYTES:
        return PREFETCH_LITTLE, "prefetch-little-shm"
    if draft.settings.dataloader_num_workers > MANY_WORKERS:
        return PREFETCH_LITTLE, "prefetch-many-workers"
    return PREFETCH, "prefetch"


DEFAULT_JOB = BuiltinJob(task="classification", model="bert-base-uncased")
"""The job of the field notes, assumed if none is named."""


class Recommendation(Struct, frozen=True):
    """Recommended values in the order of the settings, rejected values, and notes.

    `settings` combines defaults, recommended and given values. `replicas` is the number of GPUs or processes that share
    a step, `gpus` the names of the visible GPUs.
    """

    advised: tuple[ConsideredValue, ...]
    rejected: tuple[ConsideredValue, ...]
    notes: tuple[str, ...]
    settings: Settings
    replicas: int
    gpus: tuple[str, ...]

    @property
    def values(self) -> Mapping[str, Value]:
        """The recommended values only."""
        return {advised.name: advised.value for advised in self.advised}

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step."""
        return self.settings.effective_batch(self.replicas)


def recommend(
    inventory: Inventory,
    interpreter: Interpreter | None,
    job: Job = DEFAULT_JOB,
    given: Mapping[str, Value] | None = None,
    accelerate: AccelerateConfig | None = None,
    lengths: SampleLengths | None = None,
    trace: Trace | None = None,
    earlier: Sequence[EarlierRun] = (),
) -> Recommendation:
    """Recommends settings for a training on this machine. `given` values stay, and the rest is fitted to them.

    `accelerate` is the configuration found for `accelerate launch`, `lengths` those of the data's samples. By `trace`
    images, speech and sequence to sequence get a batch, too. What `earlier` runs of the job measured outranks a rule.
    """
    target = target_of(inventory, interpreter, job, accelerate)
    draft = RecommendationDraft(target, given or {})
    if isinstance(job, BuiltinJob) and target.processes == 1 < target.replicas:
        # Many GPUs get no less than one: what one alone is recommended decides whether one process uses several.
        settings = _recommend(draft.of(target.alone), lengths, trace, earlier).settings
        if target.trained_with(settings) != target:
            return _recommend(draft.of(target.alone), lengths, trace, earlier, len(target.gpus))
    return _recommend(draft, lengths, trace, earlier)


def _recommend(
    draft: RecommendationDraft,
    lengths: SampleLengths | None,
    trace: Trace | None,
    earlier: Sequence[EarlierRun],
    of_gpus: int = 1,
) -> Recommendation:
    """The recommendation for the target of an empty `draft`, one of `of_gpus` equal GPUs."""
    target, job = draft.target, draft.target.job
    if of_gpus > 1 and isinstance(job, BuiltinJob):
        draft.note("one-gpu-of-several", count=of_gpus, model=job.model)
    _note_interpreter(draft)
    _note_gpus(draft)
    workload = workload_of(job, draft.settings.max_length)
    precision(draft)
    tf32(draft)
    compilation(draft)
    if trains_other_task(job) or modelled_job(job) is None:
        _recommend_for_other_task(draft, replace(workload, trace=None if target.sharding else trace))
    else:
        attention(draft)
        _recommend_for_text(draft, workload)
    recommend_data_loading(draft, earlier)
    if not trains_other_task(job):
        lengths = None if assumes_length(job, draft.given) else lengths
        batch_and_learning_rate.sampling(draft, lengths)
        if lengths is not None:
            batch_and_learning_rate.note_lengths(draft, lengths)
    advised = tuple(draft.advised[name] for name in FIELDS if name in draft.advised)
    gpus = tuple(gpu.name for gpu in target.gpus)
    return Recommendation(advised, tuple(draft.rejected), tuple(draft.notes), draft.settings, target.replicas, gpus)


def _recommend_for_other_task(draft: RecommendationDraft, workload: Workload) -> None:
    """Recommends what every training has and, where the model can be traced, the batch that its memory allows."""
    batch_and_learning_rate.optimizer(draft, workload)
    try:
        if workload.trace is not None:
            batch_and_learning_rate.checkpointing(draft, workload)
            batch_and_learning_rate.recommend_batch(draft, workload)
        name = "other-task-traced" if workload.trace else "other-task"
    except TraceError as error:
        name = "other-task"
        draft.notes.append(str(error))
    is_known = name == "other-task-traced" or trains_other_task(draft.target.job)
    draft.note(name if is_known else "task-unknown")


def _recommend_for_text(draft: RecommendationDraft, workload: Workload) -> None:
    """Recommends what the memory model and the field notes tell of classifiers and causal language models only."""
    modelled = modelled_job(draft.target.job)
    if modelled is not None and workload.shape is None:
        hint = download_hint(modelled.model)
        draft.note("size-unknown", model=modelled.model, hint=f"`{hint}` tells it, or a short" if hint else "a short")
    sharding = draft.target.sharding
    if sharding is None:
        batch_and_learning_rate.adapter(draft, workload)
    elif not draft.target.is_modelled:
        draft.note("sharded", by=sharding.name)
    batch_and_learning_rate.optimizer(draft, workload)
    if draft.target.is_modelled:
        batch_and_learning_rate.checkpointing(draft, workload)
        batch_and_learning_rate.recommend_batch(draft, workload)
        batch_and_learning_rate.learning_rate(draft, workload)
    batch_and_learning_rate.warmup(draft)
    if not draft.target.on_gpu and isinstance(draft.target.job, BuiltinJob) and workload.is_large:
        draft.note("slow-on-cpu", model=workload.label)


def with_recommended(
    resolved: Resolved,
    inventory: Inventory,
    interpreter: Interpreter | None,
    job: Job,
    trace: Trace | None = None,
    earlier: Sequence[EarlierRun] = (),
) -> Resolved:
    """`resolved` with recommended values in place of defaults, each with its reason as origin.

    Earlier recommendations are recomputed, so that they fit the chosen values. A command keeps its own defaults:
    nothing is filled in for it.
    """
    if isinstance(job, CommandJob):
        return resolved
    given = resolved.given
    recommendation = recommend(inventory, interpreter, job, given, trace=trace, earlier=earlier)
    origins = {advised.name: Origin(OriginKind.RECOMMENDED, advised.reason) for advised in recommendation.advised}
    return Resolved(recommendation.settings, {**origins, **{name: resolved.origins[name] for name in given}})


def _note_interpreter(draft: RecommendationDraft) -> None:
    interpreter = draft.target.interpreter
    if interpreter is None:
        draft.note("interpreter-unknown")
        return
    if interpreter.problem is not None:
        draft.notes.append(interpreter.problem)
    for problem in find_incompatibilities(draft.target.inventory, interpreter):
        draft.notes.append(f"{problem.sentence} {problem.advice}")
    build = draft.target.machine.version_text("torch") or ""
    if not draft.target.on_gpu and ("rocm" in build or "xpu" in build):
        draft.note("unseen-gpu", build=build)


def _note_gpus(draft: RecommendationDraft) -> None:
    target = draft.target
    inventory = target.inventory
    visible = visible_gpus(inventory)
    if target.gpus and any(not is_same_kind(gpu, visible[0]) for gpu in visible):
        _note_unequal_gpus(draft, visible)
    if target.replicas > 1 and target.processes == 1 and not isinstance(target.job, CommandJob):
        draft.note("one-process", replicas=target.replicas)
    if not target.spread_known and all(is_same_kind(gpu, visible[0]) for gpu in visible):
        draft.note("spread-unknown" if target.takes("optim") else "spread-unknown-in-a-loop", count=len(target.gpus))
    if inventory.gpus and not target.gpus and inventory.cuda_visible_devices is not None:
        draft.note("hidden-gpus", visible=inventory.cuda_visible_devices)
    for gpu in target.gpus:
        if gpu.mig:
            draft.note("partitioned", name=gpu.name)
        elif " MIG " in gpu.name:
            draft.note("mig-slice", name=gpu.name, select=select_gpus([gpu]))
        elif gpu.memory_total_bytes is None:
            draft.note("memory-unknown", name=gpu.name)
    if (occupied := occupied_gpus(target.gpus)) is not None:
        draft.note("other-programs", occupied=occupied)


def _note_unequal_gpus(draft: RecommendationDraft, visible: tuple[Gpu, ...]) -> None:
    best = best_kind(visible)
    others = [gpu for gpu in visible if gpu not in best]
    if not others:
        names = ", ".join(sorted({gpu.name for gpu in visible}))
        draft.note("gpus-differ", names=names)
        return
    least = min(others, key=lambda gpu: gpu.memory_total_bytes or 0)
    limit = f"{(least.memory_total_bytes or 0) / GIB:.0f} GiB of {describe_gpus([least])}"
    why = f"each step would wait for the slowest GPU, and the {limit} would limit every batch"
    if len(draft.target.gpus) < len(visible):
        draft.note("gpus-differ-one-used", best=describe_gpus(best[:1]), why=why)
        if len(best) > 1:
            draft.note("gpus-differ-several-best", best=describe_gpus(best), select=select_gpus(best), count=len(best))
    else:
        draft.note("gpus-differ-all-used", best=describe_gpus(best), select=select_gpus(best), why=why)
