"""How many processes a command trains in."""

from __future__ import annotations

import pytest

from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.world import devices_of_one, processes_of


@pytest.mark.parametrize(
    ("command", "processes"),
    [
        ("python train.py --num_processes 4", 1),
        ("torchrun train.py", 1),
        ("torchrun --standalone --nproc-per-node=8 train.py --nproc-per-node 2", 8),
        ("torchrun --nproc_per_node 4 --nnodes 2 -m package.train", 8),
        ("torchrun --nnodes=1:4 --nproc-per-node gpu train.py", 3),
        ("torchrun --nproc-per-node auto train.py", 3),
        ("torchrun --nproc-per-node cpu train.py", 1),
        ("torchrun --nproc-per-node ² train.py", 1),
        (f"deepspeed --num_gpus {'9' * 5000} train.py", 1),
        ("python -m torch.distributed.run --nproc-per-node=2 train.py", 2),
        ("/opt/venv/bin/accelerate launch --mixed_precision bf16 --num_processes 4 train.py", 4),
        ("accelerate launch train.py --num_processes 4", 3),
        ("python -m accelerate.commands.launch --num-processes=2 -m package", 2),
        ("deepspeed --num_gpus 4 --num_nodes 2 train.py", 8),
        ("deepspeed --include localhost:0,2@other:1 train.py", 3),
        ("deepspeed train.py --deepspeed ds.json", 3),
        ("env A=1 uv run torchrun --nproc-per-node 2 train.py", 2),
        ("trl sft --config x.yaml --num_processes 2", 2),
        ("axolotl train x.yaml", 3),
        ("llamafactory-cli train x.yaml", 3),
        ("swift sft --model m", 1),
    ],
)
def test_the_commands_own_launcher_counts(command: str, processes: int) -> None:
    assert processes_of(CommandJob(command=tuple(command.split())), cards=3) == processes


def test_without_a_card_accelerate_starts_one() -> None:
    job = CommandJob(command=("accelerate", "launch", "--num_processes", "4", "train.py"))
    assert [processes_of(job, cards) for cards in (0, 2, None)] == [1, 4, 4]


def test_the_jobs_launcher_counts_first() -> None:
    job = CommandJob(command=("python", "train.py"), launcher="torchrun", processes=6)
    assert processes_of(job, cards=2) == 6
    assert processes_of(BuiltinJob(), cards=2) == 1
    assert processes_of(BuiltinJob(launcher="torchrun", processes=2)) == 2


def test_tools_read_the_environment() -> None:
    swift = CommandJob(command=("swift", "sft"), env={"NPROC_PER_NODE": "4"})
    elastic = CommandJob(command=("torchrun", "train.py"), env={"PET_NPROC_PER_NODE": "2", "PET_NNODES": "2"})
    assert [processes_of(job) for job in (swift, elastic)] == [4, 4]


def test_without_knowing_the_cards_what_is_not_told_is_one() -> None:
    assert processes_of(CommandJob(command=("torchrun", "--nproc-per-node", "gpu", "train.py"))) == 1


def test_one_card_takes_one_process() -> None:
    assert processes_of(CommandJob(command=("accelerate", "launch", "--num_processes", "4", "train.py")), 1) == 1


def test_one_process_shares_a_step_among_the_cards_where_a_trainer_is_known() -> None:
    unknown, trainer = CommandJob(command=("python", "t.py")), CommandJob(command=("python", "t.py"), apply="hf-args")
    assert [devices_of_one(job, 1, 4) for job in (BuiltinJob(), trainer, unknown)] == [4, 4, None]
    assert [devices_of_one(unknown, processes, cards) for processes, cards in ((1, 1), (1, 0), (2, 4))] == [1, 1, 1]
