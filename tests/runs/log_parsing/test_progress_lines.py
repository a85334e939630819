"""Progress parsed from lines that real programs print."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import pytest

from tuner_tui.runs.log_parsing.progress_lines import (
    BARS,
    LOG,
    MAX_BARS,
    ProgressRecord,
    may_have_figures,
    parse_duration,
    parse_line,
    parse_output,
)


@pytest.mark.parametrize(
    ("text", "record"),
    [
        (
            "\r  3%|▎         | 15/500 [00:12<06:40,  1.21it/s]",
            ProgressRecord(BARS, 15, 500, 12.0, bar=True),
        ),
        (
            "Epoch 2/10:  50%|#####     | 5/10 [1:00:01<00:05, 2.00s/it, loss=0.25, lr=1e-05]",
            ProgressRecord(BARS, 5, 10, 3601.0, loss=0.25, learning_rate=1e-5, bar=True, epochs=10),
        ),
        (
            "\rValidation DataLoader 0:  40%|████      | 2/5 [00:00<00:00, 9.0it/s]",
            ProgressRecord(BARS, evaluating=True),
        ),
        (
            "{'loss': '0.4321', 'grad_norm': '1.5', 'learning_rate': '4e-05', 'epoch': '0.1'}",
            ProgressRecord(LOG, loss=0.4321, grad_norm=1.5, learning_rate=4e-5, epoch=0.1),
        ),
        ("|    loss                 | 4.29        |", ProgressRecord(LOG, loss=4.29)),
        ("epoch 1: {'eval/roc_auc': 0.5}", ProgressRecord(LOG, epoch=1.0, evaluation={"eval_auc": 0.5})),
        (
            "{'eval_loss': '0.5', 'eval_accuracy': '0.9', 'eval_runtime': '1.2', 'epoch': '1'}",
            ProgressRecord(LOG, epoch=1.0, evaluation={"eval_loss": 0.5, "eval_accuracy": 0.9, "eval_runtime": 1.2}),
        ),
        ("step 100/1000 | loss: 2.31 | lr 3.0e-4", ProgressRecord(LOG, 100, 1000, loss=2.31, learning_rate=3e-4)),
        ("iter 250: loss 1.9876, time 30.21ms", ProgressRecord(LOG, 250, loss=1.9876)),
        ("Step: 1,200, train loss = 0.5.", ProgressRecord(LOG, 1200, loss=0.5)),
    ],
)
def test_what_a_line_tells(text: str, record: ProgressRecord) -> None:
    assert list(parse_output(text)) == [record]


@pytest.mark.parametrize(
    "text",
    [
        "Map:  50%|█████     | 500/1000 [00:01<00:01, 480.10 examples/s]",
        "Loading checkpoint shards: 100%|██████████| 2/2 [00:01<00:00,  1.9it/s]",
        "model.safetensors:  12%|█▏        | 52.4M/440M [00:01<00:10, 37.1MB/s]",
        "Tokenizing:  12%|█▏        | 12/100 [00:01<00:10, 37.1it/s]",
        "The loss of the battle of step 5 was great",
        "{'train_runtime': '12.3', 'train_samples_per_second': '9', 'train_loss': '0.5', 'epoch': '1'}",
        "100%|",
        "\x00\xff\x1b[2J{'loss': [}",
    ],
)
def test_what_is_no_news_of_steps(text: str) -> None:
    assert list(parse_output(text)) == []


def test_several_bars_in_one_piece_and_a_dictionary_behind_one() -> None:
    text = (
        "  1%|  | 1/100 [00:01<01:39,  1.0it/s]\r  2%|  | 2/100 [00:02<01:38,  1.0it/s]{'loss': '0.5', 'epoch': '0.1'}"
    )
    assert [(record.step, record.loss) for record in parse_output(text)] == [(1, None), (2, None), (None, 0.5)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("00:12", 12.0), ("1:00:01", 3601.0), ("1 day, 0:00:05", 86405.0), ("1h 2m 3s", 3723.0), ("12.5s", 12.5)],
)
def test_durations(text: str, expected: float) -> None:
    assert parse_duration(text) == expected


def test_of_very_many_states_of_a_bar_its_ends_and_its_course_remain() -> None:
    epochs, steps = 3, 5 * MAX_BARS
    drawn = "".join(
        f"\r{step * 100 // steps:3d}%|#| {step}/{steps} [00:01<00:01, 9.0it/s, loss=0.5]{chr(10) * (step == steps)}"
        for _ in range(epochs)
        for step in range(1, steps + 1)
    )
    found = [record.step or 0 for record in parse_output(drawn + "{'eval_loss': 0.5}\n") if record.bar]
    assert len(found) < 2 * MAX_BARS
    assert found.count(steps) == epochs
    assert found.count(1) >= 1
    assert max(b - a for a, b in pairwise(found)) < 3 * epochs * steps // MAX_BARS


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        ("Train Epoch: 1 [640/6000 (11%)]\tLoss: 0.713240", ProgressRecord(LOG, loss=0.71324, epoch=1.0)),
        (
            "Epoch: [0][ 1/15]\tTime  0.531 ( 0.616)\tLoss 2.30e+00 (2.40e+00)\tAcc@1   0.00 (  0.00)",
            ProgressRecord(LOG, loss=2.3, epoch=0.0),
        ),
        ("iter 56: loss 2.9131, time 41.23ms, mfu 3.20%", ProgressRecord(LOG, step=56, loss=2.9131)),
        ("step 10 | loss 3.1012 | step time 12.30ms", ProgressRecord(LOG, step=10, loss=3.1012)),
        (
            "| epoch   1 |    20/   90 batches | lr 20.00 | ms/batch 46.47 | loss  6.45 | ppl   630.02",
            ProgressRecord(LOG, step=20, total_steps=90, per_epoch=True, loss=6.45, learning_rate=20.0, epoch=1.0),
        ),
        (
            "Epoch [1/5], Step [100/600], Loss: 2.1031",
            ProgressRecord(LOG, step=100, total_steps=600, per_epoch=True, loss=2.1031, epoch=1.0, epochs=5),
        ),
        ("Epoch: 0001 cost = 2.302585", ProgressRecord(LOG, loss=2.302585, epoch=1.0)),
        ("12345\tTrain Epoch: 1 [0/60000 (0%)]\tLoss: 2.306000", ProgressRecord(LOG, loss=2.306, epoch=1.0)),
        ('{"step": 10, "loss": 0.5123, "lr": 1e-4}', ProgressRecord(LOG, step=10, loss=0.5123, learning_rate=1e-4)),
        (
            "2026-11-22 04:20:35.123 | INFO     | __main__:train:45 - step 10 loss 0.5123",
            ProgressRecord(LOG, step=10, loss=0.5123),
        ),
        (
            "[0/25][10/100] Loss_D: 1.2312 Loss_G: 3.4123 D(x): 0.5",
            ProgressRecord(LOG, step=10, total_steps=100, per_epoch=True, epoch=0.0, epochs=25, loss=1.2312),
        ),
        ("reconstruction loss: 3.0, kl loss: 1.0, total loss: 4.0", ProgressRecord(LOG, loss=4.0)),
    ],
)
def test_a_line_of_the_training(line: str, figures: ProgressRecord) -> None:
    assert may_have_figures(line)
    assert parse_line(line) == figures


@pytest.mark.parametrize(
    ("line", "evaluation"),
    [
        (
            "Test set: Average loss: 0.0513, Accuracy: 9832/10000 (98%)",
            {"eval_loss": 0.0513, "eval_accuracy": 0.9832},
        ),
        ("acc_train: 0.2357 loss_val: 2.0036 acc_val: 0.1333", {"eval_loss": 2.0036, "eval_acc": 0.1333}),
        ("Test Error:  Accuracy: 10.0%, Avg loss: 2.30", {"eval_accuracy": 10.0, "eval_loss": 2.3}),
        (" *   Acc@1 10.000 Acc@5 50.000", {"eval_acc@1": 10.0, "eval_acc@5": 50.0}),
        (
            "| end of epoch   1 | time:  5.12s | valid loss  5.91 | valid ppl   371.22",
            {"eval_loss": 5.91, "eval_ppl": 371.22},
        ),
        ("Accuracy of the network on the 10000 test images: 83 %", {"eval_accuracy": 83.0}),
        ("Accuracy of the network: 9.375 %", {"eval_accuracy": 9.375}),
        ("Test: Accuracy of plane: 45.0 %", {}),
        ("Accuracy of   cat : 12 %", {}),
        ("  - (Validation) ppl:  1034.01, accuracy: 4.210 %", {"eval_ppl": 1034.01, "eval_accuracy": 4.21}),
        ("INFO: Validation Dice score: 0.0123", {"eval_dice": 0.0123}),
        ("Epoch: 001, Train: 0.30, Val: 0.20, Test: 0.21", {"eval_val": 0.2, "eval_test": 0.21}),
        ("val PSNR (dB): 31.20", {"eval_psnr": 31.2}),
        ("ValLoss 1.89 | ValAcc 0.29", {"eval_loss": 1.89, "eval_acc": 0.29}),
        ("epoch 0: {'accuracy': 0.6838, 'f1': 0.8122}", {"eval_accuracy": 0.6838, "eval_f1": 0.8122}),
    ],
)
def test_a_line_of_an_evaluation_has_no_loss_of_the_training(line: str, evaluation: Mapping[str, float]) -> None:
    assert may_have_figures(line)
    found = parse_line(line)
    assert found.loss is None
    assert found.evaluation == evaluation


@pytest.mark.parametrize(
    ("line", "loss", "evaluation"),
    [
        ("Epoch 00010 | TrainLoss 1.94 | ValLoss 1.89", 1.94, {"eval_loss": 1.89}),
        ("step 250: train loss 2.1123, val loss 2.2344", 2.1123, {"eval_loss": 2.2344}),
        ("Epoch: 001, Loss: 1.95, Train: 0.30, Val: 0.20, Test: 0.21", 1.95, {"eval_val": 0.2, "eval_test": 0.21}),
        ("Epoch 1/5: 10/32 [00:05<00:11, 2.00img/s, loss (batch)=0.706]", 0.706, {}),
        ("Epoch: 001, Loss: 1.95, Val: 100 samples, test: 1.2.3", 1.95, {}),
    ],
)
def test_names_that_other_scripts_use(line: str, loss: float, evaluation: Mapping[str, float]) -> None:
    found = parse_line(line)
    assert (found.loss, found.evaluation) == (loss, evaluation)


@pytest.mark.parametrize(
    "line",
    [
        "loss scale 1024 at step 5",
        "loss scale (dynamic): 1024",
        "best val loss 0.3",
        "The loss of the battle of step 5 was great",
        "  - (Training)   ppl:  1234.01, accuracy: 3.210 %",
        "[GPU0] Epoch 0 | Batchsize: 32 | Steps: 32",
    ],
)
def test_a_line_without_loss(line: str) -> None:
    found = parse_line(line)
    assert (found.loss, found.evaluation) == (None, {})


def test_a_loss_that_is_not_a_number() -> None:
    loss = parse_line("epoch 2: loss=nan").loss
    assert loss is not None
    assert math.isnan(loss)
