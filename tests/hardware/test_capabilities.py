from __future__ import annotations

import pytest

from tuner_tui.hardware.capabilities import abilities, build_supports
from tuner_tui.hardware.inventory import Capability, Gpu

CAN = {
    # GPU                     fp16   bf16   tf32   flash  fused  fp8    torch
    ("Kepler", (3, 7)): (False, False, False, False, False, False, False),
    ("Maxwell", (5, 2)): (False, False, False, False, True, False, True),
    ("Pascal", (6, 0)): (True, False, False, False, True, False, True),
    ("Pascal", (6, 1)): (True, False, False, False, True, False, True),
    ("Volta", (7, 0)): (True, False, False, False, True, False, True),
    ("Turing", (7, 5)): (True, False, False, False, True, False, True),
    ("Ampere", (8, 0)): (True, True, True, True, True, False, True),
    ("Ampere", (8, 6)): (True, True, True, True, True, False, True),
    ("Ada", (8, 9)): (True, True, True, True, True, True, True),
    ("Hopper", (9, 0)): (True, True, True, True, True, True, True),
    ("Blackwell", (10, 0)): (True, True, True, True, True, True, True),
    ("Blackwell", (12, 0)): (True, True, True, True, True, True, True),
}
NAMES = ("fp16", "bf16", "tf32", "flash", "fused", "fp8", "torch")


def gpu(capability: Capability | None, architecture: str | None = None) -> Gpu:
    return Gpu(0, "gpu", architecture=architecture, capability=capability)


@pytest.mark.parametrize(("generation", "can"), CAN.items(), ids=lambda value: str(value[0]))
def test_what_each_generation_can_do(generation: tuple[str, tuple[int, int]], can: tuple[bool, ...]):
    architecture, capability = generation
    capabilities = abilities(gpu(capability, architecture))
    assert tuple(ability.name for ability in capabilities) == NAMES
    assert tuple(ability.able for ability in capabilities) == can


@pytest.mark.parametrize("capability", [capability for _, capability in CAN] + [None])
def test_every_answer_has_a_whole_sentence_for_its_reason(capability: tuple[int, int] | None):
    for ability in abilities(gpu(capability, "Whatever")):
        assert "{" not in ability.reason
        assert ability.reason.endswith((".", ")"))


def test_without_a_capability_nothing_is_claimed():
    assert {ability.able for ability in abilities(gpu(None))} == {None}
    assert tuple(ability.name for ability in abilities(gpu(None))) == NAMES


def reason(name: str, capability: tuple[int, int]) -> str:
    return next(ability.reason for ability in abilities(gpu(capability)) if ability.name == name)


def test_remarks_that_a_plain_yes_leaves_out():
    assert "1/64" in reason("fp16", (6, 1))
    assert "no tensor cores" in reason("fp16", (6, 0))
    assert "FlashAttention-3" in reason("flash", (9, 0))
    assert "FlashAttention-3" not in reason("flash", (10, 0))
    assert "cu126" in reason("torch", (7, 0))


@pytest.mark.parametrize(
    ("capability", "archs", "runs"),
    [
        ((8, 6), ["sm_80"], True),
        ((8, 0), ["sm_86"], False),
        ((9, 0), ["sm_80", "sm_86"], False),
        ((9, 0), ["sm_90a"], True),
        ((12, 0), ["sm_90", "compute_90"], True),
        ((12, 1), ["sm_120"], True),
        ((12, 0), ["sm_100"], False),
        ((7, 0), ["sm_75", "compute_120"], False),
        ((9, 0), ["gfx942"], False),
        ((9, 0), [], False),
    ],
)
def test_which_gpus_a_build_has_code_for(capability: tuple[int, int], archs: list[str], runs: bool):
    assert build_supports(capability, archs) is runs
