"""Commands started by torchrun, accelerate and deepspeed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_tui.runs.launch.launchers import launcher_command
from tuner_tui.settings.distributed import AccelerateConfig
from tuner_tui.settings.job import Launcher

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4")
ACCELERATE = ("-m", "accelerate.commands.launch", "--num_processes=4")


@pytest.mark.parametrize(
    ("argv", "python", "words"),
    [
        (["train.py", "--lr", "1"], "/py", ("train.py", "--lr", "1")),
        (["python3.11", "-u", "train.py", "-m", "x"], "python3.11", ("train.py", "-m", "x")),
        (["/env/bin/python", "-m", "pkg.train", "a"], "/env/bin/python", ("--module", "pkg.train", "a")),
        (["llamafactory-cli", "train"], "/py", ("--no_python", "llamafactory-cli", "train")),
        (["python", "-c", "pass"], "python", ("--no_python", "python", "-c", "pass")),
        (["python", "-X", "dev", "a.py"], "python", ("--no_python", "python", "-X", "dev", "a.py")),
    ],
)
def test_torchrun(argv: list[str], python: str, words: tuple[str, ...]) -> None:
    assert launcher_command("torchrun", argv, 4, "/py") == (python, *TORCHRUN, *words)


def test_accelerate() -> None:
    assert launcher_command("accelerate", ["train.py"], 4, "/py") == ("/py", *ACCELERATE, "train.py")
    assert launcher_command("accelerate", ["python", "-m", "pkg"], 4, "/py") == (
        "python",
        *ACCELERATE,
        "--module",
        "pkg",
    )
    assert launcher_command("accelerate", ["tool"], 4, "/py") == ("/py", *ACCELERATE, "--no_python", "tool")


def test_deepspeed() -> None:
    starter = ("-m", "deepspeed.launcher.runner", "--num_gpus=4")
    assert launcher_command("deepspeed", ["python", "train.py"], 4, "/py") == ("python", *starter, "train.py")
    assert launcher_command("deepspeed", ["tool"], 4, "/py") == ("/py", *starter, "--no_python", "tool")


EACH_NODE = ("srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1")
MEETING = """--main_process_ip="$MASTER_ADDR" --main_process_port="$MASTER_PORT\""""


def test_accelerate_on_each_of_several_nodes() -> None:
    """The options that https://huggingface.co/docs/accelerate/basic_tutorials/launch names for several machines."""
    first = f'exec /py -m accelerate.commands.launch --num_machines=2 --machine_rank="$SLURM_NODEID" {MEETING}'
    inserted = ("sh", "-c", f'{first} --multi_gpu "$@"', "sh")
    words = ("--num_processes=8", "train.py", "--lr", "1")
    assert launcher_command("accelerate", words[1:], 8, "/py", 2) == (*EACH_NODE, *inserted, *words)
    config = AccelerateConfig(Path("default_config.yaml"), "FSDP", 8, None)
    assert launcher_command("accelerate", ["train.py"], 8, "/py", 2, config)[5] == f'{first} "$@"'
    config = AccelerateConfig(Path("default_config.yaml"), "DEEPSPEED", 8, None)
    script = launcher_command("accelerate", ["train.py"], 8, "/py", 2, config)[5]
    assert script == f'{first} --deepspeed_multinode_launcher=standard "$@"'


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ((), ""),
        (("--use_fsdp",), ""),
        (("--use_deepspeed",), " --deepspeed_multinode_launcher=standard"),
        (("--num_processes", "4"), " --multi_gpu"),
    ],
)
def test_accelerate_of_the_command_on_each_node(options: tuple[str, ...], flag: str) -> None:
    config = None if options else AccelerateConfig(Path("default_config.yaml"), "MULTI_GPU", 4, None)
    command = launcher_command("plain", ["env", "A=b c", "accelerate", "launch", *options, "t.py"], 1, "/py", 2, config)
    text = (
        f"""exec env 'A=b c' accelerate launch --num_machines=2 --machine_rank="$SLURM_NODEID" {MEETING}{flag} "$@\""""
    )
    assert command == (*EACH_NODE, "sh", "-c", text, "sh", *options, "t.py")


@pytest.mark.parametrize(
    ("launcher", "argv", "slots", "starter"),
    [
        ("deepspeed", ("t.py",), "2", "/py -m deepspeed.launcher.runner"),
        ("plain", ("deepspeed", "--num_gpus", "2", "t.py"), "2", "deepspeed"),
        ("plain", ("deepspeed", "t.py"), "${SLURM_GPUS_ON_NODE:-1}", "deepspeed"),
        ("plain", ("deepspeed", "--num_gpus", "$(id)", "t.py"), "${SLURM_GPUS_ON_NODE:-1}", "deepspeed"),
    ],
)
def test_deepspeed_on_each_of_several_nodes(
    launcher: Launcher, argv: tuple[str, ...], slots: str, starter: str
) -> None:
    """As https://www.deepspeed.ai/getting-started/#launching-without-passwordless-ssh starts it."""
    hosts = '"$TUNER_RUN_DIR/hostfile-$SLURM_NODEID"'
    text = (
        f'printf "node%d slots={slots}\\n" 0 1 >{hosts} && exec {starter} --no_ssh --hostfile={hosts} '
        '--node_rank="$SLURM_NODEID" --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"'
    )
    assert launcher_command(launcher, argv, 4, "/py", 2)[: len(EACH_NODE) + 4] == (*EACH_NODE, "sh", "-c", text, "sh")
