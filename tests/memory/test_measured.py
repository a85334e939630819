"""What a command takes, by its runs alone: at a size that was run, at one that was not, and how far that goes."""

from __future__ import annotations

from typing import Any

from tuner_tui.memory.correct import MeasuredRun
from tuner_tui.memory.device import Device
from tuner_tui.memory.measured import Measured, NotAtThisBatch, measured_peak
from tuner_tui.settings.model import Settings

MIB = 2**20
HOST = Device(False, None, 8000 * MIB)
CARD = Device(True, (8, 0), 24_000 * MIB)
GIVEN = Settings()


def run(number: int, batch: int, mib: int, **settings: Any) -> MeasuredRun:
    changed = GIVEN.changed(per_device_train_batch_size=batch, **settings)
    return MeasuredRun(f"r{number:03d}", changed, resident_bytes=mib * MIB)


def card_run(number: int, batch: int, reserved: int) -> MeasuredRun:
    settings = GIVEN.changed(per_device_train_batch_size=batch)
    return MeasuredRun(f"r{number:03d}", settings, tensor_bytes=reserved * MIB - MIB, reserved_bytes=reserved * MIB)


def test_a_size_that_was_run_takes_what_its_newest_run_took() -> None:
    found = measured_peak((run(3, 8, 1000), run(2, 8, 1500), run(1, 4, 900)), GIVEN, HOST)
    assert isinstance(found, Measured)
    assert (found.estimate.batch, found.estimate.total_bytes) == (8, 1000 * MIB)
    assert found.estimate.verdict == "fits"
    assert found.estimate.rests_on == "measured by run r003"
    assert found.largest is None


def test_one_size_says_nothing_of_another() -> None:
    assert measured_peak((run(1, 8, 1000),), GIVEN, HOST, 16) == NotAtThisBatch(8, 1000 * MIB, "r001")


def test_sizes_off_the_floor_tell_the_others_and_the_largest_that_fits() -> None:
    runs = tuple(run(n, batch, 400 + 100 * batch) for n, batch in enumerate((16, 8, 4), start=1))
    found = measured_peak(runs, GIVEN, HOST, 32)
    assert isinstance(found, Measured)
    assert found.estimate.total_bytes == 3600 * MIB
    assert found.estimate.rests_on == "from 3 sizes measured, the last by run r001"
    assert found.largest is not None
    assert 60 <= found.largest <= (8000 * 0.95 - 400) / 100


def test_on_a_card_the_context_is_added_to_what_the_allocator_held() -> None:
    found = measured_peak((card_run(1, 8, 9000),), GIVEN, CARD)
    assert isinstance(found, Measured)
    assert found.estimate.total_bytes == 9000 * MIB + CARD.context_bytes


def test_runs_with_other_settings_or_of_another_device_say_nothing() -> None:
    assert measured_peak((run(1, 8, 1000, precision="bf16"),), GIVEN, HOST) is None
    assert measured_peak((run(1, 8, 1000),), GIVEN, CARD) is None
