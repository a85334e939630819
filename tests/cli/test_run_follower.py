"""The lines that `run` and `logs --events` print for the events of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_tui.cli.console import ExitCode
from tuner_tui.cli.run_follower import follow
from tuner_tui.core.signals import Signals
from tuner_tui.runs.events.types import Event, Finished, InEffect, Launched
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder


def followed(tmp_path: Path, capsys: pytest.CaptureFixture[str], *events: Event) -> list[str]:
    folder = RunFolder(tmp_path / "r001")
    folder.path.mkdir()
    folder.events.write_bytes(b"".join(map(encode_event, events)))
    with Signals() as interrupts:
        assert follow(folder, False, interrupts) == ExitCode.DONE
    return capsys.readouterr().out.splitlines()


def test_settings_in_effect_leave_out_what_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = InEffect(t=2.0, values={"optimizer": "AdamW", "fused": None, "learning_rate": 1e-3, "bf16": False})
    end = Finished(t=3.0, outcome="completed", sentence="Completed.")
    lines = followed(tmp_path, capsys, Launched(t=1.0, pid=7), seen, end)
    assert "in effect   optimizer AdamW, learning_rate 0.001, bf16 off" in lines


def test_a_long_list_of_settings_ends_after_a_whole_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = {f"setting_{number}": number for number in range(100)}
    end = Finished(t=3.0, outcome="completed", sentence="Completed.")
    [line] = [text for text in followed(tmp_path, capsys, InEffect(t=2.0, values=values), end) if "in effect" in text]
    assert line.endswith(" …")
    assert len(line) <= 212


def test_the_end_says_that_the_loss_is_not_finite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    end = Finished(t=3.0, outcome="completed", sentence="Completed.", not_finite_since=41)
    lines = followed(tmp_path, capsys, Launched(t=1.0, pid=7), end)
    assert lines[-1] == "finished    Completed. The loss is not finite since step 41."
