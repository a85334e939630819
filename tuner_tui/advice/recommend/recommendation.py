"""Recommends settings for a target: precision, data loading, batch, learning rate, each with reason and source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner_tui.advice.recommend import batch_and_learning_rate
from tuner_tui.advice.recommend.sample_lengths import SampleLengths
from tuner_tui.advice.recommend.target import (
    ConsideredValue,
    RecommendationDraft,
    TrainingTarget,
    describe_cards,
    other_processes_bytes,
    select_cards,
    target_of,
)
from tuner_tui.advice.recommend.workload import Workload, workload_of
from tuner_tui.advice.thresholds import JUDGEMENT, NOTES_3070, NOTES_3090, NOTES_T4, NOTES_UTILISATION
from tuner_tui.core.units import GIB, format_size
from tuner_tui.hardware.capabilities import FP16_SLOW, has_tensor_cores
from tuner_tui.hardware.environment import visible_cards
from tuner_tui.hardware.interpreter import Interpreter, find_incompatibilities
from tuner_tui.hardware.inventory import Gpu, Inventory
from tuner_tui.memory.estimate import estimate
from tuner_tui.memory.model_shape import known_shape
from tuner_tui.settings.distributed import AccelerateConfig, best_kind, is_same_kind
from tuner_tui.settings.job import BuiltinJob, CommandJob, modelled_job
from tuner_tui.settings.model import FIELDS, Origin, OriginKind, Resolved, Settings, Value
from tuner_tui.settings.rules import MAX_WORKERS, SPARE_CORES, overflows_fp16

PRECISION_SOURCE = f"{NOTES_T4}, {NOTES_3090}, {NOTES_UTILISATION}; CUDA C++ Programming Guide"


def precision(draft: RecommendationDraft) -> None:
    """Recommends a 16-bit precision by compute capability; torch reports emulation as support."""
    target = draft.target
    if not target.on_gpu:
        draft.advise("precision", "fp32", f"{target.card_label}; fp32 works on every CPU", "PyTorch")
        draft.reject("precision", "fp16", "accelerate has no fp16 autocast on the CPU", "accelerate 1.15")
    elif target.able("bf16"):
        reason = f"{target.card_label} has bf16 tensor cores: the range of fp32, no loss scaler"
        draft.advise("precision", "bf16", reason, PRECISION_SOURCE)
    elif target.weakest is None or target.weakest.capability is None:
        reason = "the driver does not report the compute capability; fp32 works on every GPU"
        draft.advise("precision", "fp32", reason, "capability unknown")
    else:
        _before_ampere(draft, target.weakest.capability)


def _before_ampere(draft: RecommendationDraft, capability: tuple[int, int]) -> None:
    label = draft.target.card_label
    emulated = f"{label} only emulates bf16 (torch.cuda.is_bf16_supported() says yes nevertheless)"
    draft.reject("precision", "bf16", emulated, PRECISION_SOURCE)
    modelled = modelled_job(draft.target.job)
    model = None if modelled is None else modelled.model
    if overflows_fp16(model):
        why = f"{model} was trained in bf16, and its activations overflow in fp16: the loss becomes nan"
        draft.reject("precision", "fp16", why, "transformers: notes on Gemma and T5")
        draft.advise("precision", "fp32", f"{label} has no bf16, and in fp16 this model's loss becomes nan", "PyTorch")
        return
    if all(map(has_tensor_cores, draft.target.cards)):
        reason = f"{label} has fp16 tensor cores and no bf16; training uses a loss scaler"
        draft.advise("precision", "fp16", reason, PRECISION_SOURCE)
        _note_16_bit_weights(draft)
        return
    slow = "at 1/64 of fp32's speed" if capability == FP16_SLOW else "without tensor cores, so there is little to gain"
    why = f"{label} computes in fp16 {slow}" if draft.target.able("fp16") else f"{label} does not compute in fp16"
    draft.reject("precision", "fp16", why, PRECISION_SOURCE)
    draft.advise("precision", "fp32", f"{why}", PRECISION_SOURCE)


def _note_16_bit_weights(draft: RecommendationDraft) -> None:
    """A command loads its model itself: as saved in Transformers 5, and the loss scaler takes no 16-bit gradients."""
    job, settings = draft.target.job, draft.settings
    modelled = modelled_job(job)
    if isinstance(job, BuiltinJob) or modelled is None or settings.peft_method != "none":
        return
    shape = known_shape(modelled.model, modelled.task)
    if shape is not None and shape.weight_bytes == 2 and settings.weights_dtype in ("auto", "saved"):
        draft.note(
            f"{modelled.model} is saved in 16 bit, and Transformers 5 loads it so: the loss scaler of fp16 then fails "
            "in the first step. Load it with dtype=torch.float32, or train an adapter."
        )


def tf32(draft: RecommendationDraft) -> None:
    """Recommends TF32 for matrix products that stay in fp32."""
    target = draft.target
    source = f"{NOTES_3070}, {NOTES_3090}"
    if target.able("tf32"):
        reason = f"{target.card_label}: fp32 matrix products run on tensor cores (10 mantissa bits, 19 in all)"
        draft.advise("tf32", True, reason, source)
    elif target.on_gpu:
        why = f"{target.card_label} has none: it needs Ampere (8.0), and TrainingArguments rejects it"
        draft.reject("tf32", True, why, NOTES_T4)


def attention(draft: RecommendationDraft) -> None:
    """Recommends SDPA where the model supports it, the default of Transformers."""
    target = draft.target
    flash = " with torch's flash kernels" if target.able("flash") else ""
    reason = f"Transformers takes SDPA{flash} where the model supports it: 30–50 % faster attention in the notes"
    draft.advise("attn_implementation", "auto", reason, NOTES_3090)
    if not target.on_gpu:
        return
    if not target.able("flash"):
        why = f"flash attention needs capability 8.0; {target.card_label} has less or does not report it"
    elif not target.has("flash-attn"):
        why = "flash-attn is not installed, and SDPA runs the same kind of kernel"
    else:
        why = "not every model supports it, and SDPA runs the same kind of kernel; worth trying with long sequences"
    draft.reject("attn_implementation", "flash_attention_2", why, NOTES_3090)


def compilation(draft: RecommendationDraft) -> None:
    """Rejects `torch.compile` as a default: fast but fragile in the notes."""
    target = draft.target
    if target.machine.gpu_below("triton") is not None:
        why = f"{target.card_label} is too old for its kernels, which need capability 7.0"
    else:
        why = (
            "1.1–1.5× faster after a slow first epoch, and it may fail; try it for trainings of more than a few minutes"
        )
    draft.reject("torch_compile", True, why, f"{NOTES_T4}, {NOTES_3090}")


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
SOURCE = f"{NOTES_UTILISATION}, {NOTES_3090}"


def recommend_data_loading(draft: RecommendationDraft) -> None:
    """Recommends workers, prefetch, persistent workers and pinned memory."""
    prefetch = _prefetch(draft)
    _workers(draft, prefetch[0])
    if draft.settings.dataloader_num_workers > 0:
        draft.advise("dataloader_prefetch_factor", *prefetch)
        kept = "workers are not restarted each epoch"
        draft.advise("dataloader_persistent_workers", True, kept, SOURCE)
    _pinning(draft)


def _workers(draft: RecommendationDraft, prefetch: int) -> None:
    target = draft.target
    count, reason, source = workers_by_cores(target)
    for limited, why, its_source in (workers_by_memory(target), workers_by_shm(draft, prefetch)):
        if limited < count:
            count, reason, source = limited, why, its_source
    needed = any(draft.given.get(name) for name in ("dataloader_prefetch_factor", "dataloader_persistent_workers"))
    if count == 0 and needed:
        count, reason, source = 1, f"prefetch and persistent workers need at least one; otherwise 0: {reason}", source
    draft.advise("dataloader_num_workers", count, reason, source)
    _heavy_preprocessing(draft, count)


def workers_by_cores(target: TrainingTarget) -> tuple[int, str, str]:
    """Workers by the notes' rule, from the cores available to one training process; with reason and source."""
    if not target.on_gpu:
        return 0, "on the CPU, the training itself uses all cores", JUDGEMENT
    cores = target.inventory.cpu.usable_cores // target.processes
    count = min(MAX_WORKERS, cores - SPARE_CORES)
    each = f" for each of {target.processes} processes" if target.processes > 1 else ""
    if count < 1:
        return _few_cores(cores, each)
    left = ", two left to the training" if cores < MAX_WORKERS + SPARE_CORES else f": {MAX_WORKERS} feed one training"
    return count, f"{cores} usable cores{each}{left}", NOTES_UTILISATION


