"""Requests in the control file, read by one rank or by several."""

from __future__ import annotations

from pathlib import Path

from tuner_tui.observer.site._tuner_observer.hooks.reporter import ControlFile


def test_a_request_is_returned_once_and_not_if_it_is_old(tmp_path: Path) -> None:
    file = tmp_path / "control"
    file.write_text("stop\n")
    old = ControlFile(str(tmp_path))
    old.start()
    assert old.request(1) is None
    now = [100.0]
    control = ControlFile(str(tmp_path), lambda: now[0])
    assert control.request(1) == "stop"
    now[0] += 2
    assert control.request(2) is None
    file.write_text("checkpoint 17\n")
    assert control.request(3) is None, "polled at most once a second"
    now[0] += 2
    assert control.request(4) == "checkpoint"


def test_ranks_act_at_the_same_step(tmp_path: Path) -> None:
    now = [100.0]
    first, second, third = (
        ControlFile(str(tmp_path), lambda: now[0], lambda rank=rank: (rank, 3))  # type: ignore[misc]
        for rank in range(3)
    )
    for control in (first, second, third):
        control.start()
    assert [control.request(1) for control in (third, second, first)] == [None] * 3
    (tmp_path / "control").write_text("stop\n")
    now[0] += 0.5
    assert [control.request(2) for control in (first, second, third)] == [None] * 3, "not polled yet"
    now[0] += 0.6
    assert second.request(3) is None, "only rank 0 reads the request"
    assert first.request(3) is None, "other ranks may have finished this step"
    assert [control.request(4) for control in (third, first, second)] == ["stop"] * 3
    now[0] += 2
    assert [control.request(5) for control in (first, second, third)] == [None] * 3
