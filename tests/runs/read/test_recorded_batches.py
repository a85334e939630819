"""Reading the rows of a run's steps from files that may be torn, rotated or somebody else's."""

from __future__ import annotations

import os
from pathlib import Path

from tuner_tui.inspection.suspect_batches import NO_SUSPECTS
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Raised
from tuner_tui.runs.read.recorded_batches import read_batches, read_suspects
from tuner_tui.runs.store.folder import RunFolder

LINE = '{"step":%d,"epoch":1,"rows":[[1,2]],"shape":[2,8],"losses":[%s]}\n'


def test_rotated_files_of_all_ranks_are_read_in_the_order_of_steps(tmp_path: Path) -> None:
    (tmp_path / "batches-rank0.jsonl.old").write_text(LINE % (1, "0.5"))
    (tmp_path / "batches-rank0.jsonl").write_text(LINE % (2, '"nan"') + '{"step":3,"ro')
    (tmp_path / "batches-rank1.jsonl").write_text("[]\nnull\n" + LINE % (2, "0.5") + LINE % (3, '"?"'))
    batches = read_batches(RunFolder(tmp_path))
    assert [(batch.step, batch.rank) for batch in batches] == [(1, 0), (2, 0), (2, 1)]
    assert batches[0].rows == ((1, 2),)
    assert [suspect.batch.step for suspect in read_suspects(RunFolder(tmp_path), RunState()).suspects] == [2]


def test_a_run_without_files_has_no_suspects(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "batches-rank0.jsonl")
    (tmp_path / "batches-rankx.jsonl").write_text(LINE % (1, "0.5"))
    assert read_batches(RunFolder(tmp_path)) == []
    failed = RunState(raised=Raised(t=1.0, type="ValueError", message="bad row"))
    assert read_suspects(RunFolder(tmp_path / "gone"), failed) == NO_SUSPECTS
