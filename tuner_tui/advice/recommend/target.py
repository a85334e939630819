"""What a recommendation is made for (GPUs, cores, packages), and the draft that collects its values."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct, convert
from msgspec.structs import replace

from tuner_tui.advice.recommend.notes import fill_in, read_notes
from tuner_tui.advice.thresholds import OTHER_PROCESS_BYTES
from tuner_tui.core.files import read_data_file
from tuner_tui.core.units import GIB
from tuner_tui.hardware.capabilities import describe_generation, supports
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Gpu, Inventory
from tuner_tui.hardware.sample import GpuSample, Sample
from tuner_tui.memory.device import Device
from tuner_tui.memory.fixed_memory import fixed_sizes
from tuner_tui.memory.known_shapes import known_shape
from tuner_tui.memory.model_shape import FAMILIES_FILE, ModelShape
from tuner_tui.memory.training_code import BUILT_IN, TrainingCode, training_code
from tuner_tui.settings.command_training import own_options, read_command, takes_arguments, uses_pytorch
from tuner_tui.settings.dialects.dialect import dialect_by_name
from tuner_tui.settings.dialects.hf import SCRIPT_FIELDS, to_hf
from tuner_tui.settings.dialects.script_search import words_of
from tuner_tui.settings.distributed import (
    AccelerateConfig,
    Sharding,
    devices_per_process,
    gpus_of_job,
    process_count,
    state_sharding,
    trains_on_cpu,
)
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import Settings, Value
from tuner_tui.settings.rules import RuleContext

OLDER_TRANSFORMERS = {(4, 46): "transformers before 4.46", (4, 49): "older transformers"}
"""The row of training_code.yaml for releases before these."""


class TrainingTarget(Struct, frozen=True):
    """One training on one machine. `gpus` are the visible GPUs; empty on a CPU.

    `replicas` is the number of model copies that share a step, `processes` the number of processes with loader workers
    of their own. `spread_known` is False for a command that may share a step among GPUs in one process, which only its
    run shows; `replicas` is 1 then.
    """

    inventory: Inventory
    interpreter: Interpreter | None
    job: Job
    gpus: tuple[Gpu, ...]
    replicas: int
    processes: int
    spread_known: bool = True

    @property
    def machine(self) -> RuleContext:
        """The same facts as input of the settings rules."""
        return RuleContext(self.gpus, self.interpreter, self.job, self.inventory.cpu.usable_cores)

    @property
    def on_gpu(self) -> bool:
        """Whether the training runs on NVIDIA GPUs."""
        return bool(self.gpus)

    @property
    def memory_bytes(self) -> int | None:
        """Free memory of the smallest GPU, without other programs; None if a GPU does not report it."""
        free = [free_bytes(gpu) for gpu in self.gpus]
        sizes = [size for size in free if size is not None]
        return min(sizes) if sizes and len(sizes) == len(free) else None

    @property
    def device(self) -> Device:
        """The device of one process, for memory estimates; on a CPU the processes share the memory of the host."""
        if not self.on_gpu:
            return Device(False, None, self.inventory.memory.usable_bytes // self.processes)
        gpu, spread = self.weakest, self.replicas if self.processes == 1 else 1
        return Device(True, None if gpu is None else gpu.capability, self.memory_bytes, gpu_count=spread)

    @property
    def sharding(self) -> Sharding | None:
        """What divides a command's weights, gradients or optimizer states."""
        return state_sharding(self.job)

    @property
    def is_modelled(self) -> bool:
        """Whether the memory model knows how the processes divide the training, if they do."""
        return self.sharding is None or self.sharding.is_modelled(self.processes)

    @property
    def weakest(self) -> Gpu | None:
        """The GPU with the lowest compute capability; one of unknown capability first."""
        return min(self.gpus, key=lambda gpu: gpu.capability or (0, 0), default=None)

    @property
    def alone(self) -> TrainingTarget:
        """The same training on the weakest of its GPUs."""
        return replace(self, gpus=self.gpus and (self.weakest or self.gpus[0],), replicas=1, processes=1)

    def trained_with(self, settings: Settings) -> TrainingTarget:
        """The target with `settings`: one GPU where the built-in job's single process leaves the others alone.

        `trainer.training.use_one_gpu_for_large_models` is the same rule.
        """
        if self.processes > 1 or self.replicas == 1 or not isinstance(self.job, BuiltinJob):
            return self
        small = self.job.task == "classification" and settings.peft_method == "none"
        shape = known_shape(self.job.model, self.job.task)
        return self if small and not is_memory_short(shape, self.memory_bytes) else self.alone

    def takes(self, name: str) -> bool:
        """Whether the setting means something to the job: one of `TrainingArguments` does not to every tool."""
        job = self.job
        if isinstance(job, BuiltinJob):
            return True
        command = tuple(job.command), Path(job.cwd or "")
        if name in words_of("of_pytorch") or not uses_pytorch(*command):
            return uses_pytorch(*command)
        if name in job.stated:  # an optimizer of another library
            return False
        tool = dialect_by_name(job.dialect)
        is_file = job.is_unnamed and tool.form != "arguments"
        taking = True if tool.programs or is_file else takes_arguments(*command)
        if taking is False or (taking is None and (job.aliases or job.is_unnamed)):
            return name in job.aliases
        # A file that takes no key it lacks has its settings given already.
        return tool.extends_hf or (tool.takes_more is None and (name in tool.names or name in tool.values))

    def able(self, name: str) -> bool:
        """Whether all GPUs are known to support `name` (bf16, tf32, fp16, flash, fused)."""
        return supports(self.gpus, name) is True

    def has(self, package: str, at_least: tuple[int, int] = (0, 0)) -> bool:
        """Whether the interpreter is known to have the package in version `at_least` or newer."""
        return self.machine.version_text(package) is not None and not self.machine.is_older(package, at_least)

    @property
    def gpu_label(self) -> str:
        """The weakest GPU in words: `Tesla T4 (Turing 7.5)`."""
        gpu = self.weakest
        if trains_on_cpu(self.job):
            return "the command trains on the CPU by its own configuration"
        if gpu is None and self.machine.cpu_build and self.inventory.gpus:
            return "PyTorch here is CPU-only"
        if gpu is None:
            return "no GPU is visible" if self.inventory.gpus else "this machine has no GPU"
        return f"{gpu.name} ({'capability unknown' if gpu.capability is None else describe_generation(gpu)})"


