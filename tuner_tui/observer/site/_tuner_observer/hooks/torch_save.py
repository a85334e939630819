"""Hooks what saves: training is paused while a plain loop writes weights, and the newest checkpoint is reported."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ..counters.step_counters import StepCounters
from ..import_hooks import call_after, call_around, call_safely
from ..names import LIBRARIES
from ..process_role import rank_and_world
from ..session import Session

INTERVAL_S = 1.0
MAX_ITEMS, MAX_PARTS = 500, 20_000
"""Parts that are searched for weights: items of each list or dictionary, and all together."""


class SavedFiles:
    """Reports what the script itself saves, at most once a second; a Trainer's checkpoints are reported by it.

    `in_folder`: what is being saved is a part of a folder that is reported when it is complete.
    """

    def __init__(self, session: Session, counters: StepCounters) -> None:
        self._session = session
        self._counters = counters
        self._newest: dict[str, Any] | None = None
        self._last: dict[str, Any] | None = None
        self._written_s = 0.0
        self.in_folder = False

    def saved(self, path: Any, resumable: bool) -> None:
        """Note a file or folder. `resumable`: it holds more than weights."""
        counters = self._counters
        if self.in_folder or counters.trainer_reports or not counters.has_trained or rank_and_world()[0] != 0:
            return
        if self._newest is not None and self._newest["resumable"] and not resumable:
            self.write(now=True)  # the weights in the same folder do not hide the checkpoint
        path = os.path.abspath(os.fspath(path))
        self._newest = self._last = {"step": counters.step or None, "path": path, "resumable": resumable or None}
        self.write()

    def renamed(self, source: Any, target: Any) -> None:
        """Note the final name of the last file, if it was saved under a temporary one first."""
        last = self._last
        if last is not None and os.path.abspath(os.fspath(source)) == last["path"]:
            self._newest = self._last = dict(last, path=os.path.abspath(os.fspath(target)))
            self.write(now=True)

    def write(self, now: bool = False) -> None:
        """Write the newest if it was not written."""
        if self._newest is not None and (now or time.perf_counter() - self._written_s >= INTERVAL_S):
            self._written_s = time.perf_counter()
            newest, self._newest = self._newest, None
            self._session.report("saved", **newest)


def hook_torch_save(torch: Any, counters: StepCounters, files: SavedFiles) -> None:
    """Hook `torch.save` under both its names."""
    _hook_save(torch.serialization, "save", counters)
    call_after(torch.serialization, "save", lambda _, *args, **kwargs: _report_file(torch, files, args, kwargs))
    torch.save = torch.serialization.save


def hook_renames(module: Any, files: SavedFiles) -> None:
    """Hook `os.rename` and `os.replace`. `module` is `os`."""
    # Careful scripts write to a temporary file and rename it: the name that lasts is the one to report.
    for name in ("rename", "replace"):
        call_after(module, name, lambda _, src, dst: files.renamed(src, dst))  # not if folders are given as open files


def _report_file(torch: Any, files: SavedFiles, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Report a file by its path; `f` may be a file object, or a member of a zip archive."""
    obj, f = (*args, kwargs["f"] if len(args) < 2 else None)[:2] if args else (kwargs["obj"], kwargs["f"])
    path = f if isinstance(f, (str, os.PathLike)) else getattr(f, "name", None)
    archive = getattr(f, "_zipfile", None)
    path = getattr(archive, "filename", None) if path is None else path
    if isinstance(path, (str, os.PathLike)) and _may_hold_weights(torch, obj):
        files.saved(path, resumable=_is_resumable(torch, obj))


def _may_hold_weights(torch: Any, obj: Any) -> bool:
    """Whether this is more than numbers and text, such as a history of losses, or indices."""
    for part in islice(_parts_of(obj), MAX_PARTS):
        if isinstance(part, torch.Tensor):
            if part.is_floating_point():
                return True
        elif not isinstance(part, (dict, list, tuple, str, int, float, type(None))):
            return True
    return False


def _parts_of(obj: Any) -> Iterator[Any]:
    """`obj` and what it holds in lists and dictionaries, level by level; without end where one of them holds itself."""
    containers: deque[Any] = deque([[obj]])
    while containers:
        container = containers.popleft()
        for part in islice(container.values() if isinstance(container, dict) else container, MAX_ITEMS):
            yield part
            if isinstance(part, (dict, list, tuple)):
                containers.append(part)


def _is_resumable(torch: Any, obj: Any) -> bool:
    """Whether a part of what is saved is a model or its weights: then the whole is more than weights."""
    parts = list(obj.values()) if isinstance(obj, dict) else obj if isinstance(obj, (tuple, list)) else []
    states = (part for part in parts if isinstance(part, dict) and part)
    has_weights = any(all(isinstance(value, torch.Tensor) for value in state.values()) for state in states)
    return has_weights or any(isinstance(part, torch.nn.Module) for part in parts)


def hook_checkpoints(name: str, module: Any, files: SavedFiles) -> None:
    """Hook the functions of the module `name` that write several parts, or the parts of a file, as one checkpoint."""
    for owner, function, path, state in LIBRARIES["checkpoints"].get(name, ()):
        _hook_checkpoint(getattr(module, owner) if owner else module, function, path, state, files)


def _hook_checkpoint(owner: Any, function: str, path: str, state: str | bool, files: SavedFiles) -> None:
    bind = inspect.signature(getattr(owner, function)).bind

    def report(result: Any, *args: Any, **kwargs: Any) -> None:
        arguments = bind(*args, **kwargs).arguments
        resumable = _is_resumable(sys.modules["torch"], arguments[state]) if isinstance(state, str) else state
        files.saved(arguments[path] if path else result, resumable)

    set_within = functools.partial(setattr, files, "in_folder")
    call_around(owner, function, lambda *_, **__: set_within(True), lambda *_: set_within(False))
    call_after(owner, function, report)


def hook_safetensors(module: Any, counters: StepCounters, files: SavedFiles) -> None:
    """Hook `safetensors.torch.save_file`, which `save_pretrained` uses."""
    _hook_save(module, "save_file", counters)
    call_after(module, "save_file", lambda _, tensors, filename, *__, **___: files.saved(filename, False))


def _hook_save(module: Any, name: str, counters: StepCounters) -> None:
    """Pause while a file is saved. Does nothing within a framework's own checkpoint, which is a pause already."""
    thread = threading.get_ident()

    def leave(paused: bool, _: Any, error: BaseException | None) -> None:
        if paused and error is not None:
            counters.session.failure = (id(error), "saving")
        if paused:
            counters.end_pause(time.perf_counter())

    call_around(module, name, lambda *_, **__: threading.get_ident() == thread and _pause(counters), leave)


def _pause(counters: StepCounters) -> bool:
    """Pause only after the first step: earlier saves are not part of the training.

    A plain loop does not say when its evaluation has ended; a save right after it is no part of it.
    """
    counters.invalidate()
    if counters.own_steps < 1:
        return False
    call_safely(counters.on_save)
    now = time.perf_counter()
    evaluated = not counters.evaluation.depth and counters.clock.save_after_evaluation(now)
    return evaluated or counters.pause("saving", now)
