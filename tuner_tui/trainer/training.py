"""Runs the job from data to trained model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from transformers import DataCollatorWithPadding, TrainingArguments, default_data_collator, set_seed

from .config import JobArguments
from .data.sources import SplitData, open_split_data
from .data.tokenization import class_names, tokenize_data
from .errors import JobError, first_line
from .gpu_choice import use_one_kind_of_card
from .job_trainer import JobTrainer, classification_loss, classification_metrics, predicted_class
from .models import add_adapters, count_parameters, load_model, load_tokenizer
from .sigterm_checkpoint import EXIT_CODE, CheckpointOnSigterm

TENSOR_CORE_MULTIPLE = 8
"""Batches are padded to a multiple of it on a GPU, where other sizes miss the tensor cores."""


def run_job(job: JobArguments, arguments: TrainingArguments) -> int:
    """Train, evaluate and save. Returns 0, or 143 after SIGTERM and a checkpoint.

    The model is loaded before tokenising, which may take minutes, so that its errors are reported first.
    """
    use_one_kind_of_card(arguments, job.quantization != "none")
    set_seed(arguments.seed)
    resume_from = find_checkpoint(arguments)
    tokenizer = load_tokenizer(job)
    rows = open_split_data(job)
    tables = [table for table in (rows.train, rows.evaluation) if table is not None]
    names = class_names(tables, rows.label) if rows.label else None
    model = prepare_model(job, arguments, tokenizer, names)
    with arguments.main_process_first(desc="preparing the data"):  # the other ranks read it from the cache
        data = tokenize_data(job, rows, names, tokenizer)
    if arguments.process_index == 0:
        unit = f"blocks of {job.max_length} tokens" if names is None else "samples"
        evaluation = "none" if data.evaluation is None else f"{len(data.evaluation):,}"
        classes = f", {len(names)} classes" if names else ""
        print(f"data {job.data}: {len(data.train):,} {unit} to train, {evaluation} to evaluate{classes}")
    # Loader workers, forked from here on, only pad batches and need no tokenizer threads.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    term = CheckpointOnSigterm()
    trainer = build_trainer(job, arguments, model, tokenizer, data, term)
    with term.listening():
        try:
            trainer.train(resume_from_checkpoint=resume_from)
        except ImportError as error:  # a package for the optimizer or a kernel is missing
            raise JobError(first_line(error)) from error
        stopped = term.stopping and trainer.state.global_step < trainer.state.max_steps
        if not stopped:
            finish_training(trainer)
    if stopped and arguments.process_index == 0:
        print(f"stopped by SIGTERM after step {trainer.state.global_step}; checkpoint in {arguments.output_dir}")
    return EXIT_CODE if stopped else 0


def find_checkpoint(arguments: TrainingArguments) -> str | None:
    """The checkpoint to resume from, or None. Raises `JobError` if it is not a checkpoint."""
    folder = arguments.resume_from_checkpoint
    if folder and not Path(folder, "trainer_state.json").is_file():
        raise JobError(f"resume_from_checkpoint {folder} is not a checkpoint: it has no trainer_state.json")
    return folder or None


def prepare_model(job: JobArguments, arguments: TrainingArguments, tokenizer: Any, names: list[str] | None) -> Any:
    """The model with its adapters; prints its size."""
    set_seed(arguments.seed)  # the weights must not depend on random numbers drawn for the data
    precision = "bf16" if arguments.bf16 else "fp16" if arguments.fp16 else "fp32"
    loaded = load_model(job, tokenizer, names, precision)
    model = add_adapters(loaded, job, arguments.gradient_checkpointing)
    model.config.use_cache = False
    if precision == "fp16":
        refuse_16_bit_gradients(job, model)
    total, trained = count_parameters(model)
    print(f"model {job.model}: {total:,} parameters, {trained:,} trained ({100 * trained / total:.2f} %)")
    return model


def refuse_16_bit_gradients(job: JobArguments, model: Any) -> None:
    """Raise `JobError` if weights in 16 bit train: torch's loss scaler fails on their gradients in the first step."""
    kinds = {weight.dtype for weight in model.parameters() if weight.requires_grad} - {torch.float32}
    if kinds:
        kind = str(kinds.pop()).removeprefix("torch.")
        raise JobError(
            f"weights_dtype {job.weights_dtype} trains {job.model} in {kind}, and the fp16 loss scaler does "
            "not support its gradients: set `weights_dtype: auto`, or train in bf16"
        )


def build_trainer(
    job: JobArguments,
    arguments: TrainingArguments,
    model: Any,
    tokenizer: Any,
    data: SplitData,
    term: CheckpointOnSigterm,
) -> JobTrainer:
    """The Trainer for this task and data."""
    evaluation = data.evaluation
    if evaluation is None and str(arguments.eval_strategy.value) != "no":
        print("not enough data for an evaluation split: no evaluation")
        arguments.eval_strategy = type(arguments.eval_strategy)("no")
    classify = job.task == "classification"
    multiple = TENSOR_CORE_MULTIPLE if arguments.device.type == "cuda" else None
    trainer = JobTrainer(
        model=model,
        args=arguments,
        train_dataset=data.train,
        eval_dataset=evaluation,
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer, pad_to_multiple_of=multiple)
        if classify
        else default_data_collator,
        compute_loss_func=classification_loss(arguments) if classify else None,
        compute_metrics=classification_metrics if classify else None,
        preprocess_logits_for_metrics=predicted_class if classify else None,
        callbacks=[term],
    )
    trainer.language_model = not classify
    return trainer


def finish_training(trainer: JobTrainer) -> None:
    """After the last step, evaluate unless just done, and save the model if checkpoints are saved.

    Does nothing for a training that was stopped early: it has its checkpoint.
    """
    arguments, state = trainer.args, trainer.state
    if state.global_step < state.max_steps:
        return
    evaluated = any("eval_loss" in entry and entry.get("step") == state.global_step for entry in state.log_history)
    if arguments.eval_strategy.value != "no" and not evaluated:
        trainer.evaluate()
    if arguments.save_strategy.value != "no":
        trainer.save_model(str(Path(arguments.output_dir, "final")))
