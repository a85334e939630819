"""The number of processes and devices of a training, from its launcher, its command and accelerate's configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.hardware.environment import visible_gpus
from tuner_tui.hardware.inventory import Gpu, Inventory
from tuner_tui.settings.argv import launcher_options
from tuner_tui.settings.dialects.command_words import read_options, read_overrides
from tuner_tui.settings.dialects.file_formats import values_of_file
from tuner_tui.settings.dialects.nested_values import flatten
from tuner_tui.settings.dialects.script_search import pattern_of, read_source, words_of
from tuner_tui.settings.dialects.shell_script import read_shell
from tuner_tui.settings.dialects.stated import stated_in
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.yaml_reader import parse_tool_text

_read_shell, _parsed = (lru_cache(maxsize=32)(read) for read in (read_shell, parse_tool_text))
SINGLE_PROCESS_TYPES = frozenset({"NO", "MULTI_CPU"})
"""Values of `distributed_type` that start one process whatever the number given (`MULTI_CPU` leaves it to mpirun)."""


class Sharding(Struct, frozen=True):
    """How the processes of a training divide its state among them.

    `stage` is DeepSpeed's: from 1 on the optimizer states, from 2 on the gradients, at 3 the weights are divided; None
    if unknown. `name` is what the command calls it. What is offloaded lies in the memory of the host, or `on_disk`.
    """

    name: str
    stage: int | None = None
    by_deepspeed: bool = False
    offloads_optimizer: bool = False
    offloads_weights: bool = False
    on_disk: bool = False

    def is_modelled(self, processes: int) -> bool:
        """Whether the memory of one of `processes` is known; with weights on the host it is not."""
        return self.stage is not None and not self.offloads_weights and processes > 1


class AccelerateConfig(Struct, frozen=True):
    """Launch options from configuration files. `distributed_type` is None if accelerate has no file of its own."""

    path: Path
    distributed_type: str | None
    num_processes: int | None
    mixed_precision: str | None
    sharding: Sharding | None = None

    @property
    def summary(self) -> str:
        """One line for the user: `2 processes (MULTI_GPU), bf16, by /…/default_config.yaml`."""
        count = self.num_processes if self.distributed_type not in SINGLE_PROCESS_TYPES else 1
        parts = [] if count is None else [f"{count} process" + ("es" if count > 1 else "")]
        if parts and self.distributed_type not in (None, "NO"):
            parts[0] += f" ({self.distributed_type})"
        parts += [self.mixed_precision] if self.mixed_precision else []
        return ", ".join([*parts, f"by {self.path}"])


def read_accelerate_config(job: Job, environ: Mapping[str, str], cwd: Path) -> AccelerateConfig | None:
    """The configuration with which accelerate starts `job` in `cwd`; None if it does not, or has no file to be read."""
    if job.launcher == "accelerate":
        return _read_config(_default_config_path({**environ, **job.env}))
    if job.launcher != "plain" or not isinstance(job, CommandJob):
        return None
    cwd = cwd / (job.cwd or "")
    program, options = _launcher(job.command)
    if program == "by accelerate":
        return _tool_config(options, {**environ, **job.env}, cwd)
    named = options.get("config_file")
    if program != "accelerate" or (named is None and "cpu" in options):
        return None
    return _read_config(cwd / named if named else _default_config_path({**environ, **job.env}))


def _launcher(command: Sequence[str]) -> tuple[str | None, Mapping[str, str]]:
    """What starts the processes below srun, in the words of `launchers`, and its options."""
    program, index = next(((name, at) for name, at in _programs_in(command) if name != "srun"), (None, 0))
    if program == "by accelerate":
        return program, read_options(tuple(command))
    return program, launcher_options(command[index + 1 :])


def _programs_in(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """What starts processes in the command, in the words of `launchers`, and its place; not arguments of a script."""
    launchers: Mapping[str, str] = words_of("launchers")
    for index, word in enumerate(command):
        if word.endswith(".py"):
            return
        if (name := PurePath(word).name) in launchers:
            yield launchers[name], index


def _tool_config(options: Mapping[str, str], env: Mapping[str, str], cwd: Path) -> AccelerateConfig | None:
    """The configuration that trl passes to accelerate: `--accelerate_config` is a file.

    It may also name a configuration shipped with trl; those are not read.
    """
    file_values = values_of_file(cwd / options["config"]) if "config" in options else {}
    named = options.get("accelerate_config") or options.get("config_file") or file_values.get("accelerate_config")
    processes = _positive_int(file_values.get("num_processes"))
    config = _read_config(cwd / str(named) if named else _default_config_path(env))
    base = config or AccelerateConfig(cwd / options.get("config", ""), None, None, None)
    return config if processes is None else replace(base, num_processes=processes)


def _default_config_path(env: Mapping[str, str]) -> Path:
    cache = Path(env.get("XDG_CACHE_HOME", Path(env.get("HOME", "~"), ".cache")))
    home = Path(env.get("HF_HOME", cache / "huggingface"))
    return home.expanduser() / "accelerate" / "default_config.yaml"


def _read_config(path: Path) -> AccelerateConfig | None:
    values = values_of_file(path)
    if not values or values.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        return None
    kind = str(values.get("distributed_type") or "NO").upper()  # YAML 1.1 reads a bare `NO` as false
    count = 1 if kind == "NO" else _positive_int(values.get("num_processes"))
    precision = values.get("mixed_precision")
    shown = str(precision) if isinstance(precision, str) and precision != "no" else None
    return AccelerateConfig(path, kind, count, shown, _accelerate_sharding(kind, values, path.parent))


def _positive_int(value: Any) -> int | None:
    """A number of processes; None for -1, which asks for one on the command line."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