def _few_cores(cores: int, each: str) -> tuple[int, str, str]:
    """Workers on fewer cores than the rule needs: on two, one worker still loads while the GPU computes."""
    if cores < 2:
        return 0, f"{cores} usable core{each}: a worker would compete with training", NOTES_UTILISATION
    reason = f"{cores} usable cores{each}: the rule leaves none, but one worker loads while the GPU computes"
    return 1, reason, f"{NOTES_UTILISATION}, {NOTES_T4}"


def workers_by_memory(target: TrainingTarget) -> tuple[int, str, str]:
    """The most workers that host memory allows, at 1 GiB each; with reason and source."""
    usable = target.inventory.memory.usable_bytes
    return usable // WORKER_BYTES // target.processes, f"{usable / GIB:.1f} GiB of memory, 1 GiB per worker", JUDGEMENT


def workers_by_shm(draft: RecommendationDraft, prefetch: int) -> tuple[int, str, str]:
    """The most workers that /dev/shm allows; with reason and source. A full /dev/shm kills workers with a bus error."""
    target, shm = draft.target, draft.target.inventory.shm
    source = "PyTorch, multiprocessing in containers"
    if shm is None or shm.free_bytes >= SMALL_SHM_BYTES:
        return MAX_WORKERS_HEAVY, "", source
    free = f"only {shm.free_bytes / 2**20:.0f} MiB are free in /dev/shm, which workers use to pass batches"
    larger = "docker run --shm-size=8g gives more"
    if isinstance(target.job, CommandJob):
        return 0, f"{free}; the size of this command's batches is unknown ({larger})", source
    settings = draft.settings
    batch_bytes = settings.per_device_train_batch_size * target.replicas * settings.max_length * BYTES_PER_TOKEN
    fitting = int(SHM_SHARE * shm.free_bytes / (batch_bytes * prefetch * target.processes))
    count = min(SMALL_SHM_WORKERS, fitting)
    return count, f"{free}: {prefetch} × {batch_bytes / 2**20:.2f} MiB a worker ({larger})", source


