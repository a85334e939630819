"""What a rule reports (`Problem`) and what it may look at (`RuleContext`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.fields import Value
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings

Severity = Literal["error", "warning"]
PROBED_PACKAGES = frozenset({"accelerate", "bitsandbytes", "datasets", "flash-attn", "peft", "transformers"})
"""Packages the interpreter is asked for, so that one it does not name is certainly not there."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Settings that do not fit together or do not fit the box.

    `fields` are the settings concerned, the one to change first. An error stops the training or silently does not do
    what was asked; a warning does something else than one may think. `right` are values that would be right.
    """

    fields: tuple[str, ...]
    severity: Severity
    sentence: str
    right: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What the rules know of the machine and the job. None is unknown: a rule that needs it says nothing."""

    gpus: tuple[Gpu, ...] | None = None
    interpreter: Interpreter | None = None
    job: BuiltinJob | CommandJob | None = None
    cores: int | None = None

    @property
    def no_gpu(self) -> bool:
        """Whether training will certainly be on the CPU: no card, or a torch that was built without CUDA."""
        if self.gpus is None:
            return False
        version = self.version_text("torch") or ""
        return self.cpu_build or (not self.gpus and "rocm" not in version and "xpu" not in version)

    @property
    def cpu_build(self) -> bool:
        """Whether the interpreter's torch was built for the CPU alone."""
        version = self.version_text("torch")
        if self.interpreter is None or version is None or "rocm" in version or "xpu" in version:
            return False
        return self.interpreter.torch_cuda is None

    @property
    def weakest(self) -> Gpu | None:
        """The card of the lowest known capability; with several cards the weakest decides what all can do."""
        if not self.gpus or self.no_gpu:
            return None
        known = [gpu for gpu in self.gpus if gpu.capability is not None]
        return min(known, key=lambda gpu: gpu.capability or (0, 0)) if known else None

    def below(self, capability: tuple[int, int]) -> Gpu | None:
        """The weakest card where it is below `capability`."""
        gpu = self.weakest
        return gpu if gpu is not None and gpu.capability is not None and gpu.capability < capability else None

    def lacks(self, package: str) -> bool:
        """Whether the interpreter certainly has no such package."""
        # Where torch is missing nothing was learned of the interpreter; what is not asked for is not known either.
        asked = package in PROBED_PACKAGES and self.version_text("torch") is not None
        return asked and self.version_text(package) is None

    def version_text(self, package: str) -> str | None:
        """The installed version of a package as its text, None where it is unknown or absent."""
        return None if self.interpreter is None else self.interpreter.packages.get(package)

    def older(self, package: str, than: tuple[int, int]) -> bool:
        """Whether an installed package is certainly older than `than`."""
        return _is_before(self.version_text(package), than)

    def python_older(self, than: tuple[int, int]) -> bool:
        """Whether the interpreter's Python is certainly older than `than`."""
        return _is_before(None if self.interpreter is None else self.interpreter.python_version, than)


def _is_before(version: str | None, than: tuple[int, int]) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < than


Rule = Callable[[Settings, RuleContext], Iterator[Problem]]


def describe_gpu(gpu: Gpu) -> str:
    """A card in a sentence: its name and capability."""
    return gpu.name if gpu.capability is None else f"{gpu.name} (capability {gpu.capability[0]}.{gpu.capability[1]})"
