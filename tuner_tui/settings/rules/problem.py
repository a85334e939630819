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
"""Packages that the interpreter probe looks for: one of these that it does not report is not installed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Settings that do not fit each other or this machine.

    `fields` are the settings concerned, the one to change first. An error stops the training or makes it silently
    ignore a setting; a warning is about an effect that may surprise. `fix` maps settings to values that solve it.
    """

    fields: tuple[str, ...]
    severity: Severity
    sentence: str
    fix: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuleContext:
    """Machine and job that the rules check against. None is unknown: a rule that needs it reports nothing."""

    gpus: tuple[Gpu, ...] | None = None
    interpreter: Interpreter | None = None
    job: BuiltinJob | CommandJob | None = None
    cores: int | None = None

    @property
    def no_gpu(self) -> bool:
        """Whether training is certain to run on the CPU: no GPU, or a torch built without CUDA."""
        if self.gpus is None:
            return False
        version = self.version_text("torch") or ""
        return self.cpu_build or (not self.gpus and "rocm" not in version and "xpu" not in version)

    @property
    def cpu_build(self) -> bool:
        """Whether torch of the interpreter was built without GPU support."""
        version = self.version_text("torch")
        if self.interpreter is None or version is None or "rocm" in version or "xpu" in version:
            return False
        return self.interpreter.torch_cuda is None

    @property
    def weakest_gpu(self) -> Gpu | None:
        """The GPU of the lowest known capability, which decides what a training on all GPUs can use."""
        if not self.gpus or self.no_gpu:
            return None
        known = [gpu for gpu in self.gpus if gpu.capability is not None]
        return min(known, key=lambda gpu: gpu.capability or (0, 0)) if known else None

    def gpu_below(self, capability: tuple[int, int]) -> Gpu | None:
        """The weakest GPU if its capability is below `capability`, else None."""
        gpu = self.weakest_gpu
        return gpu if gpu is not None and gpu.capability is not None and gpu.capability < capability else None

    def lacks(self, package: str) -> bool:
        """Whether `package` is known not to be installed."""
        # Without torch the probe reports nothing; packages that it does not look for are unknown.
        asked = package in PROBED_PACKAGES and self.version_text("torch") is not None
        return asked and self.version_text(package) is None

    def version_text(self, package: str) -> str | None:
        """The installed version of a package, None if it is unknown or not installed."""
        return None if self.interpreter is None else self.interpreter.packages.get(package)

    def is_older(self, package: str, than: tuple[int, int]) -> bool:
        """Whether an installed package is known to be older than `than`."""
        return _is_before(self.version_text(package), than)

    def is_python_older(self, than: tuple[int, int]) -> bool:
        """Whether Python of the interpreter is known to be older than `than`."""
        return _is_before(None if self.interpreter is None else self.interpreter.python_version, than)


def _is_before(version: str | None, than: tuple[int, int]) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < than


Rule = Callable[[Settings, RuleContext], Iterator[Problem]]


def describe_gpu(gpu: Gpu) -> str:
    """Name and capability of a GPU, for a sentence."""
    return gpu.name if gpu.capability is None else f"{gpu.name} (capability {gpu.capability[0]}.{gpu.capability[1]})"
