"""What a logout ends, by made-up files of systemd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.procfs import write_tree
from tuner_tui.core.files import read_data_file
from tuner_tui.hardware.environment import logout_warning

CASES = read_data_file(Path(__file__).with_name("logout.yaml"))
PLACES = {
    "session": "0::/user.slice/user-1000.slice/session-4.scope\n",
    "manager": "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope\n",
    "slurm": "0::/system.slice/slurmstepd.scope/job_7/step_0\n",
}
FILES = {
    "kills": ("etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=no\nKillUserProcesses=yes\n"),
    "lingers": ("var/lib/systemd/linger/ann", ""),
    "keep": ("etc/systemd/logind.conf.d/10-keep.conf", "[Login]\nKillUserProcesses = no\n"),
    "hidden": ("usr/lib/systemd/logind.conf.d/10-keep.conf", "[Login]\nKillUserProcesses=yes\n"),
    "later": ("usr/lib/systemd/logind.conf.d/20-kill.conf", "[Login]\nKillUserProcesses=on\n"),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_a_logout_ends(tmp_path: Path, case: dict[str, Any]):
    files = dict(FILES[name] for name in case["files"])
    files |= {"proc/self/cgroup": PLACES[case["place"]]} if case["place"] in PLACES else {}
    files |= {FILES["kills"][0]: FILES["kills"][1] + case["more"]} if "more" in case else {}
    sentence = logout_warning(case.get("user", "ann"), write_tree(tmp_path, files)) or ""
    assert bool(sentence) is ("say" in case)
    assert all(words in sentence for words in case.get("say", ()))
    assert "not" not in case or case["not"] not in sentence


def test_this_box_has_an_answer():
    sentence = logout_warning()
    assert sentence is None or "logout" in sentence
