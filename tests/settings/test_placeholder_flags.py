"""Commands of public scripts, and their form with placeholders."""

from __future__ import annotations

import pytest

from tuner_tui.settings.argv import placeholder_command

BATCH, RATE, WORKERS = "per_device_train_batch_size", "learning_rate", "dataloader_num_workers"


@pytest.mark.parametrize(
    ("command", "names", "options", "expected", "done"),
    [
        # pytorch/examples mnist: the flag stands in the command
        ("main.py --batch-size 64", [BATCH], [], f"main.py --batch-size {{{BATCH}}}", [BATCH]),
        # nanoGPT: no parser, --key=value
        ("train.py --batch_size=12 --x=1", [BATCH], [], f"train.py --batch_size={{{BATCH}}} --x=1", [BATCH]),
        # pytorch/examples imagenet: known by the parser alone, under its long name
        ("main.py DIR", [BATCH, RATE], ["-b --batch-size", "--lr --learning-rate", "-j --workers"],
         f"main.py DIR --batch-size {{{BATCH}}} --learning-rate {{{RATE}}}", [BATCH, RATE]),
        # its short name in the command
        ("main.py -b 256 -j 4", [BATCH, WORKERS], ["-b --batch-size", "-j --workers"],
         f"main.py -b {{{BATCH}}} -j {{{WORKERS}}}", [BATCH, WORKERS]),
        # weiaicunzai/pytorch-cifar100
        ("train.py -net vgg16", [BATCH, RATE], ["-net", "-b"], None, []),
        ("main.py --label-smoothing 0.1", [RATE], ["--lr-drop", "--lrf"], None, []),
    ],
)  # fmt: skip
def test_a_command_with_placeholders(
    command: str, names: list[str], options: list[str], expected: str | None, done: list[str]
) -> None:
    result = placeholder_command(command.split(), names, options)
    if expected is None:
        assert result is None
    else:
        assert result == (tuple(expected.split()), tuple(done))
