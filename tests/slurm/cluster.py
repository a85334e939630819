"""A Slurm cluster of two pretended nodes on the loopback.

Each node has a host name and a PID namespace of its own, so that its processes are out of sight as on another machine.
munged, slurmctld and both slurmd keep their files in one folder and end with it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

NODES = ("n1", "n2")
START_TIMEOUT_S = 300.0
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "srun", "unshare")


class NoClusterError(Exception):
    """The cluster cannot be started here; the message says why."""


@dataclass(frozen=True)
class SlurmCluster:
    """The running cluster. Commands find it by `SLURM_CONF` in their environment."""

    folder: Path
    nodes: Mapping[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    def ask(self, *command: str) -> str:
        """The output of a command of Slurm."""
        env = {**os.environ, "SLURM_CONF": str(self.conf)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def wait_idle(self) -> None:
        """Wait until no job uses a node. Raises `NoClusterError`."""
        _wait(lambda: _idle(self), "slurmctld", self.folder)


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """A cluster whose nodes are idle. Raises `NoClusterError`."""
    _check()
    configuration = _write_configuration(folder)
    with ExitStack() as stack:
        stack.enter_context(_process(folder, _munged(folder)))
        _wait(lambda: (folder / "munge.socket").exists(), "munged", folder)
        env = {**os.environ, "SLURM_CONF": str(configuration.conf)}
        stack.enter_context(_process(folder, ["slurmctld", "-D", "-f", str(configuration.conf)], env))
        nodes = {node: stack.enter_context(_process(folder, _node(configuration, node), env)) for node in NODES}
        configuration = replace(configuration, nodes=nodes)
        configuration.wait_idle()
        yield configuration


def _check() -> None:
    if os.getuid() != 0:
        raise NoClusterError("slurmd needs root")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        raise NoClusterError(f"there is no {missing[0]}: install slurm-wlm and munge")
    if subprocess.run(["unshare", "--uts", "--pid", "--fork", "--mount-proc", "true"], check=False).returncode:
        raise NoClusterError("namespaces cannot be made here")


def _munged(folder: Path) -> list[str]:
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    names = {"key": "key-file", "socket": "socket", "pid": "pid-file", "seed": "seed-file", "log": "log-file"}
    return ["munged", "--foreground", "--force", *(f"--{option}={folder}/munge.{end}" for end, option in names.items())]


def _node(cluster: SlurmCluster, node: str) -> list[str]:
    """slurmd with its own host name and processes, which the kernel kills with `unshare`."""
    script = 'hostname "$0" && exec slurmd -D -f "$1" -N "$0"'
    alone = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [*alone, "sh", "-c", script, node, str(cluster.conf)]


def _write_configuration(folder: Path) -> SlurmCluster:
    cluster = SlurmCluster(folder)
    ports = _free_ports(1 + len(NODES))
    nodes = "".join(
        f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=2\n"
        for node, port in zip(NODES, ports[1:], strict=True)
    )
    cluster.conf.write_text(
        f"""ClusterName=pretended
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=10
SchedulerParameters=sched_interval=2,batch_sched_delay=0,sched_min_interval=0
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
{nodes}PartitionName=main Nodes={",".join(NODES)} Default=YES MaxTime=INFINITE State=UP
"""
    )
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    return cluster


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for path in sockets:
            path.bind(("127.0.0.1", 0))
        return [int(socket.getsockname()[1]) for socket in sockets]


@contextmanager
def _process(folder: Path, command: list[str], env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    env = {**(env or os.environ), "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin"}
    with (folder / "programs.log").open("ab") as log:
        child = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield child
    finally:
        child.send_signal(signal.SIGKILL if command[0] == "unshare" else signal.SIGTERM)  # unshare ignores SIGTERM
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _idle(cluster: SlurmCluster) -> bool:
    try:
        return cluster.ask("sinfo", "--noheader", "--format=%D %T") == f"{len(NODES)} idle"
    except (RuntimeError, subprocess.TimeoutExpired):
        return False


def _wait(done: Callable[[], bool], purpose: str, folder: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not done():
        if time.monotonic() > deadline:
            logs = [path.read_text()[-500:] for path in sorted(folder.glob("*.log"))]
            raise NoClusterError(f"{purpose} does not start: {' '.join(logs)}")
        time.sleep(0.1)
