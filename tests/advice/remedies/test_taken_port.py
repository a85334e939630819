"""The command with a free port."""

from __future__ import annotations

import pytest

from tests.fakes.situations import situation
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.remedies.specific_errors import command_with_free_port
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Exited
from tuner_tui.settings.job import CommandJob


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("torchrun --master_port 29511 t.py", "torchrun --master_port 4001 t.py"),
        ("torchrun --rdzv_endpoint=localhost:29511 t.py", "torchrun --rdzv_endpoint=localhost:4001 t.py"),
        ("python t.py --dist-url tcp://127.0.0.1:29511", "python t.py --dist-url tcp://127.0.0.1:4001"),
        ("torchrun --nproc-per-node 2 t.py --n 295110", "torchrun --standalone --nproc-per-node 2 t.py --n 295110"),
        ("python -m torch.distributed.run --nnodes=1 t.py",
         "python -m torch.distributed.run --standalone --nnodes=1 t.py"),
        ("accelerate launch --num_processes 2 t.py", "accelerate launch --main_process_port 0 --num_processes 2 t.py"),
        ("torchrun --nnodes 2 --master_port 29511 t.py", None),
        ("python t.py", None),
    ],
)  # fmt: skip
def test_a_free_port_in_the_command(command: str, expected: str | None) -> None:
    result = command_with_free_port(command.split(), "29511", "4001")
    assert (None if result is None else " ".join(result)) == expected


def test_the_remedy_can_be_applied_and_names_the_holder() -> None:
    end = Exited(t=1.0, exit_code=1, evidence=("port 29511 is used by process 7 of run r003 (x)", "port 4001 is free"))
    job = CommandJob(command=("torchrun", "--master_port=29511", "t.py"))
    free, holder = remedies_for("port-in-use", situation(state=RunState(exited=end), job=job))
    assert free.can_apply
    assert free.command == ("torchrun", "--master_port=4001", "t.py")
    assert "process 7 of run r003" in holder.why
    unknown = remedies_for("port-in-use", situation(job=CommandJob(command=("python", "t.py"))))
    assert [name.can_apply for name in unknown] == [False, False]


def test_under_srun_no_node_gets_a_training_of_its_own() -> None:
    job = CommandJob(command=("srun", "torchrun", "t.py"))
    free, _ = remedies_for("port-in-use", situation(job=job, log=("srun: error: n7: task 3: Exited with exit code 1",)))
    assert not free.can_apply
    assert "one launcher on each node" in free.title
