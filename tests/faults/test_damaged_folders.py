"""One damaged run folder is one line of the list; it neither hides nor delays the others."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.faults.command_line import tuner
from tests.runs.builders import whole_run
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.situation import situation_of_run
from tuner_tui.runs.read.checkpoints import newest_checkpoint
from tuner_tui.runs.read.log_reader import LogReader
from tuner_tui.runs.read.reader import RunReader
from tuner_tui.runs.store.folder import RunFolder

FILES = (
    "run.json", "state.json", "events.jsonl", "events-rank1.jsonl", "samples.jsonl", "output.log", "control", "lock",
    "config.yaml", "fallback.lock",
)  # fmt: skip
LISTED = FILES[:8]
"""Files whose kind is checked for each line of the list."""


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_out(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS: tuple[Callable[[Path], None], ...] = (Path.mkdir, os.mkfifo, device, link_to_itself, link_out)


@pytest.fixture
def runs(tmp_path: Path) -> list[RunFolder]:
    return [whole_run(tmp_path / "state" / "runs") for _ in range(3)]


def damaged_runs(root: Path, names: Sequence[str]) -> Iterator[tuple[RunFolder, str]]:
    """A run for each kind of file and each name, and the name."""
    for damage, name in itertools.product(KINDS, names):
        folder = whole_run(root)
        (folder.path / name).unlink(missing_ok=True)
        damage(folder.path / name)
        yield folder, name


def test_a_wrong_kind_of_file_is_one_line(tmp_path: Path, runs: list[RunFolder]) -> None:
    damaged = list(damaged_runs(tmp_path / "state" / "runs", LISTED))
    listed = tuner(tmp_path / "state", "ps")
    assert (listed.returncode, listed.stderr) == (0, "")
    lines = {line.split()[0]: line for line in listed.stdout.splitlines()[1:]}
    assert [name for name in lines if "is damaged" not in lines[name]] == ["r003", "r002", "r001"]
    for folder, name in damaged:
        assert f"{folder.id} is damaged: {name} is not a regular file." in lines[folder.id]
    rows = json.loads(tuner(tmp_path / "state", "ps", "--json").stdout, parse_constant=pytest.fail)
    assert len(rows) == len(runs) + len(damaged)


def test_a_reader_never_waits_for_a_wrong_kind_of_file(tmp_path: Path) -> None:
    for folder, name in damaged_runs(tmp_path / "state" / "runs", FILES):
        view = RunReader(folder).poll()
        assert view.status.kind == ("broken" if name == "state.json" else "ended")
        assert LogReader(folder.output_log).tail(5).lines == (() if name == "output.log" else ("trained",))
        assert newest_checkpoint(folder) is None
        diagnose(situation_of_run(folder, view))


@pytest.mark.full
@pytest.mark.parametrize("name", ["run.json", "events.jsonl", "control"])
def test_no_command_waits_for_a_pipe(tmp_path: Path, name: str) -> None:
    good, bad = whole_run(tmp_path / "state" / "runs"), whole_run(tmp_path / "state" / "runs")
    (bad.path / name).unlink(missing_ok=True)
    os.mkfifo(bad.path / name)
    for words in (["diff", good.id, bad.id], ["logs", "-f", bad.id], ["stop", bad.id]):
        ended = tuner(tmp_path / "state", *words)
        assert ended.returncode in (0, 1, 2), (words, ended)
        assert "Traceback" not in ended.stderr, (words, ended.stderr)


def test_a_run_that_is_a_link_to_itself_is_none(tmp_path: Path, runs: list[RunFolder]) -> None:
    link_to_itself(tmp_path / "state" / "runs" / "r009")
    listed = tuner(tmp_path / "state", "ps")
    assert (listed.returncode, len(listed.stdout.splitlines())) == (0, 4)


def test_an_impossible_moment_of_launch(tmp_path: Path) -> None:
    moments = ("1.0", "NaN", "1e400", "-1e400", "1e300", "-5", '"nan"', "9" * 5000, "null", "[]")
    for moment in moments:
        path = whole_run(tmp_path / "state" / "runs").record
        path.write_text(path.read_text().replace('"created_t": 1.0', f'"created_t": {moment}'))
    listed = tuner(tmp_path / "state", "ps")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert listed.stdout.count("is damaged: run.json is damaged: ") == len(moments) - 1
    rows = json.loads(tuner(tmp_path / "state", "ps", "--json").stdout, parse_constant=pytest.fail)
    assert [row["created_t"] for row in reversed(rows)] == [1.0, *[None] * (len(moments) - 1)]


def test_a_file_that_is_one_large_hole(tmp_path: Path, runs: list[RunFolder]) -> None:
    for name in ("events.jsonl", "output.log", "samples.jsonl"):
        os.truncate(runs[1].path / name, 1 << 40)
    for words in (["ps"], ["diagnose", runs[1].id]):
        assert "Traceback" not in tuner(tmp_path / "state", *words).stderr