LAYERS_OF_ADAPTERS = ("adapted_layers", "whole_layers")
NOTABLE_SHARE = 0.05
"""The part of a GPU's memory that others take or release before an estimate is computed again."""
MEMORY_SHORT_SHARE = 1 / 3
"""Weights, gradients and AdamW states above this share of the GPU leave too little for a batch."""


def is_memory_short(shape: ModelShape | None, memory_bytes: int | None) -> bool:
    """Whether a full training with AdamW leaves too little of the GPU; False where unknown."""
    before = 0.0 if shape is None else fixed_sizes(shape, Settings()).before_a_sample
    return memory_bytes is not None and before > MEMORY_SHORT_SHARE * memory_bytes


def target_of(
    inventory: Inventory, interpreter: Interpreter | None, job: Job, accelerate: AccelerateConfig | None = None
) -> TrainingTarget:
    """The target of a training. `accelerate` is the configuration found for `accelerate launch`."""
    gpus = gpus_of_job(inventory, job)
    gpus = () if RuleContext(gpus, interpreter, job).no_gpu or trains_on_cpu(job) else gpus
    launched = process_count(job, len(gpus), accelerate)
    takes = isinstance(job, CommandJob) and takes_arguments(tuple(job.command), Path(job.cwd or ""))
    is_assumed = takes is None and getattr(job, "apply", "") == "hf-args"
    each = devices_per_process(job, launched, len(gpus), takes or is_assumed)
    replicas = job.copies(launched) * (each or 1)
    gpus = gpus[:launched] if launched > 1 else gpus
    return TrainingTarget(inventory, interpreter, job, gpus, replicas, launched, each is not None)


def select_gpus(gpus: Sequence[Gpu]) -> str:
    """The environment variable that leaves only `gpus` visible; by UUID, as CUDA may count in another order."""
    return f"CUDA_VISIBLE_DEVICES={','.join(gpu.uuid or str(gpu.index) for gpu in gpus)}"


def describe_gpus(gpus: Sequence[Gpu]) -> str:
    """`GPU 0 (RTX 3090)`, or `2 × RTX 3090`."""
    name = gpus[0].name.removeprefix("NVIDIA ").removeprefix("GeForce ")
    return f"GPU {gpus[0].index} ({name})" if len(gpus) == 1 else f"{len(gpus)} × {name}"


