"""Evaluation metrics: accuracy, macro-F1, perplexity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def predicted_class(logits: Any, labels: Any) -> Any:
    """The class of the highest logit, shape (batch,).

    Computed on the device, so that the evaluation keeps one integer per sample instead of its logits. `logits` has
    shape (batch, classes), or is a tuple with that tensor first.
    """
    scores = logits[0] if isinstance(logits, tuple) else logits
    return scores.argmax(dim=-1)


def classification_metrics(prediction: Any) -> dict[str, float]:
    """Accuracy and macro-F1 of an `EvalPrediction` whose predictions are class numbers."""
    predicted = np.asarray(prediction.predictions).reshape(-1)
    labels = np.asarray(prediction.label_ids).reshape(-1)
    return {"accuracy": float((predicted == labels).mean()), "f1_macro": macro_f1(predicted, labels)}


def macro_f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """The unweighted mean F1 of the classes that occur among labels or predictions."""
    size = int(max(predicted.max(initial=-1), labels.max(initial=-1))) + 1
    true = np.bincount(labels[predicted == labels], minlength=size)
    total = np.bincount(labels, minlength=size) + np.bincount(predicted, minlength=size)
    occurs = total > 0
    return float((2 * true[occurs] / total[occurs]).mean()) if occurs.any() else 0.0


def perplexity(loss: float) -> float:
    """exp(loss); infinity on overflow, nan for nan."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
