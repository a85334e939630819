"""Bytes of a number in each place of a model."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_tui.memory.device import Device
from tuner_tui.memory.shapes import ModelShape
from tuner_tui.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Numerics:
    """Bytes of a number in matrix products (`compute`), in the residual stream, of a dropout mask.

    `casts`: autocast makes a 16-bit copy of what a matrix product reads, one for each product, weights included.
    `wide`: autocast runs powers and normalisations in fp32, as it does on a GPU and not on a CPU.
    """

    compute: int
    stream: int
    mask: int
    casts: bool
    wide: bool

    @property
    def normed(self) -> int:
        """What one matrix product keeps of the output of a normalisation that it reads alone."""
        return self.compute if self.casts else self.stream


def numerics_of(shape: ModelShape, settings: Settings, device: Device) -> Numerics:
    """Those of one training: autocast keeps fp32 what was fp32, and computes in 16 bit."""
    mixed = settings.precision != "fp32"
    compute = 2 if mixed else shape.weight_bytes
    casts = mixed and shape.weight_bytes == 4
    return Numerics(
        compute=compute,
        stream=shape.weight_bytes,
        mask=1 if device.on_gpu else compute,
        casts=casts,
        wide=casts and device.on_gpu,
    )
