"""The command of a launch: its environment, its configuration file, its checks."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs
from msgspec.structs import replace

from tests.runs.sandbox import Sandbox, wait_ended
from tuner_tui.core.redaction import HIDDEN
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.runs.launch.command import (
    LaunchError,
    able_to_train,
    added_environment,
    check_command,
    check_launcher,
    check_script,
    git_revision,
    missing_processes,
    own_config,
)
from tuner_tui.runs.launch.prepare import LaunchRequest, prepare
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.store.folder import RunFolder, create_folder
from tuner_tui.runs.supervise.run_processes import OBSERVER_SITE
from tuner_tui.settings.distributed import AccelerateConfig
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Origin, OriginKind, Resolved, Settings


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_folder(tmp_path)


def test_the_observer_goes_in_front_of_the_users_path(folder: RunFolder) -> None:
    env = added_environment(CommandJob(command=("x",)), {"PYTHONPATH": "/mine"}, folder, {"bf16": True}, 5)
    assert env == {
        "PYTHONPATH": f"{OBSERVER_SITE}{os.pathsep}/mine",
        "PYTHONUNBUFFERED": "1",
        "TUNER_RUN_DIR": str(folder.path),
        "TUNER_INJECT": '{"bf16": true}',
        "TUNER_MEMORY_LIMIT_BYTES": "5",
    }
    assert (OBSERVER_SITE / "sitecustomize.py").is_file()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("no-such-program",), "not found on PATH"),
        (("./train.py",), "does not exist"),
        (("./data.txt",), "is not executable"),
        (("/",), "is not executable"),
        (("sh", f"--token={HIDDEN}"), "secret"),
    ],
)
def test_what_cannot_be_started(tmp_path: Path, argv: tuple[str, ...], words: str) -> None:
    (tmp_path / "data.txt").touch()
    with pytest.raises(LaunchError, match=words):
        check_command(argv, tmp_path, {"PATH": "/usr/bin:/bin"})


def test_a_hidden_value_of_the_environment_is_not_passed_on(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="secret"):
        check_command(("sh",), tmp_path, {"PATH": "/usr/bin:/bin", "HF_TOKEN": HIDDEN})


def test_the_commit_and_whether_files_differ(tmp_path: Path) -> None:
    assert git_revision(tmp_path) == (None, None)

    def git(*words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "a")
    assert git_revision(tmp_path) == (git("rev-parse", "HEAD"), False)
    (tmp_path / "a").write_text("2")
    assert git_revision(tmp_path) == (git("rev-parse", "HEAD"), True)


def test_a_command_that_cannot_even_be_looked_at(tmp_path: Path) -> None:
    job = CommandJob(command=(f"./{'n' * 300}/python", "train.py"))
    request = LaunchRequest(job=job, resolved=Resolved(Settings()), cwd=tmp_path, root=tmp_path / "runs")
    with pytest.raises(LaunchError, match="cannot be started: File name too long"):
        prepare(request)


def test_the_commands_own_file(tmp_path: Path) -> None:
    (tmp_path / "my.yml").write_text("base_model: gpt2\nlr: 1e-5\n")
    job = CommandJob(command=("axolotl", "train", "my.yml"), apply="yaml")
    assert own_config(job, tmp_path) == {"base_model": "gpt2", "lr": "1e-5"}
    assert own_config(structs.replace(job, apply="inject"), tmp_path) is None
    assert own_config(CommandJob(command=("t.py", "{config}"), apply="yaml"), tmp_path) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "not valid YAML"),
        ("- a", "key: value"),
        (None, "cannot be read"),
        ("a: 2024-99-99", "month must be in"),
        (f"a: {'[' * 3000}", "nested deeper than 16 levels"),
    ],
)
def test_a_file_that_settings_cannot_be_put_into(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "my.yml").write_text(text)
    with pytest.raises(SettingsError, match=words):
        own_config(CommandJob(command=("t", "my.yml"), apply="yaml"), tmp_path)


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ("accelerate launch --cpu --num_processes 2 train.py", True),
        ("python -m accelerate.commands.launch --num-processes=2 train.py", True),
        ("accelerate launch --multi_gpu --num_processes 2 train.py --cpu", False),
        ("accelerate launch --num_processes 1 train.py", False),
        ("accelerate launch train.py --num_processes 2", False),
        ("torchrun --nproc-per-node 2 train.py", False),
    ],
)
def test_a_command_whose_accelerate_starts_fewer_processes_than_it_asks_for(words: str, missing: bool) -> None:
    problem = missing_processes(CommandJob(command=tuple(words.split())), {"CUDA_VISIBLE_DEVICES": ""}, None)
    assert (problem is not None and problem.startswith("accelerate starts 1 of the 2 processes")) is missing


def test_a_launch_by_accelerate_that_would_start_one_process_is_refused(tmp_path: Path) -> None:
    job = CommandJob(command=("train.py",), launcher="accelerate", processes=2)
    alone = AccelerateConfig(tmp_path / "a.yaml", "NO", 1, None)
    with pytest.raises(LaunchError, match=r"1 of 2 processes: .*a\.yaml says distributed_type NO"):
        check_launcher(job, {}, alone)
    check_launcher(job, {"CUDA_VISIBLE_DEVICES": ""}, replace(alone, distributed_type="MULTI_GPU"))
    check_launcher(structs.replace(job, processes=1), {"CUDA_VISIBLE_DEVICES": ""}, alone)


def test_the_nodes_of_a_cluster_may_have_the_accelerators_that_this_machine_lacks(tmp_path: Path) -> None:
    job, no_gpu = CommandJob(command=("train.py",), launcher="accelerate", processes=2), {"CUDA_VISIBLE_DEVICES": ""}
    check_launcher(job, no_gpu, None, on_nodes=True)
    with pytest.raises(LaunchError, match="starts several processes only on accelerators"):
        check_launcher(job, no_gpu, None)
    with pytest.raises(LaunchError, match="says distributed_type NO"):
        check_launcher(job, no_gpu, AccelerateConfig(tmp_path / "a.yaml", "NO", 1, None), on_nodes=True)


@pytest.mark.parametrize(
    "config",
    [
        ("core.fsmonitor", "{run}"),
        ("core.hooksPath", "{hooks}"),
        ("filter.own.clean", "{run}; cat"),
        ("filter.own.process", "{run}"),
    ],
)
def test_git_runs_nothing_of_the_repository(tmp_path: Path, config: tuple[str, str]) -> None:
    trace = tmp_path / "executed"
    program = tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch {trace}\n")
    program.chmod(0o755)
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "post-index-change").symlink_to(program)
    repository = tmp_path / "repository"
    repository.mkdir()

    def git(*words: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=repository, check=True, capture_output=True)

    git("init", "-q")
    (repository / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "a")
    git("config", config[0], config[1].format(run=program, hooks=tmp_path / "hooks"))
    (repository / ".git" / "info" / "attributes").write_text("* filter=own\n")
    (repository / "a").write_text("2")
    assert git_revision(repository)[1] is True
    assert not trace.exists()
    with contextlib.suppress(subprocess.CalledProcessError):
        git("status")
    if not config[0].startswith("core.hooks"):
        assert trace.exists()  # without our options it would run


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"peft_method": "lora"}, "has no peft, which lora needs"),
        ({"optim": "adamw_bnb_8bit"}, "which adamw_bnb_8bit needs: run `/env/bin/python -m pip install bitsandbytes`"),
        ({"quantization": "nf4"}, "which quantization nf4 needs: run `/env/bin/python -m pip install bitsandbytes`"),
    ],
)
def test_a_package_that_a_setting_needs_is_asked_for_before_the_start(values: dict[str, Any], words: str) -> None:
    bare = Interpreter("/env/bin/python", "3.11.7", {"torch": "2.13.0", "transformers": "5.23.0"})
    settings = Settings(**values)
    with pytest.raises(LaunchError, match=re.escape(words)):
        able_to_train(bare, settings)
    full = replace(bare, packages={**bare.packages, "peft": "0.21.2", "bitsandbytes": "0.50.2"})
    assert able_to_train(full, settings) == full
    assert able_to_train(bare, Settings()) == bare


def test_settings_go_into_a_copy_of_the_commands_file(box: Sandbox) -> None:
    (box.root / "sft.yaml").write_text("dataset_name: data\nper_device_train_batch_size: 2\n")
    job = CommandJob(command=("cat", "sft.yaml"), apply="yaml", dialect="trl")
    chosen = Resolved(Settings(max_length=8), {"max_length": Origin(OriginKind.FLAG)})
    folder = launch(prepare(replace(box.request("", job=job), resolved=chosen)))
    box.folders.append(folder)
    assert wait_ended(folder).outcome == "completed"
    file_values = {"dataset_name": "data", "per_device_train_batch_size": 2}
    assert yaml.safe_load(folder.output_log.read_text()) == file_values | {"max_length": 8}
    assert yaml.safe_load((box.root / "sft.yaml").read_text()) == file_values, "the person's own file is left as it is"


@pytest.mark.parametrize(
    ("words", "is_refused"),
    [
        (("python", "gone.py"), True),
        (("/usr/bin/python3.11", "-u", "gone.py", "--lr", "1"), True),
        (("python", "here.py", "gone.py"), False),
        (("python", "-m", "package", "gone.py"), False),
        (("python", "-c", "print()"), False),
        (("torchrun", "gone.py"), False),  # it may be found in another way
    ],
)
def test_a_script_that_is_not_there_is_refused(tmp_path: Path, words: tuple[str, ...], is_refused: bool) -> None:
    (tmp_path / "here.py").touch()
    with pytest.raises(LaunchError, match=r"There is no script .*gone\.py\.") if is_refused else nullcontext():
        check_script(words, tmp_path)
