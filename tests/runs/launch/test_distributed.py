"""Two real ranks on a CPU, started by the launchers; the death of one is reported with its cause."""

from __future__ import annotations

import os
import re
import signal
import sys

import pytest
from msgspec.structs import replace

from tests.runs.sandbox import Fifo, Sandbox, wait_ended
from tuner_tui.runs.launch.prepare import prepare
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.supervise.training_process import StopTimeouts
from tuner_tui.settings.job import CommandJob, Launcher

pytestmark = pytest.mark.train

TRAIN = """
    import gc, os, sys, time
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(int(sys.argv[1])):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).mean().backward()
        optimizer.step()
        if rank == 1 and step == 2 and "fifo" in sys.argv:
            with open(sys.argv[3], "w") as file:
                file.write(str(os.getpid()))
            time.sleep(600)
    del model, optimizer  # gloo's threads end with the last that holds the group; left alive they may abort the exit
    gc.collect()
    dist.destroy_process_group()
"""


def job(box: Sandbox, launcher: Launcher, *words: str) -> CommandJob:
    command = (sys.executable, str(box.root / "train.py"), *words)
    return CommandJob(command=command, launcher=launcher, processes=2, env={"OMP_NUM_THREADS": "1"})


@pytest.mark.full
def test_a_rank_that_is_killed_is_named(box: Sandbox, fifo: Fifo) -> None:
    folder = box.launch(TRAIN, job=job(box, "torchrun", "1000000", "fifo", str(fifo.path)))
    os.kill(int(fifo.word()), signal.SIGKILL)
    last = wait_ended(folder)
    assert last.outcome == "failed"
    # The step is the last one written: 3 if the other rank fails before torchrun ends it, else that of the last second.
    assert re.match(r"Rank 1 was ended at step [1-3] by SIGKILL", last.sentence)


TRAINER = """
    import gc, os, sys, torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
    torch.set_num_threads(1)

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 4000
        def __getitem__(self, index):
            return {"input_ids": torch.full((8,), 5), "labels": torch.tensor(index % 2)}

    class Order(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 20 and state.is_world_process_zero:
                with open(os.environ["TUNER_RUN_DIR"] + "/control", "w") as file:
                    file.write("stop")

    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForSequenceClassification(BertConfig(vocab_size=64, **shape))
    arguments = TrainingArguments(sys.argv[1], max_steps=100000, use_cpu=True, report_to="none", disable_tqdm=True)
    Trainer(model=model, args=arguments, train_dataset=Samples(), callbacks=[Order()]).train()
    gc.collect()
    torch.distributed.destroy_process_group()
"""


@pytest.mark.full
def test_all_ranks_of_a_trainer_save_and_stop_at_the_same_step(box: Sandbox) -> None:
    request = box.request(TRAINER, job=job(box, "torchrun", str(box.root / "out")))
    folder = launch(prepare(replace(request, stop_timeouts=StopTimeouts(stop_s=400.0))))
    box.folders.append(folder)
    last = wait_ended(folder)
    state = RunReader(folder).poll().state
    assert (last.outcome, last.exit_code) == ("stopped", 0), folder.output_log.read_text()
    [step] = {rank.latest.step for rank in state.ranks.values() if rank.latest is not None}
    assert 20 < step < 100000
    assert state.checkpoint is not None
    assert state.checkpoint.step == step
