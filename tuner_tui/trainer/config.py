"""Parses the configuration: one flat mapping with fields of `TrainingArguments` and of the job."""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import torch

from .errors import JobError, first_line
from .hub import SHAPES

if TYPE_CHECKING:
    from transformers import TrainingArguments

TASKS = ("classification", "causal-lm")
PEFT_METHODS = ("none", "lora", "dora")
WEIGHTS_DTYPES = ("auto", "saved", "fp32", "bf16")
QUANTIZATIONS = ("none", "int8", "nf4", "fp4")
COMPUTE_DTYPES = ("auto", "fp32", "fp16", "bf16")


@dataclass
class JobArguments:
    """Model, data and task; everything else is in `TrainingArguments`."""

    task: str = field(default="classification", metadata={"help": "classification or causal-lm", "choices": TASKS})
    model: str = field(default="tiny", metadata={"help": "A Hub id, a local folder, or the name of a built-in shape"})
    data: str = field(default="stdlib", metadata={"help": "A CSV, JSONL or Parquet file, a Hub dataset, or stdlib"})
    text_column: str | None = field(default=None, metadata={"help": "Default: detected by its usual names"})
    text_pair_column: str | None = field(default=None, metadata={"help": "The second text of a pair"})
    label_column: str | None = field(default=None, metadata={"help": "Default: detected by its usual names"})
    max_samples: int | None = field(default=None, metadata={"help": "Use at most this many training samples"})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run code from a Hub model"})
    max_length: int = field(default=128, metadata={"help": "Tokens kept of each sample; block size for causal-lm"})
    attn_implementation: str | None = field(default=None, metadata={"help": "auto or absent: Transformers' choice"})
    peft_method: str = field(default="none", metadata={"help": "none, lora or dora", "choices": PEFT_METHODS})
    lora_r: int = field(default=16, metadata={"help": "Rank of the adapters"})
    lora_alpha: int = field(default=32, metadata={"help": "Adapter scale: alpha divided by rank"})
    lora_dropout: float = field(default=0.0, metadata={"help": "Dropout before the adapters"})
    weights_dtype: str = field(
        default="auto",
        metadata={"help": "auto: fp32 for full training, as saved under adapters", "choices": WEIGHTS_DTYPES},
    )
    quantization: str = field(
        default="none", metadata={"help": "Frozen weights under adapters in 8 or 4 bits", "choices": QUANTIZATIONS}
    )
    bnb_4bit_compute_dtype: str = field(
        default="auto", metadata={"help": "auto: as precision", "choices": COMPUTE_DTYPES}
    )
    bnb_4bit_use_double_quant: bool = field(default=False, metadata={"help": "Quantize the scales of 4-bit weights"})


def parse_config(values: dict[str, Any], path: str = "config") -> tuple[JobArguments, TrainingArguments]:
    """`values` as checked arguments. Unknown keys, wrong types and impossible combinations raise `JobError`."""
    from transformers import TrainingArguments  # takes two seconds, which a memory trace does not need

    job_keys = get_type_hints(JobArguments)
    all_keys = {**get_type_hints(TrainingArguments), **job_keys}
    own = {f.name for f in dataclasses.fields(TrainingArguments) if f.init} | set(job_keys)
    for key in values:
        if key not in own:
            raise JobError(f"{path}: unknown key `{key}`{did_you_mean(key, own)}")
    typed = {key: coerce_value(key, value, all_keys[key], path) for key, value in values.items()}
    job = check_job(JobArguments(**{key: value for key, value in typed.items() if key in job_keys}), path)
    return job, build_training_arguments({key: value for key, value in typed.items() if key not in job_keys}, job, path)


def did_you_mean(key: str, known: set[str]) -> str:
    """`, did you mean …?` for a key similar to a known one, else an empty string."""
    close = difflib.get_close_matches(key, sorted(known), n=1)
    return f", did you mean `{close[0]}`?" if close else ""


