"""From the options of the command line to a launch request."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from tests.fakes.inventories import box, make_gpu, python
from tests.runs.builders import record
from tuner_tui.cli.machine import LocalMachine, parse_memory_limit
from tuner_tui.cli.training_options import TrainingOptions, launch_request
from tuner_tui.runs.store.folder import create_folder, runs_dir
from tuner_tui.runs.store.record import write_record
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Origin, OriginKind
from tuner_tui.settings.presets import find_preset
from tuner_tui.settings.resolve import LaunchOptions

COMMAND = ("python", "train.py")


def t4_machine(_interpreter: Path | None) -> LocalMachine:
    return LocalMachine(box(make_gpu("T4", gib=15.0)), python())


def test_the_built_in_job_gets_what_is_recommended_where_nobody_said_otherwise() -> None:
    resolved = launch_request(LaunchOptions("demo", {"optim": "adafactor"}), t4_machine).resolved
    demo = find_preset("demo").preset.settings
    assert {name: getattr(resolved.settings, name) for name in demo} == demo
    assert {resolved.origin(name) for name in demo} == {Origin(OriginKind.PRESET, "demo")}
    assert (resolved.settings.precision, resolved.settings.optim) == ("fp16", "adafactor")
    assert resolved.origin("precision").kind is OriginKind.RECOMMENDED
    assert "no bf16" in resolved.origin("precision").detail


def test_a_memory_limit_makes_the_gpu_as_small_for_the_recommendation(tmp_path: Path) -> None:
    bare = tmp_path / "bare.yaml"
    bare.write_text("settings: {seed: 1}")
    requests = [
        launch_request(LaunchOptions(str(bare), memory_limit_bytes=limit), t4_machine)
        for limit in (None, 4 << 30, 40 << 30)
    ]
    assert [request.resolved.settings.per_device_train_batch_size for request in requests] == [32, 8, 32]


def test_a_command_keeps_what_it_says_itself() -> None:
    request = launch_request(LaunchOptions(flags={"seed": "7"}, command=COMMAND), t4_machine)
    assert request.resolved.chosen == {"seed"}


def test_without_a_preset_a_command_or_a_project_job_there_is_nothing_to_train() -> None:
    with pytest.raises(SettingsError, match="Nothing to train"):
        launch_request(LaunchOptions(), t4_machine)


def test_the_job_of_the_project_file_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tuner.yaml").write_text("job: {kind: command, command: [python, mine.py], apply: inject}")
    request = launch_request(LaunchOptions(), t4_machine)
    assert request.job == CommandJob(command=("python", "mine.py"), apply="inject")


def test_the_notes_of_a_preset_are_part_of_the_request(tmp_path: Path) -> None:
    flat = tmp_path / "flat.yaml"
    flat.write_text("seed: 1\nhub_token: secret\n")
    assert "hub_token ignored" in launch_request(LaunchOptions(str(flat)), t4_machine).notes[0]


def test_a_resumed_run_keeps_its_record_but_for_flags_and_job_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tuner.yaml").write_text("settings: {seed: 1}\njob: {kind: command, command: [other]}")
    folder = create_folder(runs_dir())
    first = record({"seed": 5, "lora_r": 4}, id=folder.id, memory_limit_bytes=3 << 30, preset="mine")
    write_record(folder, first)
    environment = {"TUNER_SEED": "2", "TUNER_FALLBACK": "3"}
    options = LaunchOptions(flags={"lora_r": "8"}, environment=environment, resume=folder.id)
    request = launch_request(options, t4_machine)
    assert (request.resolved.settings.seed, request.resolved.settings.lora_r) == (5, 8)
    assert request.resolved.origin("lora_r").kind is OriginKind.FLAG
    assert request.job == structs.replace(first.job, fallback=3)
    assert isinstance(request.job, BuiltinJob)
    assert (request.parent, request.cwd, request.preset) == (folder, Path(first.cwd), "mine")
    assert (request.interpreter, request.memory_limit_bytes) == (Path(first.interpreter), 3 << 30)
    given = replace(options, command=COMMAND, memory_limit_bytes=4 << 30, interpreter=Path("/other/python"))
    changed = launch_request(given, t4_machine)
    assert (changed.cwd, changed.interpreter, changed.memory_limit_bytes) == (
        Path.cwd(), Path("/other/python"), 4 << 30,
    )  # fmt: skip


def test_a_run_that_is_not_there_cannot_be_resumed() -> None:
    with pytest.raises(SettingsError, match="no run 'r9'"):
        launch_request(LaunchOptions(resume="r9"), t4_machine)


@pytest.mark.parametrize(
    ("text", "size"),
    [("6GiB", 6 << 30), ("6.5 GB", 6_500_000_000), ("800M", 800_000_000), ("512 mib", 512 << 20), ("1048576", 1 << 20)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_memory_limit(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1GB", "six", "6 XB", "1e9", "6GiBs"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(SettingsError, match="6GiB"):
        parse_memory_limit(text)


@pytest.mark.parametrize(("text", "expected"), [("24", "24 bytes"), ("900k", "900,000 bytes")])
def test_a_size_without_its_unit_is_asked_for_it(text: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=f"--memory-limit: '{text}' is only {expected}; add a unit"):
        parse_memory_limit(text)


def test_set_changes_the_job_too() -> None:
    options = TrainingOptions(model="gpt2", values=["data=my.csv", "task=causal-lm", "seed=3"]).parse()
    assert (options.model, options.task, options.data) == ("gpt2", "causal-lm", "my.csv")
    assert options.flags == {"seed": "3"}
