"""Commands that are not well-behaved trainings: the status is right and its sentence plain."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

import pytest
from msgspec.structs import replace

from tests.runs.sandbox import Sandbox, wait_ended
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import prepare
from tuner_tui.runs.launch.start import launch
from tuner_tui.runs.read.log_reader import LogReader
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.settings.job import CommandJob


def test_a_crash_at_import_names_its_exception(box: Sandbox) -> None:
    last = wait_ended(box.launch("import no_such_module_at_all"))
    assert last.outcome == "failed"
    assert last.sentence == "The training failed: ModuleNotFoundError: No module named 'no_such_module_at_all'."


def test_one_that_becomes_another_program(box: Sandbox) -> None:
    folder = box.launch("import os; os.execv('/bin/sh', ['sh', '-c', 'echo here; exit 4'])")
    last = wait_ended(folder)
    assert (last.outcome, last.exit_code) == ("failed", 4)
    assert folder.output_log.read_text() == "here\n"


def test_one_with_its_own_sitecustomize(box: Sandbox) -> None:
    (box.root / "sitecustomize.py").write_text("import builtins; builtins.mine = 'mine'\n")
    job = CommandJob(command=(sys.executable, "train.py"), env={"PYTHONPATH": str(box.root)})
    folder = box.launch("import sys; print(mine, '_tuner_observer' in sys.modules)", job=job)
    assert wait_ended(folder).outcome == "completed"
    assert folder.output_log.read_text() == "mine True\n"


def test_one_that_writes_no_text(box: Sandbox) -> None:
    folder = box.launch("import sys; sys.stdout.buffer.write(bytes(range(256)) * 500)")
    assert wait_ended(folder).outcome == "completed"
    assert RunReader(folder).poll().state.step is None
    assert all(line.isprintable() for line in LogReader(folder.output_log).tail(20).lines)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (CommandJob(command=("no-such-program",)), "'no-such-program' was not found on PATH"),
        (CommandJob(command=("/no/such/python", "train.py")), "'/no/such/python' does not exist"),
        (CommandJob(command=(sys.executable, "train.py"), cwd="gone"), "gone does not exist"),
    ],
)
def test_what_cannot_start_leaves_no_run(box: Sandbox, job: CommandJob, expected: str) -> None:
    with pytest.raises(LaunchError, match=expected):
        box.launch("", job=job)
    assert not (box.root / "runs").exists()


class Interrupting(Mapping[str, str]):
    """An environment in whose reading Ctrl-C comes."""

    def __getitem__(self, key: str) -> str:
        raise KeyboardInterrupt

    def __iter__(self) -> Iterator[str]:
        raise KeyboardInterrupt

    def __len__(self) -> int:
        return 1


def test_an_interrupt_before_anything_started_leaves_no_run(box: Sandbox) -> None:
    with pytest.raises(KeyboardInterrupt):
        launch(prepare(replace(box.request(""), environ=Interrupting())))
    assert not (box.root / "runs").exists()
