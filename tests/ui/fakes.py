"""A screen without a machine: services that answer from fixed data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner_tui.hardware.inventory import Cpu, Gpu, HostMemory, Inventory
from tuner_tui.hardware.sample import Sample
from tuner_tui.settings.fields import FIELDS
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.origin import Origin, OriginKind, Resolved
from tuner_tui.ui.app import TunerApp
from tuner_tui.ui.services import NameTaken, Opened, PresetLine, RunLine, Services

INVENTORY = Inventory(
    hostname="box42",
    gpus=(Gpu(0, "NVIDIA H100 80GB HBM3", architecture="Hopper", capability=(9, 0), memory_total_bytes=80 << 30),),
    cpu=Cpu("AMD EPYC 9354", 32, 64, 32),
    memory=HostMemory(512 << 30),
    driver_version="580.65",
    cuda_version="13.0",
)


def opened(preset: str | None = "demo", **values: Any) -> Opened:
    """A preset with `values`."""
    origins = {name: Origin(OriginKind.PRESET, preset or "") for name in values}
    return Opened(Resolved(Settings().changed(**values), origins), BuiltinJob(), preset)


class FakeSampler:
    """The same sample again and again."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def sample(self, watched: Sequence[int] = ()) -> Sample:
        return self._sample

    def close(self) -> None:
        pass


@dataclass
class FakeBox:
    """What the services answer, and what was asked of them."""

    opened: Opened = field(default_factory=opened)
    presets: list[PresetLine] = field(
        default_factory=lambda: [PresetLine("cpu", "CPU only"), PresetLine("demo", "Two minutes")]
    )
    runs: list[RunLine] = field(default_factory=list)
    saved: dict[str, Opened] = field(default_factory=dict)
    launched: list[Opened] = field(default_factory=list)
    orders: list[tuple[str, str]] = field(default_factory=list)
    sample: Sample = Sample(1_700_000_000.0)

    def save(self, name: str, preset: Opened, overwrite: bool) -> None:
        if name in self.saved and not overwrite:
            raise NameTaken(f"There is a preset {name} already.")
        self.saved[name] = preset

    def launch(self, preset: Opened) -> Path:
        self.launched.append(preset)
        return Path("/runs/r001")

    def services(self) -> Services:
        return Services(
            fields=lambda: tuple(FIELDS.values()),
            problems=lambda settings, inventory, interpreter: (),
            inventory=lambda: INVENTORY,
            interpreter=lambda: None,  # type: ignore[arg-type, return-value]
            open_sampler=lambda: FakeSampler(self.sample),
            diagnosis=lambda: lambda view, inventory, interpreter, log: (),
            presets=lambda: self.presets,
            load_preset=lambda name: replace(self.opened, preset=name),
            save_preset=self.save,
            launch=self.launch,
            runs=lambda: self.runs,
            follow=lambda folder: None,  # type: ignore[arg-type, return-value]
            open_log=lambda folder: None,  # type: ignore[arg-type, return-value]
            order=lambda folder, order: self.orders.append((folder.name, order)),
        )

    def app(self, **options: Any) -> TunerApp:
        """The app over this box."""
        return TunerApp(self.services(), lambda: self.opened, **options)
