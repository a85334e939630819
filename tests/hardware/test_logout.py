"""What a logout ends, by made-up files of systemd and a made-up `loginctl`."""

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
FILES = {"lingers": ("var/lib/systemd/linger/ann", "")}
LOGINCTL = """#!/bin/sh
echo "KillOnlyUsers={only}"
echo "KillExcludeUsers={exclude}"
echo "KillUserProcesses={kill}"
"""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_a_logout_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]):
    files = dict(FILES[name] for name in case.get("files", ()))
    files |= {"proc/self/cgroup": PLACES[case["place"]]} if case["place"] in PLACES else {}
    if "kill" in case:
        files["bin/loginctl"] = LOGINCTL.format(**{"only": "", "exclude": "root"} | case)
    root = write_tree(tmp_path, files)
    if "kill" in case:
        (root / "bin/loginctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{root / 'bin'}:/bin:/usr/bin")
    sentence = logout_warning(case.get("user", "ann"), root) or ""
    assert bool(sentence) is ("say" in case)
    assert all(words in sentence for words in case.get("say", ()))
    assert "not" not in case or case["not"] not in sentence


def test_this_box_has_an_answer():
    sentence = logout_warning()
    assert sentence is None or "logout" in sentence
