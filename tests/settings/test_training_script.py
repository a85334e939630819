"""What the source of a training script says, in the idioms of public scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_tui.settings.command_training import may_use_trainer, read_training_script

IMAGENET = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument('data', nargs='?')
parser.add_argument('-b', '--batch-size', default=256, type=int)
parser.add_argument('--resume', default='', type=str, metavar='PATH')
parser.add_argument('-e', '--evaluate', dest='evaluate', action='store_true')
parser.add_argument('--amp', action=argparse.BooleanOptionalAction)
"""
TRAINER = "from transformers import TrainingArguments, Trainer\nTrainer(args=TrainingArguments()).train()\n"


def test_options_and_switches_of_the_parser(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(IMAGENET)
    script = read_training_script(("torchrun", "--nproc-per-node", "2", "train.py", "DIR"), tmp_path)
    assert script is not None
    assert script.options == ("-b --batch-size", "--resume")
    assert script.switches == ("-e --evaluate", "--amp")


def test_a_parser_in_a_module_of_the_scripts_folder(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "options.py").write_text(IMAGENET)
    (tmp_path / "train.py").write_text("from tools import options\n")
    script = read_training_script(("python", "train.py"), tmp_path)
    assert script is not None
    assert "--resume" in script.options


def test_click(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import click\n@click.command()\n@click.option('--resume/--no-resume')\n@click.option('--lr')\ndef f(): ...\n"
    )
    script = read_training_script(("python", "-m", "train"), tmp_path)
    assert script is not None
    assert (script.options, script.switches) == (("--lr",), ("--resume --no-resume",))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # pytorch/examples, distributed/ddp-tutorial-series
        ("if os.path.exists(snapshot_path):\n    self._load_snapshot(snapshot_path)\n", True),
        ("if Path(path).is_file():\n    model.load_state_dict(torch.load(path))\n", True),
        ("if os.path.exists(cache):\n    data = torch.load(cache)\n", False),
        ("if os.path.exists(out):\n    print('the output folder exists')\n", False),
    ],
)
def test_a_checkpoint_that_is_loaded_where_it_exists(tmp_path: Path, source: str, expected: bool) -> None:
    (tmp_path / "train.py").write_text(source)
    script = read_training_script(("python", "train.py"), tmp_path)
    assert script is not None
    assert script.loads_itself is expected


@pytest.mark.parametrize(
    ("source", "command", "expected"),
    [
        (TRAINER, ("python", "train.py"), True),
        (TRAINER.replace("transformers", "trl"), ("torchrun", "train.py"), True),
        ("import torch\n", ("python", "train.py"), False),
        ("class Trainer: ...\n", ("python", "train.py"), False),
        ("import transformers\nmodel = transformers.AutoModel\n", ("python", "train.py"), False),
        (TRAINER, ("true",), False),
        (TRAINER, ("accelerate", "launch", "-m", "axolotl.cli.train"), False),
        (TRAINER, ("/env/bin/trl", "sft"), True),
    ],
)
def test_whether_there_is_a_trainer(tmp_path: Path, source: str, command: tuple[str, ...], expected: bool) -> None:
    (tmp_path / "train.py").write_text(source)
    assert may_use_trainer(command, tmp_path) is expected


@pytest.mark.parametrize("source", ["def broken(:\n", "\0", "x = '\udcff'"])
def test_a_script_that_cannot_be_read_says_nothing(tmp_path: Path, source: str) -> None:
    (tmp_path / "train.py").write_bytes(source.encode("utf-8", "surrogateescape"))
    script = read_training_script(("python", "train.py"), tmp_path)
    assert script is not None
    assert (script.options, script.has_trainer, script.loads_itself) == ((), False, False)
    assert read_training_script(("python", "missing.py"), tmp_path) is None
