"""A run is started on another host once, or not at all and that is said, whatever becomes of the connection."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.loopback import LoopbackHosts
from tuner_tui.hosts.address import HostAddress
from tuner_tui.hosts.remote_start import (
    PAUSES_S,
    READY,
    RemoteStartError,
    StartRequest,
    decode_request,
    start_on,
)
from tuner_tui.hosts.ssh import StreamEnd
from tuner_tui.runs.read.status import read_status
from tuner_tui.runs.store.folder import RunFolder, list_runs, next_folder
from tuner_tui.runs.store.record import read_record

HOST = HostAddress("gpu1")
REQUEST = StartRequest("7f", ("--set", "learning_rate=1e-4", "--", "python", "sft.py"), "/work", "version: 1\n", "mine")
SECRET = "hf_abcdefghijklmnopqrstuvwxyz0123456789"
PATIENCE_S = 300.0


class Answers:
    """Ends each command with the next of `ends`, and keeps what was sent."""

    def __init__(self, *ends: StreamEnd) -> None:
        self._ends: Iterator[StreamEnd] = iter(ends)
        self.requests: list[bytes] = []

    def run(self, host: HostAddress, *words: str, stdin: bytes, ready: bytes, timeout_s: float) -> StreamEnd:
        assert (host, words, ready) == (HOST, ("run", "--request"), READY.encode())
        self.requests.append(stdin)
        return next(self._ends)


def answer(text: str, code: int = 0, sent: bool = True) -> StreamEnd:
    return StreamEnd(code, text, sent)


def test_a_request_travels_whole() -> None:
    assert decode_request(REQUEST.encode()) == REQUEST
    with pytest.raises(ValueError, match=r"delimiter|Unterminated"):
        decode_request(REQUEST.encode()[:-1])


def test_the_same_request_is_sent_until_there_is_an_answer() -> None:
    broken = answer(f"{READY}\nconnection reset", 255)
    commands, pauses = Answers(broken, broken, answer(f'{READY}\nCommand  sft\n{{"run":"r007"}}\n')), list[float]()
    assert start_on(commands, HOST, REQUEST, pauses.append) == ("r007", "Command  sft")
    assert commands.requests == [REQUEST.encode()] * 3
    assert pauses == list(PAUSES_S[:2])


@pytest.mark.parametrize(
    ("ends", "sentence", "code"),
    [
        ([answer("Connection refused", 255, sent=False)], "Connection refused Nothing was started.", 1),
        ([answer("", -9, sent=False)], "The connection ended. Nothing was started.", 1),
        ([answer(f"{READY}\nNo such option: --new", 2)], "No such option: --new", 2),
        ([answer(f"{READY}\nThis training is already running as r003.", 4)], "already running as r003", 4),
        ([answer(f'{READY}\n{{"run":"r1; reboot"}}\n\x1b]0;x\x07', 0)], "reboot", 1),
        ([answer(READY, 255)] * 5, "look there before you start it again", 1),
    ],
)
def test_what_was_not_started_is_said(ends: list[StreamEnd], sentence: str, code: int) -> None:
    with pytest.raises(RemoteStartError, match=re.escape(sentence)) as caught:
        start_on(Answers(*ends), HOST, REQUEST, lambda _: None)
    assert "\x1b" not in str(caught.value)
    assert caught.value.code == code


@pytest.fixture
def breaking_ssh(tmp_path: Path, loopback: LoopbackHosts) -> str:
    """An ssh that keeps its arguments, and is killed in its first call when the file `kill-when` names exists."""
    script = tmp_path / "ssh"
    script.write_text(
        f"""#!/bin/sh
echo "$@" >>{tmp_path}/arguments
if [ -e {tmp_path}/kill-when ]; then
  exec 3<&0; wanted=$(cat {tmp_path}/kill-when); rm {tmp_path}/kill-when
  ssh -F {loopback.config} "$@" <&3 & child=$!
  until [ -e "$wanted" ]; do sleep 0.05; done
  kill -9 $child $$
fi
exec ssh -F {loopback.config} "$@"
"""
    )
    script.chmod(0o755)
    return str(script)


def run_on(ssh: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuner_tui", "run", "--host", *words]
    environ = {**os.environ, "TUNER_SSH": ssh}
    return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def started(loopback: LoopbackHosts, before: set[RunFolder]) -> list[RunFolder]:
    return [folder for folder in list_runs(loopback.state / "runs") if folder not in before]


def wait_ended(folder: RunFolder) -> str | None:
    ends_s = time.monotonic() + PATIENCE_S
    while read_status(folder).live and time.monotonic() < ends_s:
        time.sleep(0.05)
    return read_status(folder).outcome


def test_a_run_starts_on_the_host_and_its_secrets_stay_out_of_command_lines(
    loopback: LoopbackHosts, breaking_ssh: str, tmp_path: Path
) -> None:
    before = set(list_runs(loopback.state / "runs"))
    (tmp_path / "three.yaml").write_text("settings:\n  learning_rate: 3.0e-04\n")
    program = [sys.executable, "-c", "import os; print(os.getcwd())", "--token", SECRET]
    done = run_on(breaking_ssh, tmp_path, "good", "--preset", "three.yaml", "--apply", "none", "--", *program)
    assert done.returncode == 0, done.stderr
    [folder] = started(loopback, before)
    assert done.stdout == f"{folder.id}\n"
    assert wait_ended(folder) == "completed"
    assert folder.output_log.read_text() == f"{tmp_path}\n"
    assert read_record(folder).resolved.settings.learning_rate == 3e-4
    assert SECRET not in (tmp_path / "arguments").read_text() + done.stderr
    assert "run --request" in (tmp_path / "arguments").read_text()


@pytest.mark.parametrize("when", ["at once", "when it starts"])
def test_ssh_killed_in_the_middle_of_a_start(
    loopback: LoopbackHosts, breaking_ssh: str, tmp_path: Path, when: str
) -> None:
    """It is killed before it has sent the request, or when the run is there and the answer is not."""
    before = set(list_runs(loopback.state / "runs"))
    mark = tmp_path / "trained"
    folder = next_folder(loopback.state / "runs")
    (tmp_path / "kill-when").write_text(str(tmp_path if when == "at once" else folder.record))
    program = [sys.executable, "-c", f"open({str(mark)!r}, 'a').write('x')"]
    done = run_on(breaking_ssh, tmp_path, "good", "--json", "--", *program)
    runs = started(loopback, before)
    if when == "at once":
        assert (done.returncode, runs) == (1, [])
        assert "Nothing was started." in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert [folder.id for folder in runs] == [json.loads(done.stdout)["run"]]
        assert wait_ended(runs[0]) == "completed"
        assert mark.read_text() == "x"


def test_a_folder_that_the_host_lacks_is_named(loopback: LoopbackHosts, breaking_ssh: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    (tmp_path / "kill-when").unlink(missing_ok=True)
    script = Path(breaking_ssh)
    script.write_text(script.read_text().replace("exec ssh", f"rmdir {gone}\nexec ssh"))
    done = run_on(breaking_ssh, gone, "good", "--", sys.executable, "-c", "pass")
    assert done.returncode == 2
    assert f"good: There is no folder {gone} on this host" in done.stderr


@pytest.mark.parametrize("words", [("good", "--when-free"), ("-oProxyCommand=touch x",)])
def test_what_does_not_go_with_a_host(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run_on("ssh", tmp_path, *words, "--", "true")
    assert done.returncode == 2
    assert not (tmp_path / "x").exists()
