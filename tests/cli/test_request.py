"""What the words of `run` ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.inventories import box, card, python
from tuner_tui.cli.box import ThisBox
from tuner_tui.cli.job_words import JobWords
from tuner_tui.cli.request import Asked, parse_size, request_for
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.origin import Origin, OriginKind
from tuner_tui.settings.presets.library import find_preset


@pytest.mark.parametrize(
    ("text", "size"),
    [("6GiB", 6 << 30), ("6.5 GB", 6_500_000_000), ("800M", 800_000_000), ("512 mib", 512 << 20), ("1048576", 1 << 20)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1GB", "six", "6 XB", "1e9", "6GiBs"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(SettingsError, match="6GiB"):
        parse_size(text)


@pytest.mark.parametrize(("text", "said"), [("24", "24 bytes"), ("900k", "900,000 bytes")])
def test_a_size_without_its_unit_is_asked_for_it(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=f"--memory '{text}' is {said}; write the unit"):
        parse_size(text, "--memory")


def t4_box(_interpreter: Path | None) -> ThisBox:
    return ThisBox(box(card("T4", gib=15.0)), python())


def test_the_built_in_job_gets_what_is_recommended_where_nobody_said_otherwise() -> None:
    resolved = request_for(Asked(preset="demo", values=("optim=adafactor",)), t4_box).resolved
    demo = find_preset("demo").preset.settings
    assert {name: getattr(resolved.settings, name) for name in demo} == demo
    assert {resolved.origin(name) for name in demo} == {Origin(OriginKind.PRESET, "demo")}
    assert (resolved.settings.precision, resolved.settings.optim) == ("fp16", "adafactor")
    assert resolved.origin("precision").kind is OriginKind.RECOMMENDED
    assert "no bf16" in resolved.origin("precision").detail


def test_a_memory_limit_makes_the_card_as_small_for_the_recommendation(tmp_path: Path) -> None:
    bare = tmp_path / "bare.yaml"
    bare.write_text("settings: {seed: 1}")
    batches = [
        request_for(Asked(preset=str(bare), memory_limit=limit), t4_box).resolved.settings.per_device_train_batch_size
        for limit in (None, "4GiB", "40GiB")
    ]
    assert batches == [32, 8, 32]


def test_a_command_keeps_what_it_says_itself() -> None:
    resolved = request_for(Asked(JobWords(("python", "train.py")), values=("seed=7",)), t4_box).resolved
    assert resolved.chosen == {"seed"}
