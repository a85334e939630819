"""The loss of one optimizer step, the same however its samples are cut into micro batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.nn.functional import cross_entropy
from transformers import TrainingArguments


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
