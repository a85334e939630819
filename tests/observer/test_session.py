"""The rate limit of phase events."""

from __future__ import annotations

import json
from pathlib import Path

from tuner_tui.observer.site._tuner_observer.session import PHASE_BURST, Session


def test_phases_are_rate_limited_except_the_last(tmp_path: Path) -> None:
    session = Session(str(tmp_path), launched=True)
    session.open()
    for _ in range(50):
        session.enter_phase("evaluating")
        session.enter_phase("training")
    session.enter_phase("ending")
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    phases = [line["phase"] for line in lines if line["kind"] == "phase"]
    assert len(phases) <= PHASE_BURST + 2
    assert phases[-1] == "ending"
