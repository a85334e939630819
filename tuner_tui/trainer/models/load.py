"""Loads the model and its tokenizer: a built-in shape, a local folder or a Hub id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerBase,
)

from ..errors import JobError, first_line
from ..hub import SHAPES
from ..job.config import JobArguments
from .shapes import shape_config
from .tokenizer import shape_tokenizer


def load_tokenizer(job: JobArguments) -> PreTrainedTokenizerBase:
    """The tokenizer of `job.model`, with a padding token in any case."""
    if job.model in SHAPES:
        return shape_tokenizer()
    try:
        tokenizer = AutoTokenizer.from_pretrained(job.model, trust_remote_code=job.trust_remote_code)
    except (OSError, ValueError) as error:
        raise model_error(job.model, error) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    return tokenizer


def load_model(job: JobArguments, tokenizer: PreTrainedTokenizerBase, class_names: list[str] | None) -> Any:
    """The model for `job.task`; `class_names` become the names of a classifier's outputs."""
    family = AutoModelForCausalLM if job.task == "causal-lm" else AutoModelForSequenceClassification
    options: dict[str, Any] = {"trust_remote_code": job.trust_remote_code}
    if job.attn_implementation not in (None, "auto"):
        options["attn_implementation"] = job.attn_implementation
    try:
        return build_model(family, job, tokenizer, class_names, options)
    except (OSError, ValueError, ImportError) as error:
        raise model_error(job.model, error) from error


def build_model(
    family: Any, job: JobArguments, tokenizer: Any, names: list[str] | None, options: dict[str, Any]
) -> Any:
    """Weights from the Hub or the folder, random ones for a shape."""
    if job.model in SHAPES:
        config = set_class_names(shape_config(job.model, job.task, tokenizer), names)
        check_max_length(config, tokenizer, job)
        return family.from_config(config, **options)
    config = set_class_names(AutoConfig.from_pretrained(job.model, trust_remote_code=job.trust_remote_code), names)
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = tokenizer.pad_token_id
    check_max_length(config, tokenizer, job)
    extra = {"ignore_mismatched_sizes": True} if names else {}
    return family.from_pretrained(job.model, config=config, **extra, **options)


def set_class_names(config: Any, names: list[str] | None) -> Any:
    """`config` with one output for each of `names`."""
    if names is not None:
        config.num_labels = len(names)
        config.id2label = dict(enumerate(names))
        config.label2id = {name: index for index, name in enumerate(names)}
    return config


def check_max_length(config: Any, tokenizer: Any, job: JobArguments) -> None:
    """`JobError` when samples may be longer than the model can take: on a GPU that would be an unreadable crash.

    The tokenizer is asked too: of its positions, RoBERTa keeps two for itself.
    """
    limits = (getattr(config, "max_position_embeddings", None), tokenizer.model_max_length)
    longest = min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=job.max_length)
    if longest < job.max_length:
        raise JobError(f"max_length {job.max_length} is more than the {longest} tokens that {job.model} takes")


def model_error(model: str, error: BaseException) -> JobError:
    """The error for a model that cannot be had: a Hub id that is not reached, a folder that is absent or no model."""
    if model.startswith((".", "/", "~")) and not Path(model).expanduser().is_dir():
        return JobError(f"model {model}: no such folder")
    return JobError(f"model {model}: {first_line(error)}")


def count_parameters(model: Any) -> tuple[int, int]:
    """All parameters, and those that are trained."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trained in sizes if trained)