ACCELERATE_MULTI_PROCESS_OPTIONS = frozenset({"multi_gpu", "tpu", "use_fsdp", "use_deepspeed", "use_megatron_lm"})
"""Options of `accelerate launch` that override `distributed_type` of its file."""
NUMBER = re.compile(r"[0-9]{1,6}")


SPLITS = re.compile(r"(?i)(?!.*no_shard).*(?:fsdp|deepspeed|zero|ds_|shard|megatron|\.json$)")
ZERO_STAGE = re.compile(r"(?i)(?:zero|stage|ds_?z|deepspeed)[_-]?(?:stage)?[=_-]?([0-3])(?!\d)")
FSDP_STAGES = {"FULL_SHARD": 3, "HYBRID_SHARD": 3, "1": 3, "4": 3, "SHARD_GRAD_OP": 2, "2": 2, "HYBRID_SHARD_ZERO2": 2}
"""The stages of FSDP's strategies, by the names and numbers that accelerate takes."""


def state_sharding(job: Job | None) -> Sharding | None:
    """What splits weights, gradients or optimizer states over the processes, by the command and its files."""
    if not isinstance(job, CommandJob):
        return None
    folder = Path(job.cwd or "")
    words = [str(job.stated.get(name, "")) for name in ("sharding", "strategy")]
    options = read_options(training_words(job.command, folder))
    # trl names configurations that it ships: `--accelerate_config zero3`.
    words += [options.get(name, "") for name in ("deepspeed", "deepspeed_config", "fsdp", "accelerate_config")]
    config = read_accelerate_config(job, os.environ, Path())
    shardings = [config.sharding] if config is not None and config.sharding is not None else []
    shardings += [_sharding_by_word(word, folder) for word in words if SPLITS.match(word)]
    given = [name for name in words_of("shards") if options.get(name, "0").lower() not in ("0", "false")]
    shardings += [_sharding_of_launcher(f"--{given[0]}", options)] if given else []
    with_stage = (sharding for sharding in shardings if sharding.stage is not None)
    sharding = next(with_stage, next(iter(shardings), None))
    return None if sharding is not None and sharding.stage == 0 else sharding


def _sharding_by_word(word: str, folder: Path) -> Sharding:
    """By a file of DeepSpeed, or by words: `zero2`, `full_shard auto_wrap offload`, `deepspeed_stage_3`."""
    if word.endswith(".json") and (values := values_of_file(folder / word)):
        flat, section = flatten(values), "zero_optimization"
        devices = (flat.get(f"{section}.offload_{part}.device") for part in ("optimizer", "param"))
        return _deepspeed_sharding(word, flat.get(f"{section}.stage", 0), *devices)
    offloads = re.search(r"(?i)(?<!no)(?<!no[_-])off(?:loa)?d", word) is not None
    if stage := ZERO_STAGE.search(word):
        return Sharding(word, int(stage[1]), True, offloads, offloads and stage[1] == "3")
    if re.search(r"(?i)fsdp|full_shard|hybrid_shard", word):
        return Sharding(word, 3, False, offloads, offloads)
    return Sharding(word, 2, False, offloads, offloads) if "shard_grad_op" in word.lower() else Sharding(word)


def _deepspeed_sharding(name: str, stage: object, *devices: object) -> Sharding:
    """By the devices that the optimizer states and the weights are moved to."""
    number = int(str(stage)) if re.fullmatch("[0-3]", str(stage)) else None
    optimizer, weights = (device not in (None, "none", "") for device in devices)
    return Sharding(name, number, True, optimizer, weights, "nvme" in devices)