def _heavy_preprocessing(draft: RecommendationDraft, count: int) -> None:
    cores = draft.target.inventory.cpu.usable_cores // draft.target.processes
    heavy = min(MAX_WORKERS_HEAVY, cores - SPARE_CORES_HEAVY)
    if draft.target.on_gpu and heavy > count >= MAX_WORKERS:
        why = "only if preparing a sample is expensive (images, tokenizing on the fly); the data wait shows it"
        draft.reject("dataloader_num_workers", heavy, why, NOTES_UTILISATION)


def _prefetch(draft: RecommendationDraft) -> tuple[int, str, str]:
    target, shm = draft.target, draft.target.inventory.shm
    if target.inventory.memory.usable_bytes < SHORT_HOST_BYTES:
        return PREFETCH_LITTLE, "host memory is short", NOTES_3070
    if shm is not None and shm.free_bytes < SMALL_SHM_BYTES:
        return PREFETCH_LITTLE, "little space in /dev/shm", NOTES_3070
    if draft.settings.dataloader_num_workers > MANY_WORKERS:
        return PREFETCH_LITTLE, "many workers keep enough batches ready", NOTES_3070
    return PREFETCH, "batches are ready before the GPU needs them", SOURCE


def _pinning(draft: RecommendationDraft) -> None:
    if draft.target.on_gpu:
        reason = "page-locked memory: faster copies to the GPU, which can overlap with its work"
        draft.advise("dataloader_pin_memory", True, reason, f"{NOTES_T4}, {SOURCE}")
    else:
        draft.advise("dataloader_pin_memory", False, "pinned memory has no effect on the CPU", "PyTorch")


