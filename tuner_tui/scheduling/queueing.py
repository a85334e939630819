"""Queues launches, lists the queue and starts its dispatcher, for the command line and the screen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner_tui.core.files import open_to_append
from tuner_tui.hardware.environment import visible_cards
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.hardware.inventory import Gpu, Inventory
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.store.folder import RunNotFoundError, find_run
from tuner_tui.runs.supervise.run_processes import RUN_VARIABLE
from tuner_tui.scheduling.admission import Demand, Place, describe_demand, fitted
from tuner_tui.scheduling.demand import LIMIT, default_gpus, demand_of
from tuner_tui.scheduling.entry import EntryProgress, QueueEntry
from tuner_tui.scheduling.queue_store import Queue, QueueError
from tuner_tui.settings.distributed import best_kind
from tuner_tui.tuning.launching import TrainingMachine

MODULE = "tuner_tui.scheduling.dispatcher"
NOT_LOOKED_AT = "The dispatcher has not looked at it yet."


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """How to queue: the number of cards (None: one for each process; 0: the processor), cores of the processor, and
    the run or entry that has to end first."""

    gpus: int | None = None
    cores: int | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A line of the queue. `state` is `waiting`, `held`, `starting`, `running` or `damaged`; `reason` says why it is
    not running. `run` is the id of its run, once it has one."""

    entry: str
    state: str
    title: str = ""
    reason: str = ""
    run: str | None = None
    gpus: int | None = None
    queued_t: float | None = None
    cards: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IdleMachine:
    """A machine on which nothing else runs, with the cards that one queued run will get."""

    machine: TrainingMachine
    gpus: int | None = None

    @property
    def inventory(self) -> Inventory:
        """The inventory with the best GPUs, unused; without GPUs for 0."""
        found = self.machine.inventory
        cards = tuple(replace(card, memory_used_bytes=None, processes=()) for card in best_kind(visible_cards(found)))
        wanted = cards if self.gpus is None else cards[: self.gpus]
        return replace(found, gpus=tuple(wanted), cuda_visible_devices=None)

    @property
    def interpreter(self) -> Interpreter:
        """The Python that trains."""
        return self.machine.interpreter


def add_to_queue(
    queue: Queue, request: LaunchRequest, options: QueueOptions, inventory: Inventory
) -> tuple[QueueEntry, Demand]:
    """Queue the launch and wake the dispatcher. Return the entry and what it is expected to need.

    Raises `QueueError` where it could never start here.
    """
    cards = visible_cards(inventory)
    gpus = default_gpus(request, len(cards)) if options.gpus is None else options.gpus
    cores = options.cores
    demand = demand_of(request, gpus, cores)
    _refuse_impossible(demand, cards, inventory)
    entry = QueueEntry(
        id="",
        token="",
        queued_t=time.time(),
        request=replace(request, environ={k: v for k, v in request.environ.items() if k != RUN_VARIABLE}),
        progress=EntryProgress(0.0),
        gpus=gpus,
        cores=cores,
        allowed=_allowed(cards, inventory) if gpus else None,
        after=None if options.after is None else _find_after(queue, options.after, request),
    )
    added = queue.add(entry)
    wake_dispatcher(queue)
    return added, demand


def describe_need(request: LaunchRequest, inventory: Inventory) -> str:
    """Return what a launch would wait for, and the basis of that prediction."""
    demand = demand_of(request, default_gpus(request, len(visible_cards(inventory))))
    return describe_demand(demand) + (f" ({demand.rests_on})" if demand.rests_on else "")


