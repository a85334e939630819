"""`tuner-tui diagnose` over files, standard input and run folders."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import Result

from tests.cli.invoke import invoke
from tests.runs.builders import whole_run
from tuner_tui.advice.settings_check import SettingCheck
from tuner_tui.cli.commands.diagnose import finding_lines
from tuner_tui.runs.log_parsing import lines
from tuner_tui.runs.store.record import read_record, write_record
from tuner_tui.runs.store.remedy_outcomes import RemedyOutcome, record_outcome
from tuner_tui.settings.model import AppliedRemedy, Origin, OriginKind, Resolved, Settings

CRASH = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    trainer.train()
  File "/opt/env/site-packages/transformers/trainer.py", line 3700, in training_step
    self.accelerator.backward(loss)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.
"""
HEALTHY = "{'loss': '1.1', 'grad_norm': '0.3', 'epoch': '1'}\n{'train_runtime': '3.0', 'epoch': '1'}\n"
AGREES = SettingCheck("optim", "adamw_torch", "adamw_torch", "agrees")
DIFFERS = SettingCheck("tf32", True, False, "differs")


run = partial(invoke, "diagnose")


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    document_read = json.loads(result.stdout)
    assert isinstance(document_read, dict)
    return document_read


def test_this_program_is_not_installed_by_its_name(tmp_path: Path) -> None:
    """The name is not ours on the package index; any other package is installed by its own."""
    path = tmp_path / "output.log"
    for module, advised in (("tuner_tui", False), ("einops", True)):
        path.write_text(f"Traceback (most recent call last):\nModuleNotFoundError: No module named '{module}'\n")
        assert (f"pip install {module}" in run(str(path)).stdout) == advised


def test_a_file_as_json(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_text(CRASH)
    (finding,) = document(run(str(path), "--json"))["findings"]
    assert (finding["cause"], finding["where"], finding["confidence"]) == ("gpu-oom", "training", "certain")
    assert {"change", "why", "source"} <= set(finding["remedies"][0])


def test_a_healthy_file_yields_an_empty_list(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_text(HEALTHY)
    assert document(run(str(path), "--json")) == {"findings": []}


def test_standard_input_for_a_person() -> None:
    result = run("-", stdin=CRASH)
    assert result.exit_code == 0
    assert "gpu-oom" in result.stdout
    assert "gradient checkpointing on" in result.stdout


def test_nothing_found_is_an_answer() -> None:
    assert run("-", stdin=HEALTHY).stdout.strip() == "No problems found."


def test_bytes_that_are_no_text() -> None:
    assert document(run("-", "--json", stdin=bytes(range(256)) * 50)) == {"findings": []}


def test_a_run_folder_is_read_whole(tmp_path: Path) -> None:
    events = [
        {"story": 1, "v": 1, "kind": "launched", "t": 1.0, "pid": 7},
        {"story": 1, "v": 1, "kind": "exited", "t": 9.0, "signal": 9, "oom_kill": True, "evidence": ["oom_kill 1"]},
        {"story": 1, "v": 1, "kind": "finished", "t": 9.1, "outcome": "out-of-memory"},
    ]
    lines = (json.dumps(event, separators=(",", ":")) for event in events)
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "output.log").write_text("all went well so far\n")
    (finding,) = document(run(str(tmp_path), "--json"))["findings"]
    assert finding["cause"] == "host-oom"
    assert finding["evidence"] == ["oom_kill 1"]


def test_what_came_of_remedies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path))
    for number in range(1, 4):
        folder = whole_run(tmp_path / "runs")
        remedy = AppliedRemedy("compile-on", "torch.compile on", "launch-bound", f"r00{number - 1}", {"seed": 1})
        origins = {"seed": Origin(OriginKind.REMEDY, "launch-bound", remedy)} if number > 1 else {}
        write_record(folder, replace(read_record(folder), resolved=Resolved(Settings(seed=2), origins)))
    record_outcome(RemedyOutcome(("compile-on",), "torch.compile on", "r001", "r002", "not kept", "2 % slower"))
    assert "Remedy torch.compile on since r001, not as expected: 2 % slower." in run("r002").stdout
    assert document(run("r002", "--json"))["remedy"]["verdict"] == "not kept"
    assert "remedy" not in document(run("r001", "--json"))
    assert "remedy not as expected" in invoke("ps").stdout.splitlines()[2]


def test_without_an_argument_the_newest_run_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path))
    empty = run()
    assert (empty.exit_code, "There are no runs yet." in empty.output) == (2, True)
    older, newest = (whole_run(tmp_path / "runs") for _ in range(2))
    older.output_log.write_text(CRASH)
    assert document(run("--json")) == document(run(newest.id, "--json"))
    newest.output_log.write_text("")
    assert "No problems found." in run().stdout


def test_a_pipe_without_a_writer_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert lines.read_head_and_tail(path, any_kind=True, silent_s=0.01) == ("",)


def test_what_has_come_of_a_pipe_without_end_is_all(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    keeps_it_open = os.open(path, os.O_RDWR)
    os.write(keeps_it_open, b"ValueError: 7\n")
    assert lines.read_head_and_tail(path, any_kind=True, silent_s=0.01) == ("ValueError: 7", "")
    os.close(keeps_it_open)


def test_of_a_large_file_only_head_and_tail_are_read(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    with path.open("wb") as file:
        file.write(b"the first line\n")
        file.truncate(1 << 30)
        file.seek(0, 2)
        file.write(b"\nthe last line")
    excerpt = lines.read_head_and_tail(path)
    assert excerpt[0] == "the first line"
    assert excerpt[-1] == "the last line"
    assert sum(map(len, excerpt)) <= lines.HEAD_BYTES + lines.TAIL_BYTES


@pytest.mark.parametrize("text", ["", "\n  \n"])
def test_an_input_with_nothing_in_it_is_no_healthy_one(text: str, tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_text(text)
    for name, result in (("The input", run("-", stdin=text)), (path, run(str(path)))):
        assert result.exit_code == 2
        assert f"{name} is empty" in " ".join(result.stderr.split())


def test_a_program_is_no_output_of_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('Error: no')\n")
    result = run(str(script))
    assert result.exit_code == 2
    assert "is a script, not a log" in " ".join(result.stderr.split())


def test_nothing_wrong_stands_only_above_settings_that_are_in_effect() -> None:
    assert list(finding_lines((), (AGREES,))) == [["No problems found."]]
    assert list(finding_lines((), (AGREES, DIFFERS))) == [["1 requested setting is not in effect:"]]
    assert list(finding_lines((), (DIFFERS, DIFFERS))) == [["2 requested settings are not in effect:"]]
