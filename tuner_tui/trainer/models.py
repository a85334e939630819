"""Loads the model and its tokenizer (a built-in shape, a local folder or a Hub id) and adds LoRA or DoRA adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer, BitsAndBytesConfig, PreTrainedTokenizerBase

from .built_in import shape_config, shape_tokenizer
from .job_file import SHAPES, JobArguments, JobError, first_line


def load_tokenizer(job: JobArguments) -> PreTrainedTokenizerBase:
    """The tokenizer of `job.model`, always with a padding token."""
    if job.model in SHAPES:
        return shape_tokenizer()
    try:
        tokenizer = AutoTokenizer.from_pretrained(job.model, trust_remote_code=job.trust_remote_code)
    except (OSError, ValueError) as error:
        raise model_error(job.model, error) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    return tokenizer


DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
DTYPE_ARGUMENT = "dtype" if int(transformers.__version__.partition(".")[0]) >= 5 else "torch_dtype"


def load_model(
    job: JobArguments, tokenizer: PreTrainedTokenizerBase, class_names: list[str] | None, precision: str = "fp32"
) -> Any:
    """The model for `job.task`; `class_names` become the names of a classifier's outputs. Raises `JobError`.

    Weights come from the Hub or a folder; a shape has random ones. `precision` is what the training computes in.
    """
    try:
        config = model_config(job, tokenizer, class_names)
        check_max_length(config, tokenizer, job)
        family, options = model_class(job), model_options(job)
        if job.model in SHAPES:
            return family.from_config(config, **options)
        saved = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
        if precision == "fp16" and job.weights_dtype == "auto" and saved in (torch.bfloat16, "bfloat16"):
            options.setdefault(DTYPE_ARGUMENT, torch.float16)  # GPUs before Ampere only emulate bf16
        extra: dict[str, Any] = {"ignore_mismatched_sizes": True} if class_names else {}
        if job.quantization != "none":
            extra["quantization_config"] = quantization_config(job, precision)
        return family.from_pretrained(job.model, config=config, **extra, **{DTYPE_ARGUMENT: "auto"} | options)
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise model_error(job.model, error) from error


MODEL_CLASSES = {
    "classification": "AutoModelForSequenceClassification",
    "causal-lm": "AutoModelForCausalLM",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "image-classification": "AutoModelForImageClassification",
    "speech-to-text": "AutoModelForSpeechSeq2Seq",
}
"""The class of Transformers for each task. The job trains the first two; the memory of all can be traced."""
TASK_TYPES = {"classification": "SEQ_CLS", "causal-lm": "CAUSAL_LM", "seq2seq": "SEQ_2_SEQ_LM"}
"""What peft calls the tasks that it has a wrapper for."""


def model_class(job: JobArguments) -> Any:
    return getattr(transformers, MODEL_CLASSES[job.task])


def model_options(job: JobArguments) -> dict[str, Any]:
    """Keyword arguments for `from_config` and `from_pretrained`."""
    options: dict[str, Any] = {"trust_remote_code": job.trust_remote_code}
    if job.attn_implementation not in (None, "auto"):
        options["attn_implementation"] = job.attn_implementation
    if (dtype := weights_dtype(job)) is not None:
        options[DTYPE_ARGUMENT] = dtype
    return options


def weights_dtype(job: JobArguments) -> torch.dtype | None:
    """The dtype in which weights are loaded; None: as they were saved.

    Weights that train are fp32 unless chosen otherwise: autocast computes in 16 bit all the same, updates smaller than
    the rounding of 16 bits are not lost, and the loss scaler of fp16 takes no other gradients. Frozen weights need none
    of that. `memory.model_shape.loaded_shape` is the same rule for the estimate.
    """
    if job.weights_dtype == "auto":
        return torch.float32 if job.peft_method == "none" else None
    return DTYPES.get(job.weights_dtype)


def quantization_config(job: JobArguments, precision: str) -> Any:
    """How bitsandbytes keeps the linear layers. Embeddings, norms and the output layer stay as they were saved."""
    if job.quantization == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    compute = precision if job.bnb_4bit_compute_dtype == "auto" else job.bnb_4bit_compute_dtype
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=job.quantization,
        bnb_4bit_compute_dtype=DTYPES[compute],
        bnb_4bit_use_double_quant=job.bnb_4bit_use_double_quant,
    )


def model_config(
    job: JobArguments, tokenizer: Any, class_names: list[str] | None, saved: dict[str, Any] | None = None
) -> Any:
    """The configuration of `job.model` with a padding token and one output for each of `class_names`.

    `saved` has the values of the model's `config.json` where they are known without reading it.
    """
    if job.model in SHAPES:
        config = shape_config(job.model, job.task, tokenizer)
    else:
        if saved is None:
            config = AutoConfig.from_pretrained(job.model, trust_remote_code=job.trust_remote_code)
        else:
            config = AutoConfig.for_model(**saved)
        if getattr(config, "pad_token_id", None) is None:
            config.pad_token_id = tokenizer.pad_token_id
    if class_names is not None:
        config.num_labels = len(class_names)
        config.id2label = dict(enumerate(class_names))
        config.label2id = {name: index for index, name in enumerate(class_names)}
    return config


def check_max_length(config: Any, tokenizer: Any, job: JobArguments) -> None:
    """Raise `JobError` if samples may exceed the model's positions, which on a GPU is an unreadable crash.

    The tokenizer is asked too: of its positions, RoBERTa keeps two for itself.
    """
    limits = (getattr(config, "max_position_embeddings", None), tokenizer.model_max_length)
    longest = min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=job.max_length)
    if longest < job.max_length:
        raise JobError(f"max_length {job.max_length} is more than the {longest} tokens {job.model} supports")


def model_error(model: str, error: BaseException) -> JobError:
    """The error for a model that cannot be loaded: an unreachable Hub id, or a folder that is missing or no model."""
    if (model.startswith((".", "/", "~")) or model.count("/") > 1) and not Path(model).expanduser().is_dir():
        return JobError(f"model {model}: no such folder")
    return JobError(f"model {model}: {first_line(error)}")


def count_parameters(model: Any) -> tuple[int, int]:
    sizes = [(unpacked_size(parameter), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trained in sizes if trained)


def unpacked_size(parameter: Any) -> int:
    """The number of weights in a parameter, of which bitsandbytes packs two of 4 bits into one element."""
    state = getattr(parameter, "quant_state", None)
    return int(parameter.numel() if state is None else state.shape.numel())


HEAD_NAMES = ("classifier", "score", "classification_head")


def add_adapters(model: Any, job: JobArguments, checkpointing: bool) -> Any:
    """`model` with adapters on all linear layers; a new classification head trains in full."""
    if job.peft_method == "none":
        return model
    from peft import LoraConfig, get_peft_model

    heads = find_heads(model) if job.task.endswith("classification") else []
    config = LoraConfig(
        task_type=TASK_TYPES.get(job.task),
        r=job.lora_r,
        lora_alpha=job.lora_alpha,
        lora_dropout=job.lora_dropout,
        use_dora=job.peft_method == "dora",
        target_modules="all-linear",
        modules_to_save=heads or None,
        exclude_modules=rf"(.*\.)?({'|'.join(heads)})(\..*)?" if heads else None,
    )
    if checkpointing:
        # Outputs of frozen embeddings need no gradient, and a checkpointed layer would then propagate none.
        model.enable_input_require_grads()
    return train_in_fp32(get_peft_model(model, config), heads)


def train_in_fp32(model: Any, heads: list[str]) -> Any:
    """`model` with its trained weights in fp32, which a head on 16-bit weights is not yet; peft casts the adapters.

    Without autocast the 16-bit features are cast for the head, too.
    """
    for weight in model.parameters():
        if weight.requires_grad and weight.dtype in (torch.float16, torch.bfloat16):
            weight.data = weight.data.float()
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in heads:
            module.register_forward_pre_hook(cast_to_fp32)
    return model


def cast_to_fp32(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """16-bit inputs in fp32; under autocast they stay, as it casts the operands itself."""
    if torch.is_autocast_enabled(inputs[0].device.type):
        return inputs
    return tuple(
        value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in inputs
    )


def find_heads(model: Any) -> list[str]:
    """The names of the untrained classification layers on top of `model`, which train in full.

    The default of peft takes `pre_classifier` for a `classifier` that it has adapted already, and knows no
    `classification_head`: DistilBERT would not start, the heads of BART and T5 would keep their random weights.
    """
    return [name for name, _ in model.named_children() if name.endswith(HEAD_NAMES)]
