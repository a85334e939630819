"""accelerate's own configuration file: where it is, and what it does to the number of processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from tuner_tui.settings.distributed import (
    Sharding,
    devices_per_process,
    process_count,
    read_accelerate_config,
    state_sharding,
)
from tuner_tui.settings.job import BuiltinJob, CommandJob, job_from_json

EXAMPLES = yaml.load(Path(__file__).with_name("distributed.yaml").read_text(), yaml.CSafeLoader)

FOUR = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 4\nmixed_precision: bf16\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "accelerate").mkdir()
    return tmp_path


def default(home: Path, text: str) -> Path:
    path = home / "accelerate" / "default_config.yaml"
    path.write_text(text)
    return path


def started(words: str, home: Path, gpus: int | None = 2) -> int:
    job = CommandJob(command=tuple(words.split()))
    return process_count(job, gpus, read_accelerate_config(job, {"HF_HOME": str(home)}, home))


def test_the_default_file_counts_where_the_command_names_none(home: Path) -> None:
    path = default(home, FOUR)
    job = CommandJob(command=("accelerate", "launch", "train.py"))
    config = read_accelerate_config(job, {"HF_HOME": str(home)}, home)
    assert config is not None
    assert config.summary == f"4 processes (MULTI_GPU), bf16, by {path}"
    assert started("accelerate launch train.py", home, gpus=0) == 4


@pytest.mark.parametrize(("words", "processes"), EXAMPLES["command and file together"])
def test_command_and_file_together(home: Path, words: str, processes: int) -> None:
    default(home, FOUR)
    (home / "other.yaml").write_text("distributed_type: 'NO'\n")
    (home / "trl.yaml").write_text("model_name_or_path: m\nnum_processes: 6\n")
    assert started(words, home) == processes


@pytest.mark.parametrize(("text", "processes"), EXAMPLES["what stands in the file"])
def test_what_stands_in_the_file(home: Path, text: str, processes: int) -> None:
    default(home, text)
    assert started("accelerate launch train.py", home, gpus=5) == processes


def test_the_cache_folder_is_found_as_hugging_face_does(tmp_path: Path) -> None:
    job = CommandJob(command=("accelerate", "launch", "train.py"), env={"XDG_CACHE_HOME": str(tmp_path / "mine")})
    folder = tmp_path / "mine" / "huggingface"
    (folder / "accelerate").mkdir(parents=True)
    path = default(folder, FOUR)
    config = read_accelerate_config(job, {"HOME": "/nowhere"}, tmp_path)
    assert config is not None
    assert config.path == path
    assert read_accelerate_config(structs.replace(job, env={}), {"HOME": "/nowhere"}, tmp_path) is None


def test_a_file_is_named_from_the_jobs_own_folder(home: Path) -> None:
    (home / "sub").mkdir()
    (home / "sub" / "two.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 2\n")
    job = CommandJob(command=("accelerate", "launch", "--config_file=two.yaml", "train.py"), cwd="sub")
    assert process_count(job, 0, read_accelerate_config(job, {}, home)) == 2


def test_nobody_else_is_started_by_accelerate(home: Path) -> None:
    default(home, FOUR)
    env = {"HF_HOME": str(home)}
    assert read_accelerate_config(BuiltinJob(), env, home) is None
    assert read_accelerate_config(CommandJob(command=("torchrun", "train.py")), env, home) is None
    assert read_accelerate_config(CommandJob(command=("x",), launcher="accelerate"), env, home) is not None


@pytest.mark.parametrize("text", ["a: [", "- a", "a: 2024-99-99", f"a: {'[' * 3000}", "\x00"])
def test_a_file_that_cannot_be_read_tells_nothing(home: Path, text: str) -> None:
    default(home, text)
    job = CommandJob(command=("accelerate", "launch", "train.py"))
    assert read_accelerate_config(job, {"HF_HOME": str(home)}, home) is None


@pytest.mark.parametrize(("command", "processes"), EXAMPLES["the commands own launcher counts"])
def test_the_commands_own_launcher_counts(command: str, processes: int) -> None:
    assert process_count(CommandJob(command=tuple(command.split())), gpu_count=3) == processes


@pytest.mark.parametrize(("job", "gpus", "processes"), EXAMPLES["the processes of a job"])
def test_the_processes_of_a_job(job: dict[str, Any], gpus: int | None, processes: int) -> None:
    assert process_count(job_from_json({"kind": "command", **job}), gpus) == processes


def test_one_process_shares_a_step_among_the_gpus_where_a_trainer_is_known() -> None:
    job, of_one = CommandJob(command=("python", "t.py")), CommandJob(command=("tune", "run", "lora_single_device"))
    assert [devices_per_process(job, 1, 4, by_trainer) for by_trainer in (True, False)] == [4, None]
    assert [devices_per_process(job, 1, 4, by_trainer=False) for job in (BuiltinJob(), of_one)] == [4, 1]
    assert {devices_per_process(job, *counts, by_trainer=False) for counts in ((1, 1), (1, 0), (2, 4))} == {1}


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "fit.yaml").write_text("trainer: {devices: 2}\n")
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 2 train.py --learning_rate 1e-4\n")
    jobs = [
        CommandJob(command=("python", "fit.py", "fit.yaml"), cwd=str(tmp_path)),
        CommandJob(command=("bash", "run.sh"), cwd=str(tmp_path)),
    ]
    assert [*map(process_count, jobs)] == [2, 2]
    for file in tmp_path.iterdir():
        file.write_text(file.read_text().replace("2 ", "3 ").replace("2}", "3}"))
    assert [*map(process_count, jobs)] == [3, 3]


DEEPSPEED_FILE = """{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}"""
FSDP_FILE = "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP, fsdp_offload_params: false}\n"
NVME_FILE = """{"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}"""
ZERO_FILE = "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, offload_param_device: none}\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("torchrun train.py --deepspeed zero3", Sharding("zero3", 3, True)),
        ("torchrun train.py --deepspeed zero3_offload", Sharding("zero3_offload", 3, True, True, True)),
        (
            "torchrun train.py --deepspeed conf/ds_zero2_no_offload.json",
            Sharding("conf/ds_zero2_no_offload.json", 2, True),
        ),
        ("torchrun train.py --deepspeed two.json", Sharding("two.json", 2, True, True, False)),
        ("torchrun train.py --deepspeed nvme.json", Sharding("nvme.json", 3, True, False, True, on_disk=True)),
        ("torchrun train.py --deepspeed absent.json", Sharding("absent.json")),
        ("torchrun train.py --deepspeed zero0", None),
        ("accelerate launch --use_deepspeed --zero_stage 2 train.py", Sharding("--use_deepspeed", 2, True)),
        ("accelerate launch --use_fsdp --fsdp_sharding_strategy FULL_SHARD train.py", Sharding("--use_fsdp", 3)),
        ("accelerate launch --use_fsdp --fsdp_sharding_strategy NO_SHARD train.py", None),
        ("accelerate launch --config_file fsdp.yaml train.py", Sharding("FSDP", 2)),
        ("accelerate launch --config_file zero.yaml train.py", Sharding("DEEPSPEED", 3, True)),
        ("trl sft --accelerate_config fsdp2 --num_processes 8", Sharding("fsdp2", 3)),
        ("torchrun train.py --batch 8", None),
    ],
)
def test_how_the_state_is_divided_follows_from_the_command_and_its_files(
    words: str, expected: Sharding | None, tmp_path: Path
) -> None:
    files = {"two.json": DEEPSPEED_FILE, "nvme.json": NVME_FILE, "fsdp.yaml": FSDP_FILE, "zero.yaml": ZERO_FILE}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert state_sharding(CommandJob(command=tuple(words.split()), cwd=str(tmp_path))) == expected
