from __future__ import annotations

import math

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("transformers")

from tuner_tui.trainer.job_trainer import classification_metrics, macro_f1, perplexity  # noqa: E402


class Prediction:
    def __init__(self, predictions: list[int], label_ids: list[int]) -> None:
        self.predictions, self.label_ids = np.array(predictions), np.array(label_ids)


def test_accuracy_and_macro_f1_match_a_hand_count() -> None:
    # class 0: 2 right, 1 missed, 0 false -> F1 4/5; class 1: 1 right, 1 false -> 2/3; class 2: 1 right -> 1
    metrics = classification_metrics(Prediction([0, 0, 1, 1, 2], [0, 0, 0, 1, 2]))
    assert metrics["accuracy"] == pytest.approx(4 / 5)
    assert metrics["f1_macro"] == pytest.approx((4 / 5 + 2 / 3 + 1) / 3)


def test_a_class_that_never_occurs_does_not_count() -> None:
    assert macro_f1(np.array([0, 2]), np.array([0, 2])) == 1.0


def test_a_class_only_predicted_counts_as_zero() -> None:
    assert macro_f1(np.array([0, 1]), np.array([0, 0])) == pytest.approx((2 / 3 + 0) / 2)


def test_macro_f1_of_nothing_is_zero() -> None:
    assert macro_f1(np.array([], dtype=int), np.array([], dtype=int)) == 0.0


def test_perplexity_is_exp_of_the_loss_and_never_overflows() -> None:
    assert perplexity(math.log(20)) == pytest.approx(20)
    assert perplexity(1e6) == math.inf
    assert math.isnan(perplexity(math.nan))


def test_predicted_class_is_the_highest_score() -> None:
    torch = pytest.importorskip("torch")
    from tuner_tui.trainer.job_trainer import predicted_class

    scores = torch.tensor([[0.1, 0.9], [2.0, -1.0]])
    assert predicted_class(scores, None).tolist() == [1, 0]
    assert predicted_class((scores, "hidden states"), None).tolist() == [1, 0]