SLOW_ON_A_PROCESSOR = 5e8
"""Parameters from which a step takes a processor minutes; judgement."""
DEFAULT_JOB = BuiltinJob(task="classification", model="bert-base-uncased")
"""The job of the field notes, assumed if none is named."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Recommended values in the order of the settings, rejected values, and notes.

    `settings` combines defaults, recommended and given values. `replicas` is the number of GPUs or processes that share
    a step, `cards` the names of the visible GPUs.
    """

    advised: tuple[ConsideredValue, ...]
    rejected: tuple[ConsideredValue, ...]
    notes: tuple[str, ...]
    settings: Settings
    replicas: int
    cards: tuple[str, ...]

    @property
    def values(self) -> Mapping[str, Value]:
        """The recommended values only."""
        return {advised.name: advised.value for advised in self.advised}

    @property
    def reasons(self) -> Mapping[str, str]:
        """The reason for each recommended value."""
        return {advised.name: advised.reason for advised in self.advised}

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step."""
        return self.settings.effective_batch(self.replicas)


def recommend(
    inventory: Inventory,
    interpreter: Interpreter | None,
    job: BuiltinJob | CommandJob = DEFAULT_JOB,
    given: Mapping[str, Value] | None = None,
    accelerate: AccelerateConfig | None = None,
    lengths: SampleLengths | None = None,
) -> Recommendation:
    """Recommends settings for a training on this machine. `given` values stay, and the rest is fitted to them.

    `accelerate` is the configuration found for `accelerate launch`, `lengths` those of the data's samples.
    """
    draft = RecommendationDraft(target_of(inventory, interpreter, job, accelerate), given or {})
    _note_interpreter(draft)
    _note_gpus(draft)
    _note_shared_gpus(draft)
    workload = workload_of(job, draft.settings.max_length)
    precision(draft)
    tf32(draft)
    attention(draft)
    compilation(draft)
    batch_and_learning_rate.adapter(draft, workload)
    batch_and_learning_rate.optimizer(draft, workload)
    batch_and_learning_rate.checkpointing(draft, workload)
    batch_and_learning_rate.recommend_batch(draft, workload)
    recommend_data_loading(draft)
    batch_and_learning_rate.learning_rate(draft, workload)
    batch_and_learning_rate.warmup(draft)
    batch_and_learning_rate.sampling(draft, lengths)
    if lengths is not None:
        batch_and_learning_rate.note_lengths(draft, lengths)
    _note_processor(draft, workload)
    advised = tuple(draft.advised[name] for name in FIELDS if name in draft.advised)
    return Recommendation(
        advised,
        tuple(draft.rejected),
        tuple(draft.notes),
        draft.settings,
        draft.target.replicas,
        tuple(card.name for card in draft.target.cards),
    )


def with_recommended(
    resolved: Resolved, inventory: Inventory, interpreter: Interpreter | None, job: BuiltinJob | CommandJob
) -> Resolved:
    """`resolved` with recommended values in place of defaults, each with its reason as origin.

    Earlier recommendations are recomputed, so that they fit the chosen values. A command keeps its own defaults:
    nothing is filled in for it.
    """
    if isinstance(job, CommandJob):
        return resolved
    given = resolved.given
    found = recommend(inventory, interpreter, job, given)
    origins = {advised.name: Origin(OriginKind.RECOMMENDED, advised.reason) for advised in found.advised}
    return Resolved(found.settings, {**origins, **{name: resolved.origins[name] for name in given}})


def _note_interpreter(draft: RecommendationDraft) -> None:
    interpreter = draft.target.interpreter
    if interpreter is None:
        draft.note("The training interpreter is unknown: only settings that work with every torch are recommended.")
        return
    if interpreter.problem is not None:
        draft.note(interpreter.problem)
    for problem in find_incompatibilities(draft.target.inventory, interpreter):
        draft.note(f"{problem.sentence} {problem.advice}")
    build = draft.target.machine.version_text("torch") or ""
    if not draft.target.on_gpu and ("rocm" in build or "xpu" in build):
        draft.note(
            f"torch {build} may use a GPU that this program cannot see; the recommended settings work without one."
        )


def _note_gpus(draft: RecommendationDraft) -> None:
    target = draft.target
    inventory = target.inventory
    visible = visible_cards(inventory)
    if target.cards and any(not is_same_kind(card, visible[0]) for card in visible):
        _note_unequal_gpus(draft, visible)
    if target.replicas > 1 and target.processes == 1 and not isinstance(target.job, CommandJob):
        draft.note(
            f"One process splits each batch over {target.replicas} GPUs. One process per GPU is faster: "
            f"`--launcher torchrun --processes {target.replicas}`."
        )
    if not target.spread_known and all(is_same_kind(card, visible[0]) for card in visible):
        count = len(target.cards)
        draft.note(
            "The batch is for one GPU. If the command uses a Trainer, its single process splits each step "
            f"over {count} GPUs and the effective batch is that many times larger; the first steps show it. "
            f"One process per GPU is faster: `tuner-tui run --launcher torchrun --processes {count} -- …`, or "
            f"`torchrun --nproc_per_node {count} …`."
        )
    if inventory.gpus and not target.cards and inventory.cuda_visible_devices is not None:
        draft.note(
            f"CUDA_VISIBLE_DEVICES={inventory.cuda_visible_devices} hides every GPU: these settings are for the CPU."
        )
    for card in target.cards:
        if card.mig:
            draft.note(
                f"{card.name} is partitioned (MIG): the driver reports the memory of the whole GPU, not of the slice."
            )
        elif " MIG " in card.name:
            draft.note(
                f"{card.name} is a MIG slice; these values are for its memory. A CUDA process sees one slice: "
                f"{select_cards([card])}."
            )
        elif card.memory_total_bytes is None:
            draft.note(f"The driver does not report the memory of {card.name}, which may share it with the CPU.")


def _note_processor(draft: RecommendationDraft, workload: Workload) -> None:
    """Notes on a training without a GPU: whether it fits the machine's memory, and whether it is worth its time."""
    target, model = draft.target, workload.model
    if target.on_gpu or not isinstance(target.job, BuiltinJob) or model.guessed:
        return
    asked = draft.settings.changed(max_length=max(8, workload.tokens))
    found = estimate(model.shape, asked, target.device, target.processes)
    if found.verdict == "too large":
        size, has = format_size(found.total_bytes), format_size(target.inventory.memory.usable_bytes)
        draft.note(f"Estimate: the training needs {size}, and this machine has {has}. Use a smaller model.")
    elif model.parameters > SLOW_ON_A_PROCESSOR:
        draft.note(
            f"On the CPU, a step of {model.label} takes minutes. `tuner-tui recommend --gpu 3090` plans for a GPU."
        )


