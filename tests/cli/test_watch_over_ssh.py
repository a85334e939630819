"""`tuner-tui watch HOST...` over a real sshd on the loopback: a good host, one without tuner-tui, a dead, a silent."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.fakes.nvml.scenario import FakeGpu, Scenario

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
PATIENCE_S = 300.0
MAIN = "from tuner_tui.cli.main import main; main()"
SMI_LINE = "0, NVIDIA T4, 37, 8192, 15360, 60.5, 70.00, 61"
GO_ON = 'eval "$SSH_ORIGINAL_COMMAND"'


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def write_program(path: Path, script: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def short_path() -> Iterator[str]:
    """A folder for sockets, whose paths have at most 108 bytes."""
    with TemporaryDirectory(prefix="ssh-") as folder:
        yield folder


@pytest.fixture
def ssh_folder(tmp_path: Path, short_path: str, nvml_library: Path) -> Iterator[Path]:
    """A folder whose `bin/ssh` knows the hosts; each has a key of its own, and the sshd a command for each key."""
    if SSHD is None:
        pytest.skip("there is no sshd: install openssh-server")
    environment = {
        **Scenario((FakeGpu(), FakeGpu())).environment(nvml_library, tmp_path),
        "TUNER_STATE_DIR": str(tmp_path / "state"),
        "PATH": f"{tmp_path}/bin-good:/usr/bin:/bin",
    }
    exports = " ".join(f"{name}={shlex.quote(environment[name])}" for name in (
        "LD_LIBRARY_PATH", "FAKE_NVML_SCENARIO", "TUNER_STATE_DIR", "PATH"
    ))  # fmt: skip
    write_program(tmp_path / "bin-good/tuner-tui", f'exec {shlex.join([sys.executable, "-c", MAIN])} "$@"')
    write_program(tmp_path / "bin-bare/nvidia-smi", f"while :; do echo '{SMI_LINE}'; sleep 1; done")
    for name in ("sh", "sleep"):
        (tmp_path / "bin-bare" / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    commands = {
        "good": f"export {exports}; {GO_ON}",
        "bare": f"PATH={tmp_path}/bin-bare; HOME={tmp_path}; {GO_ON}",
        "silent": "exec sleep 600",
    }
    for name in ("host", *commands):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    keys = {name: (tmp_path / f"{name}.pub").read_text().strip() for name in ("host", *commands)}
    escaped = {name: command.replace('"', '\\"') for name, command in commands.items()}
    (tmp_path / "authorized_keys").write_text(
        "".join(f'command="{command}" {keys[name]}\n' for name, command in escaped.items())
    )
    port = free_port()
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nPidFile none\nStrictModes no\nUsePAM no\n"
        f"AuthorizedKeysFile {tmp_path}/authorized_keys\nPermitRootLogin yes\n"
    )
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{port} {keys['host']}\n")
    (tmp_path / "ssh_config").write_text(
        f"Host dead\n  Port {free_port()}\n"
        f"Host *\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        f"  IdentitiesOnly yes\n  IdentityAgent none\n  IdentityFile {tmp_path}/%n\n"
        f"  UserKnownHostsFile {tmp_path}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
        # What people have in theirs: it must not get in the way.
        "  RemoteCommand echo mine\n  ControlMaster auto\n  ControlPersist 600\n"
        f"  ControlPath {short_path}/%C\n"
    )
    write_program(tmp_path / "bin/ssh", f'exec {shutil.which("ssh")} -F {tmp_path}/ssh_config "$@"')
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where its unprivileged part is locked up
    with subprocess.Popen([SSHD, "-D", "-e", "-f", str(tmp_path / "sshd_config")], stderr=subprocess.DEVNULL) as sshd:
        words = [str(tmp_path / "bin/ssh"), "-T", "-o", "BatchMode=yes", "-o", "RemoteCommand=none", "-S", "none"]
        words += ["-o", "ConnectionAttempts=30", "bare", "sleep 0"]
        login = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
        if login.returncode == 0:
            yield tmp_path
        sshd.terminate()
    if login.returncode:
        pytest.skip(f"the sshd lets nobody in: {login.stderr.strip()}")


def connections(folder: Path) -> list[str]:
    """Command lines of the processes of ssh that use the configuration of `folder`."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes()
            if b"ssh\0" in words and os.fsencode(f"{folder}/ssh_config") in words:
                lines.append(words.replace(b"\0", b" ").decode("utf-8", "replace"))
    return lines


@pytest.mark.full
def test_each_host_is_shown_as_it_is_and_nothing_is_left_of_the_connections(ssh_folder: Path) -> None:
    environ = {**os.environ, "PATH": f"{ssh_folder}/bin:{os.environ['PATH']}"}
    command = [sys.executable, "-c", MAIN, "watch", "good", "bare", "dead", "silent", "--json"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        ends_s = time.monotonic() + PATIENCE_S
        for line in watching.stdout:
            hosts = {host["name"]: host for host in json.loads(line)}
            if hosts["good"]["machine"] and hosts["bare"]["machine"] and hosts["dead"]["problem"]:
                break
            assert time.monotonic() < ends_s, line
        assert "Connection refused" in hosts["dead"]["problem"]
        assert [gpu["name"] for gpu in hosts["good"]["machine"]["sample"]["gpus"]] == ["NVIDIA A100-SXM4-80GB"] * 2
        assert hosts["good"]["machine"]["sample"]["host"]["ram_total_bytes"] > 0
        (gpu,) = hosts["bare"]["machine"]["sample"]["gpus"]
        assert (gpu["name"], gpu["memory_total_bytes"]) == ("NVIDIA T4", 15 * 1024**3)
        assert hosts["silent"] == {"name": "silent", "machine": None, "problem": None}
        assert len(connections(ssh_folder)) >= 3
        watching.send_signal(signal.SIGKILL)
    while connections(ssh_folder) and time.monotonic() < ends_s:
        time.sleep(0.05)
    assert connections(ssh_folder) == []