def _accelerate_sharding(kind: str, values: Mapping[str, Any], folder: Path) -> Sharding | None:
    """By the part of accelerate's file that belongs to its `distributed_type`."""
    if kind not in ("DEEPSPEED", "FSDP"):
        return Sharding(kind) if SPLITS.match(kind) else None
    part = values.get(f"{kind.lower()}_config")
    options = {str(name): str(value) for name, value in part.items()} if isinstance(part, dict) else {}
    if (file := options.get("deepspeed_config_file")) is not None:
        return replace(_sharding_by_word(file, folder), name=kind)
    return _sharding_of_launcher(kind, options)


def _sharding_of_launcher(name: str, options: Mapping[str, str]) -> Sharding:
    """By the options of `accelerate launch`, which have the same names in its file."""
    stage = options.get("zero_stage") or options.get("ds.zero_stage", "")
    if "deepspeed" in name.lower() or stage:
        return _deepspeed_sharding(name, stage, *map(options.get, ("offload_optimizer_device", "offload_param_device")))
    strategy = options.get("fsdp_sharding_strategy", "FULL_SHARD").upper()
    reshards = options.get("fsdp_reshard_after_forward", "true").lower()
    stage_of_strategy = 2 if reshards == "false" else FSDP_STAGES.get(strategy, 0)
    offloads_all = options.get("fsdp_offload_params", "false").lower() == "true"
    return Sharding(name, stage_of_strategy, False, offloads_all, offloads_all)


def gpus_of_job(inventory: Inventory, job: Job | None) -> tuple[Gpu, ...]:
    """The visible GPUs that a training uses.

    Of unequal ones the built-in job takes the best alone where the slowest and smallest would limit one process. A
    command may choose some; where these are not here, as many are meant.
    """
    gpus = visible_gpus(inventory)
    chosen = job.env.get("CUDA_VISIBLE_DEVICES", "") if job is not None else ""
    if re.fullmatch(r"\d+(,\d+)*", chosen):
        return visible_gpus(replace(inventory, cuda_visible_devices=chosen)) or gpus[: chosen.count(",") + 1]
    best = best_kind(gpus)
    is_limited = isinstance(job, BuiltinJob) and job.launcher == "plain" and best != gpus
    return best[:1] if is_limited else gpus