def _note_unequal_gpus(draft: RecommendationDraft, visible: tuple[Gpu, ...]) -> None:
    best = best_kind(visible)
    others = [card for card in visible if card not in best]
    if not others:
        names = ", ".join(sorted({card.name for card in visible}))
        draft.note(f"The GPUs differ ({names}): the weakest sets the precision, the smallest sets the batch.")
        return
    least = min(others, key=lambda card: card.memory_total_bytes or 0)
    why = (
        f"each step would wait for the slowest GPU, and the {(least.memory_total_bytes or 0) / GIB:.0f} "
        f"GiB of {describe_cards([least])} would limit every batch"
    )
    if len(draft.target.cards) < len(visible):
        draft.note(f"The GPUs differ. The training uses {describe_cards(best[:1])} alone: {why}.")
    else:
        draft.note(
            f"The GPUs differ. Train on {describe_cards(best)} alone ({select_cards(best)}): {why}. The "
            "values below fit all of them."
        )


def _note_shared_gpus(draft: RecommendationDraft) -> None:
    for card in draft.target.cards:
        held = other_processes_bytes(card)
        if held and card.memory_total_bytes is not None:
            total = card.memory_total_bytes / GIB
            draft.note(
                f"Other programs use {held / GIB:.1f} of {total:.1f} GiB of GPU {card.index}; the batch is sized "
                "for the rest. Close other notebooks."
            )
