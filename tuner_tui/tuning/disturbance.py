"""Whether the machine is quiet enough to measure on."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.core.units import format_share
from tuner_tui.hardware.other_load import OtherLoad
from tuner_tui.tuning.trial import Measurement

MAX_CPU_SHARE = 0.2
"""Share of the cores that others may use where a training computes on them: less than one core of four,"""
MAX_CPU_SHARE_IN_TRIAL = 0.15
"""and during a trial, when they compete with it and get less."""
MAX_CPU_SHARE_WITH_GPU = 0.75
"""The same where a training computes on a GPU."""
MAX_GPU_SHARE = 0.2
"""Utilisation of a card by others; a desktop takes less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """When a run counts as undisturbed; by default, always.

    Attributes:
        busy: What made the machine busy before the first trial; empty if it was quiet.
        gpu_in_use: Whether others used a GPU then; during a trial they cannot be distinguished from the training.
        max_cpu_share: The share of the cores that others may use during a trial.
    """

    busy: str = ""
    gpu_in_use: bool = False
    max_cpu_share: float = 1.0

    @staticmethod
    def after(load: OtherLoad, on_gpu: bool) -> Quiet:
        """Return the rule for trials on a machine that had this load by others."""
        gpu_in_use = on_gpu and load.gpu_share is not None and load.gpu_share > MAX_GPU_SHARE
        max_share = MAX_CPU_SHARE_WITH_GPU if on_gpu else MAX_CPU_SHARE
        cpu_in_use = load.cpu_share is not None and load.cpu_share > max_share
        reasons = (_gpu_reason(load) if gpu_in_use else "", _cpu_reason(load) if cpu_in_use else "")
        return Quiet(
            busy="; ".join(filter(None, reasons)),
            gpu_in_use=gpu_in_use,
            max_cpu_share=MAX_CPU_SHARE_WITH_GPU if on_gpu else MAX_CPU_SHARE_IN_TRIAL,
        )

    def is_disturbed(self, run: Measurement) -> bool:
        """Return whether others kept the machine busy during `run`; where that was not seen, before the first trial."""
        if self.gpu_in_use:
            return True
        return bool(self.busy) if run.others_cpu_share is None else run.others_cpu_share > self.max_cpu_share


def _cpu_reason(load: OtherLoad) -> str:
    names = ", ".join(f"{one.command} {one.cores:.1f} cores" for one in load.processes)
    who = names or "not visible from here"
    return f"other processes use {format_share(load.cpu_share or 0.0)} of the CPU ({who})"


def _gpu_reason(load: OtherLoad) -> str:
    who = f" ({', '.join(load.gpu_processes)})" if load.gpu_processes else ""
    return f"other processes use {format_share(load.gpu_share or 0.0)} of a GPU{who}"