def _refuse_impossible(demand: Demand, cards: Sequence[Gpu], inventory: Inventory) -> None:
    if demand.kind == "host":
        cores = inventory.cpu.usable_cores
        if demand.cores is not None and demand.cores > cores:
            raise QueueError(f"{demand.cores} cores are asked for; this machine has {cores}.")
        places = [Place("host", "this machine", "host", total_bytes=inventory.memory.usable_bytes)]
    else:
        if demand.count > len(cards):
            raise QueueError(f"{demand.count} GPUs are asked for; {len(cards)} can be seen here.")
        places = [Place(str(card.index), "", total_bytes=card.memory_total_bytes) for card in cards]
    need = fitted(demand, places).peak_bytes
    sizes = [place.usable_bytes for place in places]
    fitting = sum(size is None or need is None or need <= size for size in sizes)
    if fitting < demand.count:
        by_limit = demand.rests_on == LIMIT
        remedy = "A smaller limit" if by_limit else f"A smaller micro batch, or {LIMIT} where the estimate is wrong,"
        raise QueueError(
            f"It would need {describe_demand(demand)} ({demand.rests_on}), which is more than this machine has. "
            f"{remedy} lets it in."
        )


def _allowed(cards: Sequence[Gpu], inventory: Inventory) -> tuple[str, ...] | None:
    """The cards that CUDA_VISIBLE_DEVICES leaves here; None where it hides none."""
    if inventory.cuda_visible_devices is None:
        return None
    return tuple(card.uuid for card in cards if card.uuid is not None)


def _find_after(queue: Queue, name: str, request: LaunchRequest) -> str:
    if name.startswith("q"):
        return queue.find(name).id
    try:
        return str(find_run(name, request.runs_root).path)
    except RunNotFoundError as error:
        raise QueueError(f"--after: {error}") from error


def wake_dispatcher(queue: Queue) -> bool:
    """Start a dispatcher if entries wait and none is running. Return whether one was started. Raises `OSError`."""
    pending = any(entry.progress.held is None or entry.progress.state != "waiting" for entry in queue.read().entries)
    if not pending or queue.dispatcher_lives():
        return False
    log = open_to_append(queue.dispatcher_log)
    try:
        with subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, str(queue.path.parent), "--detach"],
            cwd="/",
            env={name: value for name, value in os.environ.items() if name != RUN_VARIABLE},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ):
            return True
    finally:
        os.close(log)


def view_queue(queue: Queue) -> tuple[QueuedRun, ...]:
    """Return the lines of the queue in its order, damaged files last."""
    listing, reasons = queue.read(), queue.read_reasons()
    lines = [_line(entry, reasons.get(entry.id, NOT_LOOKED_AT)) for entry in listing.entries]
    return (*lines, *(QueuedRun(one.id, "damaged", reason=one.problem) for one in listing.damaged))


def _line(entry: QueueEntry, reason: str) -> QueuedRun:
    progress = entry.progress
    state = "held" if progress.held is not None and progress.state == "waiting" else progress.state
    if state == "held":
        reason = progress.held or ""
    elif state != "waiting":
        reason = progress.requeued or ""
    folder = entry.run_folder
    return QueuedRun(
        entry.id,
        state,
        entry.title,
        reason,
        None if folder is None else folder.id,
        entry.gpus,
        entry.queued_t,
        progress.keys if entry.gpus else (),
    )


# Going on after a reboot

UNIT = "tuner-tui-queue.service"


def unit_text(environ: Mapping[str, str], state: Path) -> str:
    """A systemd user unit that goes on with the queue when the user's service manager starts.

    KillMode=process: the end of the dispatcher ends no training.
    """
    kept = "".join(
        f"Environment={_quoted(f'{name}={environ[name]}')}\n"
        for name in ("PATH", "LD_LIBRARY_PATH")
        if environ.get(name)
    )
    command = " ".join(_quoted(word).replace("$", "$$") for word in (sys.executable, "-P", "-m", MODULE, str(state)))
    return (
        "[Unit]\nDescription=Start the queued trainings of tuner-tui\n\n"
        "[Service]\nType=simple\nKillMode=process\n"
        f"{kept}ExecStart={command}\n\n"
        "[Install]\nWantedBy=default.target\n"
    )


def _quoted(word: str) -> str:
    """A word of a unit file (systemd.syntax(7)): in quotes, without specifiers."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def unit_path(environ: Mapping[str, str]) -> Path:
    """Where systemd looks for the units of a user (systemd.unit(5))."""
    home = environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "systemd" / "user" / UNIT
