"""How one training would go on GPUs that are not in this machine: does it fit, how large a batch, how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct, structs

from tuner_tui.advice.batch_scaling import rebalance
from tuner_tui.advice.estimate import JobMemoryEstimator, estimate_by_trace
from tuner_tui.advice.recommend.duration_estimate import DurationEstimate, estimate_duration
from tuner_tui.advice.recommend.recommendation import with_recommended
from tuner_tui.advice.recommend.target import TrainingTarget, target_of, training_code_of
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.hardware.known_gpus import PlannedGpus, planned_interpreter, planned_inventory
from tuner_tui.memory.estimate import MemoryEstimate
from tuner_tui.memory.trace import trace_together
from tuner_tui.settings.distributed import state_sharding
from tuner_tui.settings.job import SHAPES, BuiltinJob, Job
from tuner_tui.settings.model import Resolved, Settings


class GpuPlan(Struct, frozen=True):
    """The training on `gpus` with `settings`; `best` is None if the model is not known.

    `fitting` are the settings to change so that it fits, in the order of least harm; None if nothing known makes it
    fit, empty if it fits as it is. `not_traced` is why the estimate is a closed form.
    """

    gpus: PlannedGpus
    settings: Settings
    estimator: JobMemoryEstimator
    best: MemoryEstimate | None
    fitting: dict[str, object] | None
    duration: DurationEstimate | None
    not_traced: str | None = None


def plan_gpus(
    gpus: Sequence[PlannedGpus],
    inventory: Inventory,
    interpreter: Interpreter,
    resolved: Resolved,
    job: BuiltinJob,
    launched: Job,
    before_tracing: Callable[[int], None] = lambda number: None,
) -> tuple[GpuPlan, ...]:
    """The plan for each of `gpus` in a machine otherwise like this one; seconds for a model not traced before.

    `launched` is what trains, a command perhaps, and `job` the built-in job that computes as much.
    Settings that are not chosen are those recommended for the GPUs. Traces run on the CPU with this interpreter; what
    CUDA adds is that of a GPU. `before_tracing` is called with the number of traces to make, if any.
    """
    python = planned_interpreter(interpreter)
    trace = partial(estimate_by_trace, before=partial(before_tracing, 1))
    code, sharding = training_code_of(launched, interpreter), state_sharding(launched)
    trainings = []
    for planned in gpus:
        machine = planned_inventory(inventory, planned)
        chosen = with_recommended(resolved, machine, python, job, trace).settings
        target = target_of(machine, python, job)
        if sharding is None:
            target = target.trained_with(chosen)
        else:  # one process for each of these GPUs, however many the command names
            target = structs.replace(target, processes=len(target.gpus))
        estimator = JobMemoryEstimator(job, target.device, target.processes, python, code=code, sharding=sharding)
        trainings.append((planned, chosen, target, estimator))
    problems: Sequence[str | None] = [estimator.untraceable for *_, estimator in trainings]
    if not any(problems):
        questions = ((job, chosen, target.device) for _, chosen, target, _ in trainings)
        problems = trace_together(python, questions, before_tracing)
    plans = []
    for (planned, chosen, target, estimator), problem in zip(trainings, problems, strict=True):
        best = estimator.at_once(chosen)
        fitting = None if best is None else make_fit(estimator, chosen, target, best)
        duration = estimate_duration(job, chosen, target.replicas, (), [gpu.name for gpu in planned.gpus])
        plans.append(GpuPlan(planned, chosen, estimator, best, fitting, duration, problem))
    return tuple(plans)


def make_fit(
    estimator: JobMemoryEstimator, settings: Settings, target: TrainingTarget, best: MemoryEstimate
) -> dict[str, object] | None:
    """The changes that make `settings` fit, empty if they do; None if none of those tried suffices.

    Tried in the order of least harm, each added to those before: a smaller micro batch with the effective batch held,
    gradient checkpointing, 8-bit optimizer states, weights in bf16, LoRA, 4-bit weights. Judged by
    `MemoryEstimate.verdict`.
    """
    if best.verdict in ("fits", "unknown"):
        return {}
    tried = settings
    for change in ({}, *_memory_savers(settings, target)):
        tried = tried.changed(**change)
        estimated = estimator.best(tried)
        largest = None if estimated is None else estimated.largest_batch()
        if largest:
            micro, accumulation = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
            split = rebalance(micro, accumulation, target.replicas, min(largest, micro))
            tried = tried.changed(**split.change)
            return {name: value for name, value in structs.asdict(tried).items() if value != getattr(settings, name)}
    return None


def _memory_savers(settings: Settings, target: TrainingTarget) -> Iterator[dict[str, object]]:
    runs_bitsandbytes = target.on_gpu and target.machine.gpu_below("4-bit") is None
    random_weights = isinstance(target.job, BuiltinJob) and target.job.model in SHAPES
    if settings.per_device_eval_batch_size > 1 and settings.eval_strategy != "no":
        yield {"per_device_eval_batch_size": 1}
    if not settings.gradient_checkpointing:
        yield {"gradient_checkpointing": True}
    if "8bit" not in settings.optim and settings.peft_method == "none" and runs_bitsandbytes:
        yield {"optim": "adamw_bnb_8bit"}
    if settings.peft_method == "none" and settings.precision == "bf16" and settings.weights_dtype in ("auto", "fp32"):
        yield {"weights_dtype": "bf16"}
    if random_weights:  # on which adapters learn next to nothing
        return
    if settings.peft_method == "none":
        yield {"peft_method": "lora", "optim": settings.optim, "weights_dtype": settings.weights_dtype}
    if settings.quantization == "none" and runs_bitsandbytes:
        yield {"quantization": "nf4", "bnb_4bit_use_double_quant": True}
