"""What a logout ends, by made-up files of systemd."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.procfs import write_tree
from tuner_tui.hardware.environment import logout_warning

SESSION = {"proc/self/cgroup": "0::/user.slice/user-1000.slice/session-4.scope\n"}
MANAGER = {"proc/self/cgroup": "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope\n"}
SLURM = {"proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_7/step_0\n"}
KILLS = {"etc/systemd/logind.conf": "[Login]\n#KillUserProcesses=no\nKillUserProcesses=yes\n"}
LINGERS = {"var/lib/systemd/linger/ann": ""}


def said(tmp_path: Path, *files: dict[str, str], user: str = "ann") -> str | None:
    return logout_warning(user, write_tree(tmp_path, {name: text for each in files for name, text in each.items()}))


def test_a_session_whose_processes_are_killed_is_told_the_way_out(tmp_path: Path):
    sentence = said(tmp_path, SESSION, KILLS)
    assert sentence is not None
    assert "KillUserProcesses=yes" in sentence
    assert "loginctl enable-linger ann" in sentence
    assert "systemd-run --user --scope" in sentence


def test_lingering_alone_does_not_save_what_is_in_the_session(tmp_path: Path):
    sentence = said(tmp_path, SESSION, KILLS, LINGERS)
    assert sentence is not None
    assert "enable-linger" not in sentence
    assert "systemd-run --user --scope" in sentence


def test_below_the_users_manager_lingering_is_all_it_takes(tmp_path: Path):
    sentence = said(tmp_path, MANAGER)
    assert sentence is not None
    assert "loginctl enable-linger ann" in sentence
    assert said(tmp_path, MANAGER, KILLS, LINGERS) is None


@pytest.mark.parametrize("place", [SESSION, SLURM, {}], ids=["session", "slurm", "no cgroups"])
def test_no_word_where_nothing_is_ended(tmp_path: Path, place: dict[str, str]):
    assert said(tmp_path, place) is None


def test_a_batch_job_is_not_the_sessions(tmp_path: Path):
    assert said(tmp_path, SLURM, KILLS) is None


def test_a_drop_in_wins_and_hides_its_namesakes(tmp_path: Path):
    off = {"etc/systemd/logind.conf.d/10-keep.conf": "[Login]\nKillUserProcesses = no\n"}
    hidden = {"usr/lib/systemd/logind.conf.d/10-keep.conf": "[Login]\nKillUserProcesses=yes\n"}
    assert said(tmp_path, SESSION, KILLS, off, hidden) is None
    later = {"usr/lib/systemd/logind.conf.d/20-kill.conf": "[Login]\nKillUserProcesses=on\n"}
    assert said(tmp_path, SESSION, KILLS, off, hidden, later) is not None


@pytest.mark.parametrize(
    ("more", "user", "warned"),
    [
        ("", "root", False),
        ("KillExcludeUsers=bob\n", "root", True),
        ("KillExcludeUsers=ann bob\n", "ann", False),
        ("KillOnlyUsers=bob\n", "ann", False),
        ("KillOnlyUsers=ann\n", "ann", True),
        ("; KillOnlyUsers=bob\n", "ann", True),
    ],
)
def test_users_that_are_spared(tmp_path: Path, more: str, user: str, warned: bool):
    config = {"etc/systemd/logind.conf": KILLS["etc/systemd/logind.conf"] + more}
    assert (said(tmp_path, SESSION, config, user=user) is not None) is warned


def test_this_box_has_an_answer():
    sentence = logout_warning()
    assert sentence is None or "logout" in sentence
