"""The `Trainer` subclass of the built-in job and its classification loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainingArguments

from .metrics import perplexity
from .sigterm_checkpoint import EvaluationInterrupted, IgnoreSigtermInWorker


def classification_loss(arguments: TrainingArguments) -> Callable[..., Any]:
    """Cross entropy summed over the micro batch and divided by the samples of the whole optimizer step.

    Some classifiers of Transformers (ModernBERT in 5.23) take the number of samples of the step and ignore it: the
    Trainer then neither divides by the accumulation itself, and the gradient grows with it. A mean of means, on the
    other hand, weighs the samples of a short last micro batch more than the others.
    """

    def loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        smoothing = arguments.label_smoothing_factor
        if num_items_in_batch is None:
            return cross_entropy(logits.float(), labels, label_smoothing=smoothing)
        total = cross_entropy(logits.float(), labels, reduction="sum", label_smoothing=smoothing)
        items = num_items_in_batch.float().mean() if hasattr(num_items_in_batch, "float") else num_items_in_batch
        return total / items / max(1, arguments.n_gpu)  # with DataParallel the Trainer multiplies by its devices

    return loss


class JobTrainer(Trainer):  # type: ignore[misc]  # Transformers is not typed
    """The Trainer, with perplexity beside a language model's loss, and evaluations that SIGTERM can break off."""

    language_model = False

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's own, with perplexity added to its metrics."""
        output = super().evaluation_loop(*args, **kwargs)
        for name in [name for name in output.metrics if name.endswith("_loss") and self.language_model]:
            output.metrics[name.removesuffix("loss") + "perplexity"] = perplexity(output.metrics[name])
        return output

    def get_train_dataloader(self) -> Any:
        """The Trainer's own, of the micro batch asked for: until Transformers 5, resuming brings the checkpoint's."""
        if not self.args.auto_find_batch_size:
            self._train_batch_size = self.args.train_batch_size
        return _spared(super().get_train_dataloader())

    def get_eval_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's own."""
        return _spared(super().get_eval_dataloader(*args, **kwargs))

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's own; broken off, it has no metrics, and the training saves and stops."""
        try:
            return super().evaluate(*args, **kwargs)
        except EvaluationInterrupted:
            self.control.should_save = True
            self.control.should_training_stop = True
            return {}


def _spared(loader: Any) -> Any:
    """The loader, whose workers outlive a SIGTERM that the trainer answers with a checkpoint."""
    inner = getattr(loader, "base_dataloader", loader)  # what accelerate's loader really reads
    if not isinstance(inner.worker_init_fn, IgnoreSigtermInWorker):
        inner.worker_init_fn = IgnoreSigtermInWorker(inner.worker_init_fn)
    return loader
