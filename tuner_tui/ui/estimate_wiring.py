"""The memory of the settings shown, as the real program works it out. Imports of weight stand inside the calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner_tui.ui.estimating import EstimateRequest, Outlook

if TYPE_CHECKING:
    from tuner_tui.advice.recommending.target import Target
    from tuner_tui.memory.device import Device

OF_A_COMMAND = "not known for a command before it has run"


@dataclass(frozen=True, slots=True)
class EstimatingHere:
    """By the closed form. `memory_limit_bytes` is what a training may take at most."""

    memory_limit_bytes: int | None

    def __call__(self, request: EstimateRequest) -> Outlook:
        """The outlook for the settings asked for; reads at most one small file."""
        from tuner_tui.advice.recommending.target import target_of
        from tuner_tui.memory.estimate import estimate
        from tuner_tui.memory.shapes import known_shape

        job = request.job
        if job.kind != "builtin":
            return Outlook(unknown=OF_A_COMMAND)
        shape = known_shape(job.model, job.task)
        if shape is None:
            return Outlook(unknown=f"not known for {job.model} before it was downloaded")
        target = target_of(request.inventory, request.interpreter, job)
        device, against = self._device(target)
        return Outlook(estimate(shape, request.settings, device, target.processes), against)

    def _device(self, target: Target) -> tuple[Device, str]:
        """What the training computes on, with the memory it may take, and whose memory that is."""
        from dataclasses import replace

        device, limit = target.device, self.memory_limit_bytes
        if limit is not None and (device.capacity_bytes is None or limit < device.capacity_bytes):
            return replace(device, capacity_bytes=limit), "limit"
        return device, "" if target.on_gpu else "host memory"
