"""The preset model: settings, perhaps a job, the hardware it suits and its source."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tuner_tui.hardware.inventory import Gpu
from tuner_tui.settings.fields import Value, check_value
from tuner_tui.settings.job import Job

PRESET_VERSION = 1


class HardwareRequirements(BaseModel):
    """Hardware that a preset was made for. None means any."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu: str | None = Field(None, min_length=1, description="Name pattern such as *RTX 3090*; no GPU: none")
    min_memory_gib: float | None = Field(None, gt=0, le=100_000)
    capability: str | None = Field(
        None, pattern=r"^\d{1,2}\.\d$", description="Minimum compute capability, such as 8.0"
    )
    min_cores: int | None = Field(None, ge=1, le=100_000)

    @property
    def for_no_gpu(self) -> bool:
        """Whether the preset is for machines without a GPU."""
        return self.gpu is not None and self.gpu.lower() == "none"

    def gpu_text(self) -> str:
        """The GPU as text, empty if any suits."""
        return "no GPU" if self.for_no_gpu else f"GPU {self.gpu}" if self.gpu else ""

    def suits(self, gpus: tuple[Gpu, ...], cores: int | None = None) -> bool:
        """Whether a machine with these GPUs and usable cores suits; unknown values count as suitable."""
        if self.min_cores is not None and cores is not None and cores < self.min_cores:
            return False
        if self.for_no_gpu:
            return not gpus
        if self.gpu is None and self.min_memory_gib is None and self.capability is None:
            return True
        return any(self._suits_card(gpu) for gpu in gpus)

    def _suits_card(self, gpu: Gpu) -> bool:
        if self.gpu is not None and not fnmatchcase(gpu.name.lower(), self.gpu.lower()):
            return False
        if self.capability is not None and gpu.capability is not None and gpu.capability < self.least_capability():
            return False
        total = gpu.memory_total_bytes
        # Drivers report a 24 GiB GPU as 23.7 to 24.0 GiB: allow 5 % less.
        return self.min_memory_gib is None or total is None or total >= self.min_memory_gib * 0.95 * 2**30

    def least_capability(self) -> tuple[int, int]:
        """The least capability as a pair, (0, 0) if any suits."""
        major, minor = (self.capability or "0.0").split(".")
        return int(major), int(minor)


class Preset(BaseModel):
    """One preset file. `settings` holds only the values in the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    version: int = Field(PRESET_VERSION, ge=1)
    name: str = Field(min_length=1, max_length=100)
    about: str | None = None
    for_: HardwareRequirements | None = Field(None, alias="for")
    source: str | None = Field(None, description="Source of the numbers")
    before: str | None = Field(None, description="Measured before these settings")
    after: str | None = Field(None, description="Measured with these settings")
    settings: dict[str, Value] = Field(default_factory=dict)
    job: Job | None = None

    @field_validator("settings", mode="before")
    @classmethod
    def _each_in_bounds(cls, settings: Any) -> Any:
        if isinstance(settings, dict):
            return {name: check_value(name, value) for name, value in settings.items()}
        return settings

    def variant(self, name: str, settings: Mapping[str, Value]) -> Preset:
        """A copy with another name and these settings, without measured figures if the settings differ."""
        changed: dict[str, Any] = {"name": name, "settings": dict(settings)}
        if changed["settings"] != self.settings:
            changed |= {"before": None, "after": None}
        return self.model_copy(update=changed)