def best_kind(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The GPUs of the kind with most memory, then of the newest generation; all, if one of them is unknown."""
    if any(gpu.memory_total_bytes is None or gpu.capability is None for gpu in gpus):
        return gpus
    best = max(gpus, key=lambda gpu: (gpu.memory_total_bytes or 0, gpu.capability or (0, 0)), default=None)
    return tuple(gpu for gpu in gpus if best is not None and is_same_kind(gpu, best))


def is_same_kind(first: Gpu, second: Gpu) -> bool:
    """Whether two GPUs have the same name and, within 5 %, the same memory."""
    sizes = sorted((first.memory_total_bytes or 0, second.memory_total_bytes or 0))
    return first.name == second.name and sizes[0] >= 0.95 * sizes[1]


def process_count(job: Job, gpu_count: int | None = None, accelerate: AccelerateConfig | None = None) -> int:
    """The number of training processes, at least 1; `gpu_count` is the number of visible GPUs, None if unknown."""
    if job.launcher != "plain":
        return job.processes
    if isinstance(job, BuiltinJob) or "processes" in job.stated:
        return 1
    folder = Path(job.cwd or "")
    started = _command_processes(training_words(job.command, folder), job.env, gpu_count, accelerate, folder)
    on_all = job.stated.get("devices") == "all" or job.dialect in words_of("on_all_gpus")
    return max(1, started) if started != 1 else int(job.stated.get("gpus", (on_all and gpu_count) or 1))


def trains_on_cpu(job: Job | None) -> bool:
    """Whether a command trains on the CPU by its configuration or an option: `--cpu`, `--device cpu`."""
    options = read_options(job.command).items() if isinstance(job, CommandJob) else ()
    given = {f"{name}={word.lower()}" for name, word in options if name in words_of("on_cpu")}
    return getattr(job, "on_cpu", False) or any(map(pattern_of("cpu_options").fullmatch, given))


def training_words(command: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """The words of the training that a shell script started as a whole starts; else those of the command."""
    if command[0] == "bash" and len(command) > 1:
        path = folder / command[1]
        with suppress(SettingsError):
            return _read_shell(read_source(path), str(path)).words or command
    return command


def requested_processes(job: Job) -> int | None:
    """The number that the option `--num_processes` of `accelerate launch` in a command asks for, None without it."""
    if job.launcher != "plain" or not isinstance(job, CommandJob):
        return None
    program, options = _launcher(job.command)
    number = options.get("num_processes", "")
    return int(number) if program == "accelerate" and NUMBER.fullmatch(number) else None


def launcher_in(command: Sequence[str]) -> tuple[str, int] | None:
    """The first program of the command that starts processes on several nodes, and where its options begin."""
    for program, index in _programs_in(command):
        if program in ("srun", "torchrun", "accelerate", "deepspeed"):
            return program, index + (2 if command[index].endswith("accelerate") else 1)  # accelerate launch
    return None


def devices_per_process(job: Job, processes: int, gpu_count: int, by_trainer: bool) -> int | None:
    """The GPUs on which one process runs a step: a Trainer uses all that are visible (`DataParallel`).

    None if unknown: a command may run a loop for one GPU, or a tool that starts further processes.
    """
    if processes > 1 or gpu_count <= 1:
        return 1
    if isinstance(job, BuiltinJob):
        return gpu_count
    program, _ = _launcher(training_words(job.command, Path(job.cwd or "")))
    on_one = job.stated.get("gpus") == 1 or pattern_of("on_one_gpu").search(" ".join(job.command))
    if on_one or program in ("torchrun", "deepspeed"):  # which give each process its own
        return 1
    return gpu_count if by_trainer else None


def _command_processes(
    command: Sequence[str],
    env: Mapping[str, str],
    gpu_count: int | None,
    accelerate: AccelerateConfig | None,
    folder: Path,
) -> int:
    program, options = _launcher(command)
    match program:
        case "torchrun":
            each = options.get("nproc_per_node") or env.get("PET_NPROC_PER_NODE", "1")
            nodes = options.get("nnodes") or env.get("PET_NNODES", "1")
            return _parse_process_count(each, gpu_count) * _parse_node_count(nodes)
        case "accelerate" | "by accelerate":
            # The nodes of a cluster have GPUs although the login node may have none.
            on_cluster = program == "accelerate" and "PET_NNODES" in env
            return _accelerate_processes(options, None if on_cluster else gpu_count, accelerate)
        case "deepspeed":
            return _deepspeed_processes(options, env, gpu_count)
        case "ms-swift" | "llama-factory" | "composer":
            each = env.get("NPROC_PER_NODE", "1" if program == "ms-swift" else "auto")
            return _parse_process_count(options.get("nproc", each), gpu_count)
    if program is None and (tasks := pattern_of("srun_tasks").search(" ".join(command))):
        return int(tasks[1])
    given = {**read_overrides(tuple(command)), **read_options(tuple(command))}
    requested = next((value for name, value in given.items() if re.search(r"^num_gpus$|\btrainer\.devices$", name)), "")
    if requested:  # detectron2, Lightning
        return _parse_process_count(requested, gpu_count)
    names, count = (word.rpartition("=")[2] for word in command), 1
    files = (folder / name for name in names if name.endswith((".yaml", ".yml")))
    for file in files:
        with suppress(SettingsError):
            count = max(count, int(stated_in(flatten(_parsed(read_source(file), "").values), None).get("gpus", 1)))
    return count


def _accelerate_processes(options: Mapping[str, str], gpu_count: int | None, file: AccelerateConfig | None) -> int:
    """Follows `accelerate launch`: options, then `distributed_type`, then the GPUs decide on several processes."""
    # In the order of accelerate's `launch_command`: `--cpu` and the options that name a kind of distribution win over
    # the configuration file, and without either it starts one process per GPU.
    kind = None if file is None else file.distributed_type
    spreads = gpu_count is None or gpu_count > 1 if kind is None else kind not in SINGLE_PROCESS_TYPES
    if "cpu" in options or not (spreads or ACCELERATE_MULTI_PROCESS_OPTIONS & options.keys()):
        return 1
    configured = None if file is None or file.num_processes is None else str(file.num_processes)
    return _parse_process_count(options.get("num_processes") or configured or "auto", gpu_count)


def _deepspeed_processes(options: Mapping[str, str], env: Mapping[str, str], gpu_count: int | None) -> int:
    """`--include host:0,2@other:1` lists the GPUs; otherwise `--num_gpus` on each of `--num_nodes`."""
    included = options.get("include")
    if included:
        return sum(len(slots.split(",")) for _, _, slots in (host.partition(":") for host in included.split("@")))
    nodes = _parse_node_count(options.get("num_nodes") or env.get("PET_NNODES", "1"))
    return nodes * _parse_process_count(options.get("num_gpus", "auto"), gpu_count)


def _parse_process_count(word: str, gpu_count: int | None) -> int:
    """A number, or `auto` and `gpu`: one process for each GPU."""
    if NUMBER.fullmatch(word):
        return int(word)
    return max(1, gpu_count or 0) if word in {"auto", "gpu"} else 1


def _parse_node_count(word: str) -> int:
    """torchrun's `2`, or `1:4` of an elastic training, which starts with the smaller number."""
    first = word.partition(":")[0]
    return int(first) if NUMBER.fullmatch(first) and int(first) > 0 else 1
