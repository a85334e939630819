"""The environment the program runs in: container, batch job, terminal, visible GPUs, pids, and what a logout ends.

Sources: systemd's manuals. logind.conf(5): with KillUserProcesses=yes the scope of a session and all in it is ended at
logout, tmux and screen too, unless they were moved out of it. loginctl(1): without lingering, the user's own service
manager, and all below it, is stopped after the last logout.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from tuner_tui.core.child_process import run_command
from tuner_tui.core.ownership import user_name
from tuner_tui.core.procfs import read_proc_text
from tuner_tui.hardware.inventory import Gpu, Inventory

CGROUP_MARKERS = (("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"), ("lxc", "lxc"))
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
MIG = "MIG-"


def detect_container(environment: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """The container or batch job: `kubernetes`, `docker`, `podman`, `apptainer`, `slurm` …; None outside of one."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    if environment.get("APPTAINER_CONTAINER") or environment.get("SINGULARITY_CONTAINER"):
        return "apptainer"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    text = read_proc_text(root / "proc/self/cgroup")
    by_cgroup = next((name for word, name in CGROUP_MARKERS if word in text), None)
    return by_cgroup or environment.get("container") or ("slurm" if "SLURM_JOB_ID" in environment else None)


def visible_indexes(gpus: Sequence[Gpu], cuda_visible_devices: str | None) -> tuple[int, ...]:
    """The driver's indexes of the GPUs that CUDA makes visible to a training, in CUDA's order.

    As CUDA parses the variable: indexes or prefixes of UUIDs; an unknown entry ends the list, and a GPU named twice
    empties it. Of MIG slices CUDA shows a process only the first; its GPU is returned. CUDA counts in the driver's
    order only with CUDA_DEVICE_ORDER=PCI_BUS_ID or where all GPUs are alike.
    """
    if cuda_visible_devices is None:
        return tuple(gpu.index for gpu in gpus)
    entries = [entry.strip() for entry in cuda_visible_devices.split(",")]
    if (name := entries[0]).startswith(MIG):  # a slice; older drivers call it `MIG-GPU-<uuid>/1/0`
        sliced = [gpu for gpu in gpus if gpu.mig]
        named = [gpu.index for gpu in sliced if any((mig.uuid or "").startswith(name) for mig in gpu.slices)]
        named += [gpu.index for gpu in sliced if gpu.uuid and name.removeprefix(MIG).startswith(f"{gpu.uuid}/")]
        return tuple(named or [gpu.index for gpu in sliced])[:1]
    # The rules of CUDA's own parser (CUDA programming guide, CUDA_VISIBLE_DEVICES): entries before an invalid one
    # count, those after it do not; a duplicate makes the whole list invalid.
    seen: list[int] = []
    for entry in entries:
        index = gpu_index(entry, gpus)
        if index in seen:
            return ()
        if index is None:
            break
        seen.append(index)
    return tuple(seen)


def visible_gpus(inventory: Inventory) -> tuple[Gpu, ...]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` leaves visible, in the driver's order.

    Of a GPU in MIG mode it is the slice that CUDA shows a process: the named one, else the first.
    """
    named = inventory.cuda_visible_devices
    indexes = visible_indexes(inventory.gpus, named)
    return tuple(with_slice(gpu, named) for gpu in inventory.gpus if gpu.index in indexes)


def with_slice(gpu: Gpu, named: str | None) -> Gpu:
    """The slice of `gpu` that is visible, as a GPU of its own; `gpu` itself without slices."""
    if not gpu.mig or not gpu.slices:
        return gpu
    entry = "" if named is None else named.split(",")[0].strip()
    chosen = next((mig for mig in gpu.slices if entry and (mig.uuid or "").startswith(entry)), gpu.slices[0])
    return replace(
        gpu,
        name=chosen.name,
        uuid=chosen.uuid,
        memory_total_bytes=chosen.memory_total_bytes,
        memory_used_bytes=chosen.memory_used_bytes,
        mig=None if chosen.memory_total_bytes else True,
    )


def gpu_index(entry: str, gpus: Sequence[Gpu]) -> int | None:
    """The GPU that one entry of CUDA_VISIBLE_DEVICES refers to."""
    if entry.isdecimal() and len(entry) < 7:
        return int(entry) if int(entry) < len(gpus) else None
    matches = [gpu.index for gpu in gpus if entry and (gpu.uuid or "").startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def allocated_gpus(environment: Mapping[str, str]) -> frozenset[int] | None:
    """The driver's indexes of the GPUs of the Slurm allocation of this process; None outside of one, or if unknown.

    Slurm names them in CUDA_VISIBLE_DEVICES: all that the driver shows where it hides the others by a cgroup, which it
    then counts from 0, else by their numbers on the node. Without a GPU it says NoDevFiles.
    """
    named = environment.get(VISIBLE_DEVICES)
    if "SLURM_JOB_ID" not in environment or named is None:
        return None
    if named in ("", "NoDevFiles"):
        return frozenset()
    entries = named.split(",")
    return frozenset(map(int, entries)) if all(map(str.isdecimal, entries)) else None


def hides_all_gpus(cuda_visible_devices: str | None) -> bool:
    """True when CUDA makes no GPU visible, judged by the variable alone."""
    if cuda_visible_devices is None:
        return False
    first = cuda_visible_devices.split(",")[0].strip()
    return not (first.isdecimal() or first.startswith(("GPU-", MIG)))


def sees_host_pids(proc: Path = Path("/proc")) -> bool:
    """True when this process is in the host's pid namespace, so that the driver's pids are valid here.

    The number of the initial namespace is fixed in the kernel (PROC_PID_INIT_INO in include/linux/proc_ns.h).
    """
    try:
        return (proc / "self/ns/pid").readlink().name == "pid:[4026531836]"
    except OSError:
        return False


LOGIND_SETTINGS = ("KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers")
MOVED = "systemd-run --user --scope"


def logout_warning(user: str | None = None, root: Path = Path("/")) -> str | None:
    """A sentence on what a logout would end and how to prevent that; None where it ends nothing."""
    user = user_name(os.getuid()) if user is None else user
    # Where this process is in systemd's tree decides: below a session's scope (ssh, console) it ends with the session
    # if logind is set to that; below user@UID.service it ends with the user's last session, unless the user lingers.
    cgroup = read_proc_text(root / "proc/self/cgroup")
    lingers = (root / "var/lib/systemd/linger" / user).exists()
    command = f"`loginctl enable-linger {user}`"
    linger = "" if lingers else f"{command} once, and "
    if "/session-" in cgroup and ".scope" in cgroup and kills_at_logout(user):
        return (
            "logind ends all processes of this session at logout (KillUserProcesses=yes), tmux and detached "
            f"training runs too. To keep them: {linger}start tmux or tuner-tui with `{MOVED}`."
        )
    if "/user@" in cgroup and not lingers:
        return f"systemd ends what runs here after the last logout of {user}. To keep it: {command}."
    return None


def kills_at_logout(user: str) -> bool:
    """True when logind is configured to end the processes of `user` at logout."""
    try:
        answer = run_command(["loginctl", "show-session", *(f"--property={name}" for name in LOGIND_SETTINGS)], 1.0)
    except (OSError, subprocess.TimeoutExpired):  # there is no systemd, or it does not answer
        return False
    # Without the name of a session these are the settings of logind.
    settings = dict(line.split("=", 1) for line in answer.output.decode("utf-8", "replace").splitlines() if "=" in line)
    kills, only, exempt = (settings.get(name, "") for name in LOGIND_SETTINGS)
    return kills == "yes" and user not in exempt.split() and (not only or user in only.split())