def coerce_value(key: str, value: Any, hint: Any, path: str) -> Any:
    """Convert `value` to the type of `key`: `1e-5`, which YAML reads as text, becomes a number. Raises `JobError`."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if value is None or isinstance(value, (dict, list)) or str in kinds or not {bool, int, float} & set(kinds):
        return value
    if bool in kinds and isinstance(value, bool):
        return value
    number = parse_number(value)
    if number is not None and float in kinds:
        return number
    if number is not None and int in kinds and float(number).is_integer():
        return int(number)
    wanted = "a number" if float in kinds else "a whole number" if int in kinds else "true or false"
    raise JobError(f"{path}: `{key}` must be {wanted}, not {value!r}")


def parse_number(value: Any) -> int | float | None:
    """The number that a value or its text is; None for anything else, booleans included."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def check_job(job: JobArguments, path: str) -> JobArguments:
    """Return `job` if its fields are valid. Raises `JobError`."""
    for item in dataclasses.fields(job):
        choices = item.metadata.get("choices")
        value = getattr(job, item.name)
        if choices and value not in choices:
            raise JobError(f"{path}: `{item.name}` must be one of {', '.join(choices)}, not {value!r}")
    if job.quantization != "none" and job.peft_method == "none":
        raise JobError(f"{path}: {job.quantization} weights cannot be trained; set `peft_method: lora`")
    if job.quantization != "none" and job.model in SHAPES:
        raise JobError(f"{path}: {job.model} starts from random weights; `quantization` needs a trained model")
    for name in ("max_samples", "max_length", "lora_r", "lora_alpha"):
        value = getattr(job, name)
        if value is not None and value < 1:
            raise JobError(f"{path}: `{name}` must be at least 1, not {value}")
    return job


def build_training_arguments(values: dict[str, Any], job: JobArguments, path: str) -> TrainingArguments:
    """`TrainingArguments` of the installed Transformers, with defaults that this job needs. Raises `JobError`."""
    from transformers import TrainingArguments

    if "output_dir" not in values:
        raise JobError(f"{path}: `output_dir` is missing: the folder for checkpoints and the trained model")
    names = {f.name for f in dataclasses.fields(TrainingArguments)}
    defaults: dict[str, Any] = {"report_to": "none", "prediction_loss_only": job.task == "causal-lm"}
    if not has_accelerator():
        defaults["use_cpu"] = True  # otherwise Transformers rejects bf16 without a GPU, which a CPU supports
    for prefix in ("activation_checkpointing", "gradient_checkpointing"):
        if values.get(prefix) and f"{prefix}_kwargs" in names:
            # Reentrant checkpointing loses the gradient if the inputs need none, as with frozen embeddings under LoRA.
            defaults[f"{prefix}_kwargs"] = {"use_reentrant": False}
    try:
        arguments = TrainingArguments(**{**defaults, **values})
    except (ValueError, TypeError, ImportError) as error:
        raise JobError(f"{path}: {first_line(error)}") from error
    if arguments.n_gpu > 1:
        use_one_kind_of_card(arguments, job.quantization != "none")
    if arguments.device.type == "cpu":
        arguments.dataloader_pin_memory = False  # without a GPU it has no effect, and PyTorch warns for each loader
    return arguments


def use_one_kind_of_card(arguments: TrainingArguments, quantized: bool = False) -> None:
    """Train on the best card alone where the others differ: in DataParallel each step waits for the slowest.

    The best has most memory, then the newest generation, as the recommendation has it. Where CUDA does not count it
    first, the process starts again with this card alone, since the Trainer takes the first. Quantized weights train on
    one card, too: DataParallel cannot copy them to others.

    Of several equal ones that are the best, a single process takes one: `CUDA_VISIBLE_DEVICES` with these alone takes
    all of them.
    """
    cards = [torch.cuda.get_device_properties(number) for number in range(arguments.n_gpu)]
    best = max(range(len(cards)), key=lambda number: (*_rank(cards[number]), -number))
    if any(
        (card.name, card.total_memory // 2**30) != (cards[0].name, cards[0].total_memory // 2**30) for card in cards
    ):
        arguments._n_gpu = 1
        chosen = f"training on {cards[best].name} only (set CUDA_VISIBLE_DEVICES to choose others)"
        print(f"the GPUs differ: {chosen}", flush=True)
        if best > 0:
            start_again_on(best)
    elif quantized:
        arguments._n_gpu = 1
        print(f"quantized weights train on one GPU per process: torchrun starts {len(cards)}")


def _rank(card: Any) -> tuple[int, int, int]:
    return card.total_memory // 2**30, card.major, card.minor


def start_again_on(number: int) -> None:
    """Replace this process by the same command with only the card that CUDA counts as `number` visible."""
    # CUDA has been initialised by now, and then ignores changes of CUDA_VISIBLE_DEVICES: only a new process sees
    # another card. exec keeps the pid, which the supervisor watches.
    visible = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    chosen = visible[number] if visible else str(number)
    argv = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, argv, {**os.environ, "CUDA_VISIBLE_DEVICES": chosen})  # noqa: S606  the same program


def has_accelerator() -> bool:
    return bool(torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available())
