"""SIGTERM to a Trainer with loader workers: it saves and exits, where its version supports that."""

from __future__ import annotations

import sys

import pytest
from msgspec import structs
from msgspec.structs import replace

from tests.runs.sandbox import Sandbox, wait_ended
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.runs.launch.command import SIGTERM_CHECKPOINT_VARIABLE
from tuner_tui.runs.launch.prepare import checkpoints_on_sigterm, launch_summary, prepare
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.read.checkpoints import complete_checkpoints
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.supervise.training_process import StopTimeouts
from tuner_tui.settings.job import CommandJob

TRAINER = """
    import os, signal, sys, torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
    torch.set_num_threads(1)

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 400000
        def __getitem__(self, index):
            return {"input_ids": torch.full((8,), 5), "labels": torch.tensor(index % 2)}

    class Order(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 5:
                if sys.argv[2] == "kill":
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                with open(os.environ["TUNER_RUN_DIR"] + "/control", "w") as file:
                    file.write("terminate")

    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForSequenceClassification(BertConfig(vocab_size=64, **shape))
    arguments = TrainingArguments(sys.argv[1], max_steps=100000, use_cpu=True, report_to="none", disable_tqdm=True,
                                  save_strategy="no", dataloader_num_workers=1)
    Trainer(model=model, args=arguments, train_dataset=Samples(), callbacks=[Order()]).train()
"""


def command(box: Sandbox, sender: str = "supervisor") -> CommandJob:
    words = (sys.executable, str(box.root / "train.py"), str(box.root / "out"), sender)
    return CommandJob(command=words, apply="inject", env={"OMP_NUM_THREADS": "1"})


@pytest.mark.full
@pytest.mark.train
@pytest.mark.parametrize(
    ("sender", "by"), [("supervisor", "on request"), ("kill", "by a SIGTERM from another program")]
)
def test_a_trainer_saves_when_it_is_terminated(box: Sandbox, sender: str, by: str) -> None:
    pytest.importorskip("transformers", minversion="5")
    folder = launch(prepare(replace(box.request(TRAINER, job=command(box, sender)), stop_timeouts=StopTimeouts())))
    box.folders.append(folder)
    last = wait_ended(folder)
    state = RunReader(folder).poll().state
    assert (last.outcome, last.exit_code) == ("stopped", 0), folder.output_log.read_text()
    assert last.sentence is not None
    assert last.sentence.startswith(f"Stopped {by} at step"), last.sentence
    assert state.injected == {"enable_jit_checkpoint": True}
    assert state.not_injected == ()
    assert state.step is not None
    [saved] = complete_checkpoints(box.root / "out")
    assert state.step - saved.step in (0, 1), "transformers may save where a step begins, and still make that step"


def test_it_is_shown_before_and_only_from_within(box: Sandbox) -> None:
    request = box.request("", job=command(box))
    python = Interpreter(sys.executable, packages={"transformers": "5.23.0"})
    assert checkpoints_on_sigterm(request, python)
    assert not checkpoints_on_sigterm(request, replace(python, packages={"transformers": "4.57.1"}))
    assert not checkpoints_on_sigterm(request, replace(python, packages={}))
    assert not checkpoints_on_sigterm(replace(request, tuning="t001"), python)
    assert not checkpoints_on_sigterm(replace(request, job=structs.replace(command(box), apply="none")), python)


@pytest.mark.parametrize(
    ("script", "expected"), [("from transformers import Trainer\nTrainer(None).train()", True), ("import torch", False)]
)
def test_it_is_said_where_there_is_a_trainer(box: Sandbox, script: str, expected: bool) -> None:
    pytest.importorskip("transformers", minversion="5")
    prepared = prepare(box.request(script, job=command(box)))
    assert prepared.added_env[SIGTERM_CHECKPOINT_VARIABLE] == "1"
    assert any(label == "On SIGTERM" for label, _ in launch_summary(prepared)) is expected
