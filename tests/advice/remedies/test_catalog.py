"""Every row of the troubleshooting ladders, and where the notes err."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.situations import GB, box, make_gpu, samples, situation, training
from tuner_tui.advice.remedies.catalog import COMPUTED, remedies_for
from tuner_tui.advice.remedies.computed import RUNGS
from tuner_tui.advice.remedies.table import has_ladder, read_part
from tuner_tui.advice.situation import Situation, effective_settings
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings

K80 = box(make_gpu(name="K80", capability=(3, 7), memory_total_bytes=12 * GB))
P100 = box(make_gpu(name="P100", capability=(6, 0), memory_total_bytes=16 * GB))
T4 = box(make_gpu(name="T4", capability=(7, 5), memory_total_bytes=16 * GB))
GPUS = {"RTX 3090": (make_gpu(),), "P100": P100.gpus, "K80": K80.gpus, "T4": T4.gpus, "none": ()}
OFFERS = yaml.load(Path(__file__).with_name("offers.yaml").read_text("utf-8"), yaml.CSafeLoader)
BARE = Interpreter("/opt/env/bin/python", packages={"torch": "2.4.0"})


def changes(
    cause: str, where: str | None = None, inventory: Inventory | None = None, **settings: Any
) -> list[dict[str, Any]]:
    """The changes offered for `cause`, in order."""
    now = situation(settings=Settings(**settings), inventory=inventory or box(make_gpu()))
    return [dict(remedy.change) for remedy in remedies_for(cause, now, where)]


@pytest.mark.parametrize("offer", OFFERS, ids=lambda offer: f"{offer['cause']} {offer['now']}")
def test_what_is_offered(offer: dict[str, Any]) -> None:
    machine = box(*GPUS[offer.get("gpu", "RTX 3090")], cores=offer.get("cores", 16))
    job = BuiltinJob(model="bert-base") if "gradient_checkpointing" in offer["now"] else None
    used = samples(gpu={"memory_used_bytes": offer.get("used_gb", 20) * GB})
    now = situation(settings=Settings(**offer["now"]), inventory=machine, job=job, samples=used)
    remedies = remedies_for(offer["cause"], now, offer.get("where"))
    offered = [dict(remedy.change) for remedy in remedies]
    first = offer.get("first", [])
    assert offered[: len(first)] == first
    items = [(name, value) for change in offered for name, value in change.items()]
    assert {*offer.get("some", {}).items()} <= {*items}
    assert not {*offer.get("never", {}).items()} & {*items}
    assert not {*offer.get("unchanged", ())} & {name for name, _ in items}
    if "title" in offer:
        remedy = next(remedy for remedy in remedies if remedy.title.startswith(offer["title"]))
        assert offer.get("claim", "") in f"{remedy.why}; {remedy.effect}"


def test_where_no_divisor_is_near_the_difference_and_its_rate_are_shown() -> None:
    now = situation(settings=Settings(per_device_train_batch_size=13, learning_rate=1e-4))
    nearest, exact = remedies_for("gpu-oom", now)[:2]
    assert "13 → 9" in nearest.title
    assert nearest.change["learning_rate"] == pytest.approx(8.32e-5)
    assert exact.change == {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 13}
    assert nearest.expectation.startswith("effective batch 13 → 9; ")
    assert "effective batch" not in exact.expectation


def test_the_order_of_least_harm() -> None:
    keys = [next(iter(change)) for change in changes("gpu-oom", per_device_train_batch_size=64, max_length=192)]
    assert keys == [
        "per_device_train_batch_size", "gradient_checkpointing", "precision", "per_device_eval_batch_size",
        "max_length", "optim", "weights_dtype", "peft_method", "per_device_train_batch_size",
    ]  # fmt: skip


def test_checkpointing_is_never_switched_off_for_memory() -> None:
    for where in (None, "training", "evaluation", "optimizer-step", "loading", "checkpoint"):
        for change in changes("gpu-oom", where, gradient_checkpointing=True, per_device_train_batch_size=16):
            assert "gradient_checkpointing" not in change


def test_nothing_is_offered_that_this_box_or_interpreter_cannot_run() -> None:
    now = situation(settings=Settings(per_device_train_batch_size=8), inventory=T4, interpreter=BARE)
    offered = [dict(remedy.change) for remedy in remedies_for("gpu-oom", now)]
    assert {"precision": "fp16"} in offered
    assert {"optim": "adamw_bnb_8bit"} not in offered
    assert {"peft_method": "lora"} not in offered


def test_what_is_set_already_is_not_offered() -> None:
    settings: dict[str, Any] = {
        "gradient_checkpointing": True,
        "precision": "bf16",
        "optim": "adamw_bnb_8bit",
        "peft_method": "lora",
    }
    keys = {key for change in changes("gpu-oom", **settings) for key in change}
    assert not keys & set(settings)


def test_without_settings_the_advice_is_in_words() -> None:
    remedies = remedies_for("gpu-oom", Situation(RunState(), 0.0))
    assert remedies[0].change == {}
    assert "micro batch" in remedies[0].title


@pytest.mark.parametrize(("threads", "fewer"), [(None, True), (8, True), (4, True), (3, False), (1, False)])
def test_fewer_threads_than_run_already_are_no_remedy(threads: int | None, fewer: bool) -> None:
    now = situation(state=training(in_effect={"device": "cpu", "cpu_threads": threads}), inventory=box())
    titles = [remedy.title for remedy in remedies_for("cpu-contended", now, "3")]
    assert ("compute with fewer threads: OMP_NUM_THREADS=3" in titles) is fewer
    assert "end or move the other jobs on this machine" in titles


@pytest.mark.parametrize(
    ("cause", "where", "micro", "batch", "gain"),
    [
        ("gpu-underused", "both-low", 8, 32, "up to 2.9×"),
        ("gpu-underused", "very-low", 4, 16, "up to 2.9×"),
        ("gpu-underused", None, 8, 16, "15–20 %"),
    ],
)
def test_a_larger_batch_promises_what_the_notes_measured_with_it(
    cause: str, where: str | None, micro: int, batch: int, gain: str
) -> None:
    now = situation(
        settings=Settings(per_device_train_batch_size=micro, gradient_accumulation_steps=1, max_length=64),
        samples=samples(gpu={"memory_used_bytes": 2 * GB}),
        job=BuiltinJob(model="bert-base"),
    )
    offers = {remedy.change.get("per_device_train_batch_size"): remedy for remedy in remedies_for(cause, now, where)}
    assert batch in offers
    assert gain in offers[batch].effect
    assert "samples/s" in offers[batch].rests_on or gain == "15–20 %"


def test_checkpointing_goes_only_where_there_is_room() -> None:
    settings = Settings(gradient_checkpointing=True, per_device_train_batch_size=64)
    job, little = BuiltinJob(model="bert-base"), samples(gpu={"memory_used_bytes": 4 * GB})
    roomy = situation(settings=settings, job=job, samples=little)
    full = situation(settings=settings, job=job, samples=samples(gpu={}))
    unknown = situation(settings=settings, samples=little)  # a model of any depth
    off = {"gradient_checkpointing": False}
    assert off in [r.change for r in remedies_for("slow-kernels", roomy)]
    assert off not in [r.change for r in remedies_for("slow-kernels", full)]
    assert off not in [r.change for r in remedies_for("slow-kernels", unknown)]


def test_a_missing_package_comes_with_its_line_and_a_way_without_it() -> None:
    now = situation(settings=Settings(optim="adamw_bnb_8bit"), interpreter=BARE)
    install, without = remedies_for("missing-package", now, "bitsandbytes")
    assert install.why.startswith("/opt/env/bin/python -m pip install bitsandbytes")
    assert without.change == {"optim": "adamw_torch_fused"}


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ('  File "/env/lib/site-packages/torch/utils/tensorboard/writer.py", line 4', "python -m pip install"),
        ('  File "/home/me/vision/tensorboard/train.py", line 4, in <module>', "`PYTHONPATH=."),
    ],
)
def test_only_a_folder_outside_of_packages_may_be_the_missing_module(line: str, first: str) -> None:
    remedies = remedies_for("missing-package", situation(log=(line,)), "tensorboard")
    assert remedies[0].why.startswith(first)


def test_every_change_is_a_valid_setting() -> None:
    now = situation(state=training(), settings=Settings(dataloader_num_workers=6, dataloader_prefetch_factor=4))
    for cause in (*COMPUTED, *read_part("ladders")):
        for remedy in remedies_for(cause, now):
            assert now.settings is not None
            now.settings.changed(**remedy.change)
            assert remedy.why
            assert remedy.source


def test_every_rung_of_a_ladder_is_a_row_or_a_function() -> None:
    named = {name for ladder in read_part("ladders").values() for names in _lists(ladder) for name in names}
    assert not [name for name in named if name not in RUNGS and not has_ladder(name)]


def _lists(ladder: list[str] | dict[str, list[str]]) -> list[list[str]]:
    return [ladder] if isinstance(ladder, list) else list(ladder.values())


def test_a_script_whose_batch_is_not_known_is_told_no_figures() -> None:
    unknown = situation(chosen=frozenset())
    first, *rest = remedies_for("gpu-oom", unknown, "training")
    assert first.title == "halve the micro batch, double the accumulation"
    assert not first.change
    for remedy in rest:
        assert not remedy.change.keys() & {"per_device_train_batch_size", "max_length", "per_device_eval_batch_size"}


def test_a_batch_that_was_seen_is_known() -> None:
    seen = {"per_device_train_batch_size": 48, "gradient_accumulation_steps": 2}
    now = situation(chosen=frozenset(), state=training(in_effect=seen))
    assert remedies_for("gpu-oom", now, "training")[0].change["per_device_train_batch_size"] == 32


@pytest.mark.parametrize(("times", "micro", "offered"), [(0, 8, True), (2, 8, False), (0, 1, False)])
def test_retries_are_offered_where_they_are_off_and_a_batch_can_be_smaller(
    times: int, micro: int, offered: bool
) -> None:
    now = situation(job=BuiltinJob(fallback=times), settings=Settings(per_device_train_batch_size=micro))
    titles = [remedy.title for remedy in remedies_for("gpu-oom", now, "training")]
    assert ("turn on retries after out of memory" in titles) is offered


@pytest.mark.parametrize(
    ("seen", "replicas"), [({}, 1), ({"optimizer": "SGD"}, 1), ({"optimizer": "SGD", "n_gpu": 4}, 4)]
)
def test_gpus_that_one_process_shares_a_step_among_count_in_the_effective_batch(
    seen: dict[str, Any], replicas: int
) -> None:
    assert Situation(RunState(in_effect=seen), 0.0).replicas == replicas


LOOP = {"optimizer": "SGD", "per_device_train_batch_size": 64, "learning_rate": 1e6}
INJECTED = CommandJob(command=("python", "main.py"), apply="inject")


def own_loop(in_effect: dict[str, Any], job: CommandJob = INJECTED) -> Situation:
    state = training(in_effect=in_effect)
    return situation(
        state=state, job=job, chosen=frozenset(), settings=effective_settings(Settings(), frozenset(), in_effect)
    )


def test_a_loop_of_its_own_is_offered_only_what_it_has_a_place_for() -> None:
    offered = remedies_for("gpu-oom", own_loop(LOOP))
    assert offered[0].change == {"per_device_train_batch_size": 32}
    assert "does not accumulate gradients" in offered[0].why
    changed = {name for remedy in offered for name in remedy.change}
    assert changed == {"per_device_train_batch_size"}, "a DataLoader takes no more than that"
    titles = " ".join(remedy.title for remedy in offered)
    assert not any(word in titles for word in ("checkpointing", "LoRA", "accumulation", "length", "fallback"))
    trainer = remedies_for("gpu-oom", own_loop({**LOOP, "n_gpu": 1}))
    assert "gradient checkpointing on" in [remedy.title for remedy in trainer]


@pytest.mark.parametrize(
    ("in_effect", "title"),
    [
        (LOOP, "learning rate 1e+06 → 0.01"),
        ({**LOOP, "optimizer": "AdamW"}, "learning rate 1e+06 → 0.001"),
        ({**LOOP, "learning_rate": 0.1}, "learning rate 0.1 → 0.05"),
    ],
)
def test_the_learning_rate_is_lowered_from_the_one_in_effect(in_effect: dict[str, Any], title: str) -> None:
    (remedy,) = [remedy for remedy in remedies_for("nan", own_loop(in_effect)) if "learning rate" in remedy.title]
    assert remedy.title == title
    assert remedy.change == {}, "inject does not reach an optimizer"
    assert "learning_rate cannot be passed" in remedy.why


def test_a_batch_is_not_scaled_by_a_rate_that_the_settings_do_not_allow() -> None:
    seen = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "optimizer": "AdamW", "n_gpu": 1}
    usual = remedies_for("gpu-underused", own_loop({**seen, "learning_rate": 1e-4}))
    assert any("learning rate" in remedy.title for remedy in usual)
    odd = remedies_for("gpu-underused", own_loop({**seen, "learning_rate": 50.0}))
    assert not any("learning rate" in remedy.title for remedy in odd)


def test_a_placeholder_in_the_command_carries_the_change() -> None:
    job = CommandJob(command=("python", "main.py", "--lr", "{learning_rate}"), apply="placeholders")
    (remedy,) = [remedy for remedy in remedies_for("nan", own_loop(LOOP, job)) if "learning rate" in remedy.title]
    assert remedy.change == {"learning_rate": 0.01}


def test_a_frozen_base_is_quantized_after_lora_and_before_the_safe_batch() -> None:
    now = situation(settings=Settings(peft_method="lora", per_device_train_batch_size=64))
    keys = [next(iter(remedy.change)) for remedy in remedies_for("gpu-oom", now) if remedy.change]
    assert keys[-2:] == ["quantization", "per_device_train_batch_size"]
    assert "quantization" not in [key for change in changes("gpu-oom") for key in change], "all weights train"


def test_nothing_is_quantized_without_bitsandbytes_or_trained_weights() -> None:
    for changed in ({"interpreter": BARE}, {"job": BuiltinJob(model="bert-base")}):
        now = situation(settings=Settings(peft_method="lora"), **changed)
        assert not any("quantization" in remedy.change for remedy in remedies_for("gpu-oom", now))


def test_lora_is_offered_neither_on_random_weights_nor_where_the_log_shows_it() -> None:
    shape = situation(settings=Settings(), job=BuiltinJob(model="bert-base"))
    assert not any("peft_method" in remedy.change for remedy in remedies_for("gpu-oom", shape))
    log = ("trainable params: 4,194,304 || all params: 6,742,609,920 || trainable%: 0.0622",)
    titles = [remedy.title for remedy in remedies_for("gpu-oom", situation(settings=None, log=log), "training")]
    assert "train adapters: LoRA" not in titles
    unknown = [remedy.title for remedy in remedies_for("gpu-oom", situation(settings=None), "training")]
    assert "train adapters: LoRA" in unknown
    assert "quantize the base model: 4 bits with LoRA (QLoRA)" in titles


def test_pure_bf16_under_the_loss_scaler_is_set_back() -> None:
    settings = Settings(precision="fp16", weights_dtype="bf16")
    now = situation(settings=settings, job=BuiltinJob(model="org/model"), inventory=T4)
    (remedy,) = remedies_for("precision-unsupported", now, "scaler")
    assert remedy.change == {"weights_dtype": "auto"}


@pytest.mark.parametrize(("model", "precision"), [("google/gemma-3-1b-it", "fp32"), ("Qwen/Qwen2.5-1.5B", "fp16")])
def test_fp16_is_never_advised_to_a_model_that_overflows_in_it(model: str, precision: str) -> None:
    command = CommandJob(command=("python", "sft.py", "--model_name_or_path", model))
    for job in (BuiltinJob(model=model), command):
        now = situation(settings=Settings(precision="bf16"), job=job, inventory=T4)
        assert now.best_precision == precision
        assert remedies_for("precision-unsupported", now, "bf16")[0].change["precision"] == precision