def limit_gpu_memory(inventory: Inventory, limit_bytes: int | None) -> Inventory:
    """The inventory with each GPU's memory limited to `limit_bytes`."""
    if limit_bytes is None:
        return inventory
    limited = {"memory_total_bytes": limit_bytes, "memory_used_bytes": None, "mig": None}
    sizes = ((gpu, free_bytes(gpu)) for gpu in inventory.gpus)
    gpus = (gpu if free is not None and free <= limit_bytes else replace(gpu, **limited) for gpu, free in sizes)
    return replace(inventory, gpus=tuple(gpus))


def free_bytes(gpu: Gpu) -> int | None:
    """The GPU's memory without that of other programs; None if unknown, as for a MIG slice."""
    total = None if gpu.mig else gpu.memory_total_bytes
    return None if total is None else max(0, total - other_processes_bytes(gpu))


def other_processes_bytes(gpu: Gpu) -> int:
    """Memory that other programs hold; a desktop's few hundred MB count as 0."""
    used = gpu.memory_used_bytes or 0
    return used if used > OTHER_PROCESS_BYTES else 0


def with_memory_of_others(inventory: Inventory, sample: Sample) -> Inventory:
    """The inventory with the memory that processes other than those sampled hold now, where that changed notably."""
    pids, figures = {process.pid for process in sample.processes}, {gpu.index: gpu for gpu in sample.gpus}
    gpus = tuple(_with_memory_of_others(gpu, figures.get(gpu.index), pids) for gpu in inventory.gpus)
    return inventory if gpus == inventory.gpus else replace(inventory, gpus=gpus)


def _with_memory_of_others(gpu: Gpu, figures: GpuSample | None, pids: Collection[int]) -> Gpu:
    used, total = (None, None) if figures is None else (figures.memory_used_bytes, gpu.memory_total_bytes)
    if figures is None or used is None or total is None or (pids and figures.processes is None):
        return gpu  # what the training has of it is not known
    mine = [process.memory_bytes for process in figures.processes or () if process.pid in pids]
    others = used - sum(size or 0 for size in mine)
    notable = abs(others - (gpu.memory_used_bytes or 0)) > min(GIB, NOTABLE_SHARE * total)
    return replace(gpu, memory_used_bytes=max(0, others)) if notable and None not in mine else gpu


def occupied_gpus(gpus: Sequence[Gpu]) -> str | None:
    """How much of the GPUs other programs hold, and which of several has most room; None if they hold nothing."""
    measured = [gpu for gpu in gpus if gpu.memory_total_bytes is not None]
    held = [(gpu, size) for gpu in measured if (size := other_processes_bytes(gpu))]
    if not held:
        return None
    first, sizes = held[0][0], [size / GIB for _, size in held]
    least, most = f"{min(sizes):.1f}", f"{max(sizes):.1f}"
    if len(gpus) == 1:
        return f"Other programs use {most} of {(first.memory_total_bytes or 0) / GIB:.1f} GiB of GPU {first.index}"
    several = f"each of {len(held)} GPUs" + f" (of {len(gpus)})" * (len(held) < len(gpus))
    which = f"GPU {first.index}" if len(held) == 1 else several
    amount = most if least == most else f"{least}–{most}"
    room, free = max(((free_bytes(gpu) or 0, gpu) for gpu in measured), key=lambda each: each[0])
    return f"Other programs use {amount} GiB of {which}; GPU {free.index} has the most free, {room / GIB:.0f} GiB"


class ConsideredValue(Struct, frozen=True):
    """A value that is recommended or was rejected, with the reason and its source."""

    name: str
    value: Value
    reason: str
    source: str


