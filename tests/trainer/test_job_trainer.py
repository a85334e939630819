from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tuner_tui.trainer.job_trainer import classification_metrics, predicted_class  # noqa: E402


def test_accuracy_is_the_share_of_right_classes() -> None:
    prediction = SimpleNamespace(predictions=[[0], [0], [1], [1], [2]], label_ids=[0, 0, 0, 1, 2])
    assert classification_metrics(prediction) == {"accuracy": 0.8}


def test_predicted_class_is_the_highest_score() -> None:
    scores = torch.tensor([[0.1, 0.9], [2.0, -1.0]])
    assert predicted_class(scores, None).tolist() == [1, 0]
    assert predicted_class((scores, "hidden states"), None).tolist() == [1, 0]
