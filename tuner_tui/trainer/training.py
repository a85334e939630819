"""Runs the job from data to trained model: the `Trainer` with its loss and metrics, and the GPUs that it uses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import Sampler
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments, default_data_collator, set_seed
from transformers.trainer_pt_utils import LengthGroupedSampler

from .dataset import SplitData, class_names, open_split_data, tokenize_data
from .job_file import JobArguments, JobError, first_line
from .models import add_adapters, count_parameters, load_model, load_tokenizer
from .sigterm_checkpoint import EXIT_CODE, CheckpointOnSigterm, EvaluationInterrupted, IgnoreSigtermInWorker

TENSOR_CORE_MULTIPLE = 8
"""Batches are padded to a multiple of it on a GPU, where other sizes miss the tensor cores."""


def run_job(job: JobArguments, arguments: TrainingArguments) -> int:
    """Train, evaluate and save. Returns 0, or 143 after SIGTERM and a checkpoint.

    The model is loaded before tokenising, which may take minutes, so that its errors are reported first.
    """
    use_one_kind_of_gpu(arguments)
    set_seed(arguments.seed)
    resume_from = arguments.resume_from_checkpoint or None
    if resume_from and not Path(resume_from, "trainer_state.json").is_file():
        raise JobError(f"resume_from_checkpoint {resume_from} is not a checkpoint: it has no trainer_state.json")
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
    use_one_gpu_for_large_models(arguments, job, total)
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


def use_one_kind_of_gpu(arguments: TrainingArguments) -> None:
    """Train on the best GPU alone where the others differ: in DataParallel each step waits for the slowest.

    The best has most memory, then the newest generation, as the recommendation has it. Where CUDA does not count it
    first, the process starts again with this GPU alone, since the Trainer takes the first.
    """
    if arguments.n_gpu < 2:
        return
    gpus = [torch.cuda.get_device_properties(number) for number in range(arguments.n_gpu)]
    ranks = [(gpu.total_memory // 2**30, gpu.major, gpu.minor) for gpu in gpus]
    best = ranks.index(max(ranks))
    if len({(gpu.name, gpu.total_memory // 2**30) for gpu in gpus}) > 1:
        arguments._n_gpu = 1
        chosen = f"training on {gpus[best].name} only (set CUDA_VISIBLE_DEVICES to choose others)"
        print(f"the GPUs differ: {chosen}", flush=True)
        if best > 0:
            start_again_on(best)


BYTES_PER_PARAMETER = 16
"""A weight, its gradient and the two states of AdamW in fp32."""
LARGEST_COPIED_SHARE = 1 / 3


def use_one_gpu_for_large_models(arguments: TrainingArguments, job: JobArguments, parameters: int) -> None:
    """Train on one GPU where DataParallel would cost more than it gives.

    It copies all weights to the other GPUs in each step, which are many for few trained ones under an adapter; the
    first GPU keeps the gradients of all and collects their logits, which are large in a language model. Quantized
    weights cannot be copied. The recommendation has the same rule (`TrainingTarget.trained_with`).
    """
    if arguments.n_gpu < 2:
        return
    memory_bytes = torch.cuda.get_device_properties(0).total_memory
    small = job.task == "classification" and job.peft_method == "none"
    if not small or BYTES_PER_PARAMETER * parameters > LARGEST_COPIED_SHARE * memory_bytes:
        print(f"such a model trains on one GPU per process: torchrun starts {arguments.n_gpu}", flush=True)
        arguments._n_gpu = 1


def start_again_on(number: int) -> None:
    """Replace this process by the same command with only the GPU that CUDA counts as `number` visible."""
    # CUDA has been initialised by now, and then ignores changes of CUDA_VISIBLE_DEVICES: only a new process sees
    # another GPU. exec keeps the pid, which the supervisor watches.
    visible = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    chosen = visible[number] if visible else str(number)
    argv = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, argv, {**os.environ, "CUDA_VISIBLE_DEVICES": chosen})  # noqa: S606  the same program


def predicted_class(logits: Any, labels: Any) -> Any:
    """The class of the highest logit, shape (batch,).

    Computed on the device, so that the evaluation keeps one integer per sample instead of its logits. `logits` has
    shape (batch, classes), or is a tuple with that tensor first.
    """
    scores = logits[0] if isinstance(logits, tuple) else logits
    return scores.argmax(dim=-1)


def classification_metrics(prediction: Any) -> dict[str, float]:
    """The accuracy of an `EvalPrediction` whose predictions are class numbers."""
    return {"accuracy": float((np.ravel(prediction.predictions) == np.ravel(prediction.label_ids)).mean())}


def classification_loss(arguments: TrainingArguments) -> Callable[..., Any]:
    """Cross entropy summed over the micro batch and divided by the samples of the whole optimizer step.

    The gradient is then independent of how a step is split into micro batches. The built-in losses differ: some
    classifiers (ModernBERT in 5.23) accept `num_items_in_batch` and ignore it, so that the Trainer does not divide by
    the accumulation and the gradient grows with it; a mean of means gives samples of a short last micro batch more
    weight.
    """

    def loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        smoothing = arguments.label_smoothing_factor
        if num_items_in_batch is None:
            return cross_entropy(logits.float(), labels, label_smoothing=smoothing)
        total = cross_entropy(logits.float(), labels, reduction="sum", label_smoothing=smoothing)
        items = num_items_in_batch.float().mean() if hasattr(num_items_in_batch, "float") else num_items_in_batch
        return total / items / max(1, arguments.n_gpu)  # under DataParallel the Trainer multiplies by the devices

    return loss


class JobTrainer(Trainer):  # type: ignore[misc]  # Transformers is not typed
    """A Trainer that reports the perplexity of language models and whose evaluations SIGTERM can interrupt."""

    language_model = False

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """As in the Trainer, with perplexity added to the metrics of a language model."""
        output = super().evaluation_loop(*args, **kwargs)
        for name in [name for name in output.metrics if name.endswith("_loss") and self.language_model]:
            output.metrics[name.removesuffix("loss") + "perplexity"] = float(np.exp(output.metrics[name]))
        return output

    def get_train_dataloader(self) -> Any:
        """As in the Trainer, with the configured micro batch: before 5, resuming uses that of the checkpoint."""
        # Before version 5 the Trainer takes the batch size from trainer_state.json when it resumes. A run that resumes
        # with a smaller micro batch, because the old one ran out of memory, would run out of memory again.
        if not self.args.auto_find_batch_size:
            self._train_batch_size = self.args.train_batch_size
        return _ignore_sigterm(super().get_train_dataloader())

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        """As in the Trainer, with an order of each epoch that a resumed training repeats."""
        # A sampler by length draws from torch's own state, which a resumed training has only after the batches that it
        # skips: they would be those of another order.
        sampler = super()._get_train_sampler(*args, **kwargs)
        return OrderOfEpoch(sampler, self) if isinstance(sampler, LengthGroupedSampler) else sampler

    def get_eval_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        """As in the Trainer, with workers that ignore SIGTERM."""
        return _ignore_sigterm(super().get_eval_dataloader(*args, **kwargs))

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """As in the Trainer; an interrupted evaluation returns no metrics, and the training saves and stops."""
        try:
            return super().evaluate(*args, **kwargs)
        except EvaluationInterrupted:
            self.control.should_save = True
            self.control.should_training_stop = True
            return {}


class OrderOfEpoch(Sampler[int]):  # type: ignore[misc]  # torch is not typed here
    """The order of a sampler, drawn from the seed and the epoch that its Trainer is in."""

    def __init__(self, sampler: Any, trainer: Trainer) -> None:
        self._sampler, self._trainer = sampler, trainer

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[int]:
        arguments = self._trainer.args
        seed = arguments.seed if arguments.data_seed is None else arguments.data_seed
        self._sampler.generator = torch.Generator().manual_seed(seed + int(self._trainer.state.epoch or 0))
        return iter(self._sampler)


def _ignore_sigterm(loader: Any) -> Any:
    """Make the workers of `loader` ignore SIGTERM, which the training answers with a checkpoint."""
    inner = getattr(loader, "base_dataloader", loader)  # accelerate's loader wraps the one with workers
    if not isinstance(inner.worker_init_fn, IgnoreSigtermInWorker):
        inner.worker_init_fn = IgnoreSigtermInWorker(inner.worker_init_fn)
    return loader
