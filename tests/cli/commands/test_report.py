"""`tuner-tui report`: Markdown on standard output, SVG and HTML in a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.invoke import invoke
from tests.runs.builders import counters, whole_run
from tuner_tui.runs.events.types import Metrics
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import RunFolder, runs_dir


@pytest.fixture
def run() -> RunFolder:
    """A run of 100 steps of 8 samples with two losses, which completed after 7 s."""
    folder = whole_run(runs_dir())
    lines = folder.events.read_bytes().splitlines(keepends=True)
    losses = [Metrics(t=3.0, rank=0, step=1, loss=4.0), Metrics(t=8.0, rank=0, step=100, loss=1.5)]
    middle = [encode_event(event) for event in (*losses, counters(100, 8, 5.0, t=8.0))]
    folder.events.write_bytes(b"".join([lines[0], *middle, lines[-1]]))
    return folder


def test_markdown_has_outcome_facts_chart_and_time(run: RunFolder) -> None:
    result = invoke("report")  # the newest run
    assert result.exit_code == 0, result.stderr
    text = result.stdout
    assert text.startswith(f"# {run.id} ")
    assert "**✓ Completed** · 100 steps in 7 s" in text
    assert "| loss | 4.0000 → 1.5000 |" in text
    assert "| checkpoint | none saved |" in text
    assert "┤" in text.partition("```text\n")[2]
    assert "kWh" not in text
    assert "▏compute 64 %" in text, "the bar of the pictures"
    assert "| micro batch | 8 |" in text


@pytest.mark.parametrize(("kind", "start"), [("svg", "<svg"), ("html", "<!DOCTYPE html>")])
def test_a_picture_or_a_page_is_one_file_that_loads_nothing(
    run: RunFolder, tmp_path: Path, kind: str, start: str
) -> None:
    path = tmp_path / f"report.{kind}"
    assert invoke("report", run.id, "--output", str(path)).exit_code == 0
    content = path.read_text()
    assert content.startswith(start)
    assert "Completed" in content
    assert "http" not in content.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "<circle" in content, "the losses"
    assert not re.search("[⠀-⣿]", content), "no sign of which a font may have none"
    assert {"date", "micro batch", "compute 64 %"} <= set(re.findall(r"<text[^>]*>([^<]*)</text>", content))
    assert "run again" not in content, "keys are for the screen"


def test_what_cannot_be_written_is_refused(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("mine")
    for name, reason in (("there.md", "exists"), ("x.pdf", "ends with one of"), ("no/x.md", "is not a folder")):
        result = invoke("report", run.id, "-o", str(tmp_path / name))
        assert result.exit_code == 2
        assert reason in result.stderr
    assert (tmp_path / "there.md").read_text() == "mine"
