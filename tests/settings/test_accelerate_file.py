"""accelerate's own configuration file: where it is, and what it does to the number of processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_tui.settings.accelerate_file import accelerate_file
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.world import processes_of

FOUR = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 4\nmixed_precision: bf16\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "accelerate").mkdir()
    return tmp_path


def default(home: Path, text: str) -> Path:
    path = home / "accelerate" / "default_config.yaml"
    path.write_text(text)
    return path


def started(words: str, home: Path, cards: int | None = 2) -> int:
    job = CommandJob(command=tuple(words.split()))
    return processes_of(job, cards, accelerate_file(job, {"HF_HOME": str(home)}, home))


def test_the_default_file_counts_where_the_command_names_none(home: Path) -> None:
    path = default(home, FOUR)
    job = CommandJob(command=("accelerate", "launch", "train.py"))
    found = accelerate_file(job, {"HF_HOME": str(home)}, home)
    assert found is not None
    assert found.words == f"4 processes (MULTI_GPU), bf16, by {path}"
    assert started("accelerate launch train.py", home, cards=0) == 4


@pytest.mark.parametrize(
    ("words", "processes"),
    [
        ("accelerate launch --num_processes 3 train.py", 3),
        ("accelerate launch --config_file other.yaml train.py", 1),
        ("accelerate launch --config_file other.yaml --num_processes 8 train.py", 1),
        ("accelerate launch --config_file other.yaml --multi_gpu --num_processes 8 train.py", 8),
        ("accelerate launch --cpu train.py", 1),
        ("accelerate launch --config_file missing.yaml train.py", 2),
        ("trl sft --config trl.yaml", 6),
        ("trl sft --config trl.yaml --num_processes 2", 2),
        ("trl sft --accelerate_config other.yaml", 1),
        ("axolotl train x.yaml", 4),
        ("python train.py", 1),
    ],
)
def test_command_and_file_together(home: Path, words: str, processes: int) -> None:
    default(home, FOUR)
    (home / "other.yaml").write_text("distributed_type: 'NO'\n")
    (home / "trl.yaml").write_text("model_name_or_path: m\nnum_processes: 6\n")
    assert started(words, home) == processes


@pytest.mark.parametrize(
    ("text", "processes"),
    [
        ("distributed_type: NO\nnum_processes: 4\n", 1),
        ("distributed_type: MULTI_CPU\nnum_processes: 4\n", 1),
        ('{"distributed_type": "FSDP", "num_processes": 3}', 3),
        ("distributed_type: DEEPSPEED\nnum_processes: 2\n", 2),
        ("distributed_type: MULTI_GPU\nnum_processes: -1\n", 5),
        ("compute_environment: AMAZON_SAGEMAKER\nnum_processes: 9\n", 5),
        ("- a list", 5),
        ("{ broken", 5),
        ("", 5),
    ],
)
def test_what_stands_in_the_file(home: Path, text: str, processes: int) -> None:
    default(home, text)
    assert started("accelerate launch train.py", home, cards=5) == processes


def test_the_cache_folder_is_found_as_hugging_face_does(tmp_path: Path) -> None:
    job = CommandJob(command=("accelerate", "launch", "train.py"), env={"XDG_CACHE_HOME": str(tmp_path / "mine")})
    folder = tmp_path / "mine" / "huggingface"
    (folder / "accelerate").mkdir(parents=True)
    path = default(folder, FOUR)
    found = accelerate_file(job, {"HOME": "/nowhere"}, tmp_path)
    assert found is not None
    assert found.path == path
    assert accelerate_file(job.model_copy(update={"env": {}}), {"HOME": "/nowhere"}, tmp_path) is None


def test_a_file_is_named_from_the_jobs_own_folder(home: Path) -> None:
    (home / "sub").mkdir()
    (home / "sub" / "two.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 2\n")
    job = CommandJob(command=("accelerate", "launch", "--config_file=two.yaml", "train.py"), cwd="sub")
    assert processes_of(job, 0, accelerate_file(job, {}, home)) == 2


def test_nobody_else_is_started_by_accelerate(home: Path) -> None:
    default(home, FOUR)
    env = {"HF_HOME": str(home)}
    assert accelerate_file(BuiltinJob(), env, home) is None
    assert accelerate_file(CommandJob(command=("torchrun", "train.py")), env, home) is None
    assert accelerate_file(CommandJob(command=("x",), launcher="accelerate"), env, home) is not None


@pytest.mark.parametrize("text", ["a: [", "- a", "a: 2024-99-99", f"a: {'[' * 3000}", "\x00"])
def test_a_file_that_cannot_be_read_tells_nothing(home: Path, text: str) -> None:
    default(home, text)
    job = CommandJob(command=("accelerate", "launch", "train.py"))
    assert accelerate_file(job, {"HF_HOME": str(home)}, home) is None