class RecommendationDraft:
    """Collects recommendations. `given` values stay, and everything else is fitted to them."""

    def __init__(self, target: TrainingTarget, given: Mapping[str, Value]) -> None:
        self.target = target
        self.given = dict(given)
        self.advised: dict[str, ConsideredValue] = {}
        self.rejected: list[ConsideredValue] = []
        self.notes: list[str] = []

    @property
    def settings(self) -> Settings:
        """The current settings: defaults, recommendations so far, given values."""
        return convert({name: advised.value for name, advised in self.advised.items()} | self.given, Settings)

    def of(self, target: TrainingTarget) -> RecommendationDraft:
        """The same values for another target."""
        draft = RecommendationDraft(target, self.given)
        draft.advised = dict(self.advised)
        return draft

    def advise(self, name: str, value: Value, reason: str, source: str) -> None:
        """Recommends a value, unless one is given or the installed transformers has no such argument."""
        if self._is_settled(name, value):
            return
        if self._carried(name, value):
            self.advised[name] = ConsideredValue(name, value, reason, source)
        else:
            self.reject(name, value, "the installed transformers has no such argument", "transformers")

    def reject(self, name: str, value: Value, reason: str, source: str) -> None:
        if not self._is_settled(name, value):
            self.rejected.append(ConsideredValue(name, value, reason, source))

    def _is_settled(self, name: str, value: Value) -> bool:
        """Whether the training has a value of its own, or this one by its tool's default."""
        job = self.target.job
        is_default = isinstance(job, CommandJob) and dialect_by_name(job.dialect).defaults.get(name) == value
        return name in self.given or is_default or not self.target.takes(name)

    def why(self, row: str, **figures: object) -> tuple[str, str]:
        """The reason and the source of a row of `notes.yaml`."""
        text = read_notes("reasons")[row]
        return fill_in(text["reason"], gpu=self.target.gpu_label, **figures), fill_in(text["source"])

    def note(self, row: str, **figures: object) -> None:
        self.notes.append(fill_in(read_notes("notes")[row], **figures))

    def _carried(self, name: str, value: Value) -> bool:
        interpreter = self.target.interpreter
        names = None if interpreter is None else interpreter.training_arguments
        script = SCRIPT_FIELDS if isinstance(self.target.job, BuiltinJob) else frozenset()
        if names is None or name in SCRIPT_FIELDS - script:
            return True
        settings = convert({name: value}, Settings)
        return not to_hf(settings, names, only=(name,), extra=script).unsupported


def training_code_of(job: Job, interpreter: Interpreter | None) -> TrainingCode:
    """What the code that trains `job` does with memory: by its tool, script, options and installed packages."""
    machine = RuleContext((), interpreter, job)
    releases = (row for release, row in OLDER_TRANSFORMERS.items() if machine.is_older("transformers", release))
    code = training_code(next(releases, ""))
    if machine.is_older("bitsandbytes", (0, 44)):
        code = replace(code, keeps_inputs=True)
    if not isinstance(job, CommandJob):
        return code
    deepspeed = job.launcher == "deepspeed" or any("deepspeed" in word for word in job.command)
    tool_code = training_code("deepspeed" if deepspeed else job.dialect)
    if tool_code != BUILT_IN:
        code = replace(tool_code, keeps_inputs=code.keeps_inputs)
    upcasts, adapted, whole_layers, by_liger = _read_code(tuple(job.command), job.cwd or "")
    for name in ("liger",) * by_liger + ("whole layers",) * bool(whole_layers):
        row = training_code(name)
        logits = row.logit_bytes if name == "liger" else code.logit_bytes
        code = replace(code, logit_bytes=logits, uncertainty=row.uncertainty, unknown=row.unknown)
    return replace(code, upcasts=upcasts, adapted=adapted or code.adapted, whole_layers=whole_layers)


@lru_cache(maxsize=8)
def _read_code(command: tuple[str, ...], folder: str) -> tuple[bool, tuple[str, ...], int, bool]:
    """Whether the script prepares a quantized model by peft, the roles of layers with adapters, how many layers of the
    vocabulary are trained whole, and if Liger computes. No roles where all have adapters, or some of unknown names.
    """
    options = own_options(CommandJob(command=command, cwd=folder))
    modules = read_data_file(FAMILIES_FILE)["modules"]
    layers = {name for names in modules.values() for name in names}
    given = [next((options[name] for name in words_of(kind) if options.get(name)), ()) for kind in LAYERS_OF_ADAPTERS]
    split = (re.split(r"[\s,]+", value.strip()) if isinstance(value, str) else value for value in given)
    adapted, whole = (tuple(map(str, value)) if isinstance(value, list | tuple) else () for value in split)
    names = {*adapted} or {name for name, value in options.items() if value is True and name in layers}
    roles = tuple(role for role, spellings in modules.items() if not names.isdisjoint(spellings))
    by_liger = any("liger" in name and str(value).lower() == "true" for name, value in options.items())
    whole_layers = len({*whole} & {*modules["vocabulary"]})
    return read_command(command, Path(folder)).upcasts, roles if names <= layers else (), whole_layers, by_liger
