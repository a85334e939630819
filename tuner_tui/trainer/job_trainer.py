"""The `Trainer` of the built-in job, its classification loss, and its metrics: accuracy and perplexity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainingArguments

from .sigterm_checkpoint import EvaluationInterrupted, IgnoreSigtermInWorker


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


def _ignore_sigterm(loader: Any) -> Any:
    """Make the workers of `loader` ignore SIGTERM, which the training answers with a checkpoint."""
    inner = getattr(loader, "base_dataloader", loader)  # accelerate's loader wraps the one with workers
    if not isinstance(inner.worker_init_fn, IgnoreSigtermInWorker):
        inner.worker_init_fn = IgnoreSigtermInWorker(inner.worker_init_fn)
    return loader
