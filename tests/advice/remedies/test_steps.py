"""By how much each rung changes a setting, and where it is not offered."""

# ruff: noqa: E501  (one step a line)

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fakes.situations import box, card, situation, training
from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies import host, out_of_memory
from tuner_tui.advice.remedies.table import offered
from tuner_tui.advice.situation import Situation
from tuner_tui.settings.model import Settings

Rung = Callable[[Situation, Settings], Iterator[Remedy]]


def row(name: str) -> Rung:
    """A remedy of the table, or one that is computed."""
    return lambda situation, settings: offered(name, situation, settings)


AMPERE = situation()
VOLTA = situation(inventory=box(card(name="V100", capability=(7, 0))))
NO_CARD = situation(inventory=box())
STEPS: tuple[tuple[Rung, Situation, dict[str, Any], dict[str, Any] | None], ...] = (
    # The notes of the 3070: 6 workers become 4 and prefetch 4 becomes 2; of the 8-bit notes: 4 workers become 6.
    (host.fewer_workers, AMPERE, {"dataloader_num_workers": 6}, {"dataloader_num_workers": 4}),
    (host.fewer_workers, AMPERE, {"dataloader_num_workers": 1}, None),
    (host.fewer_workers, situation(inventory=box(card(), cores=4)), {"dataloader_num_workers": 8}, {"dataloader_num_workers": 3}),
    (host.more_workers, situation(state=training(rates={"data_wait_share": 0.4})), {"dataloader_num_workers": 4}, {"dataloader_num_workers": 6}),
    (host.more_workers, situation(state=training(rates={"data_wait_share": 0.9})), {"dataloader_num_workers": 15}, None),
    (host.more_workers, situation(state=training(rates={"data_wait_share": 0.9}), inventory=box(card(), cores=64)), {"dataloader_num_workers": 15}, {"dataloader_num_workers": 16}),
    (host.more_workers, situation(state=training(rates={"data_wait_share": None}), inventory=box(card(), cores=5)), {"dataloader_num_workers": 4}, None),
    # 004: at least fewer evaluations and saves; an evaluation batch is twice the training's.
    (row("larger-eval-batch"), AMPERE, {"per_device_train_batch_size": 16, "per_device_eval_batch_size": 31}, {"per_device_eval_batch_size": 32}),
    (row("larger-eval-batch"), AMPERE, {"per_device_train_batch_size": 16, "per_device_eval_batch_size": 32}, None),
    (row("rarer-evaluation"), AMPERE, {"eval_strategy": "steps", "eval_steps": 100}, {"eval_steps": 200}),
    (row("rarer-evaluation"), AMPERE, {"eval_strategy": "epoch"}, None),
    (row("clip-gradients"), AMPERE, {"max_grad_norm": 0.0}, {"max_grad_norm": 1.0}),
    (row("clip-gradients"), AMPERE, {"max_grad_norm": 1.5}, {"max_grad_norm": 1.0}),
    (row("clip-gradients"), AMPERE, {"max_grad_norm": 1.0}, None),
    (row("clip-gradients"), AMPERE, {"max_grad_norm": 0.5}, None),
    (row("less-prefetch"), AMPERE, {"dataloader_prefetch_factor": 4}, {"dataloader_prefetch_factor": 2}),
    (row("less-prefetch"), AMPERE, {"dataloader_prefetch_factor": 3}, {"dataloader_prefetch_factor": 2}),
    (row("less-prefetch"), AMPERE, {"dataloader_prefetch_factor": 2}, None),
    (row("less-prefetch"), AMPERE, {"dataloader_prefetch_factor": None}, None),
    (host.more_prefetch, AMPERE, {"dataloader_num_workers": 4, "dataloader_prefetch_factor": 3}, {"dataloader_prefetch_factor": 4}),
    (host.more_prefetch, AMPERE, {"dataloader_num_workers": 4, "dataloader_prefetch_factor": None}, {"dataloader_prefetch_factor": 4}),
    (host.more_prefetch, AMPERE, {"dataloader_num_workers": 4, "dataloader_prefetch_factor": 4}, None),
    (host.more_prefetch, AMPERE, {"dataloader_num_workers": 0}, None),
    (row("keep-workers"), AMPERE, {"dataloader_num_workers": 1, "dataloader_persistent_workers": False}, {"dataloader_persistent_workers": True}),
    (row("keep-workers"), AMPERE, {"dataloader_num_workers": 1, "dataloader_persistent_workers": True}, None),
    (row("keep-workers"), AMPERE, {"dataloader_num_workers": 0}, None),
    (row("pin-memory-on"), AMPERE, {"dataloader_pin_memory": False}, {"dataloader_pin_memory": True}),
    (row("pin-memory-on"), AMPERE, {"dataloader_pin_memory": True}, None),
    (row("pin-memory-on"), NO_CARD, {"dataloader_pin_memory": False}, None),
    (row("pin-memory-off"), AMPERE, {"dataloader_pin_memory": True}, {"dataloader_pin_memory": False}),
    (row("pin-memory-off"), NO_CARD, {"dataloader_pin_memory": True}, None),
    (row("restart-workers"), AMPERE, {"dataloader_num_workers": 1, "dataloader_persistent_workers": True}, {"dataloader_persistent_workers": False}),
    (row("restart-workers"), AMPERE, {}, None),
    (row("one-checkpoint"), AMPERE, {"save_total_limit": None}, {"save_total_limit": 1}),
    (row("one-checkpoint"), AMPERE, {"save_total_limit": 2}, {"save_total_limit": 1}),
    (row("one-checkpoint"), AMPERE, {"save_total_limit": 1}, None),
    (row("rarer-checkpoints"), AMPERE, {"save_strategy": "steps", "save_steps": 500}, {"save_steps": 1000}),
    (row("rarer-checkpoints"), AMPERE, {"save_strategy": "epoch"}, None),
    # 002: eval batch 128 becomes 96; 001: 32 becomes 24 and max length 192 becomes 128.
    (out_of_memory.smaller_eval_batch, AMPERE, {"per_device_eval_batch_size": 128}, {"per_device_eval_batch_size": 96}),
    (out_of_memory.smaller_eval_batch, AMPERE, {"per_device_eval_batch_size": 32}, {"per_device_eval_batch_size": 24}),
    (out_of_memory.smaller_eval_batch, AMPERE, {"per_device_eval_batch_size": 16}, {"per_device_eval_batch_size": 12}),
    (out_of_memory.smaller_eval_batch, AMPERE, {"per_device_eval_batch_size": 15}, {"per_device_eval_batch_size": 7}),
    (out_of_memory.smaller_eval_batch, AMPERE, {"per_device_eval_batch_size": 2}, {"per_device_eval_batch_size": 1}),
    (out_of_memory.smaller_eval_batch, AMPERE, {"per_device_eval_batch_size": 1}, None),
    (out_of_memory.shorter_sequences, AMPERE, {"max_length": 192}, {"max_length": 128}),
    (out_of_memory.shorter_sequences, AMPERE, {"max_length": 512}, {"max_length": 336}),
    (out_of_memory.shorter_sequences, AMPERE, {"max_length": 40}, {"max_length": 32}),
    (out_of_memory.shorter_sequences, AMPERE, {"max_length": 32}, None),
    (row("checkpointing"), AMPERE, {"gradient_checkpointing": False}, {"gradient_checkpointing": True}),
    (row("checkpointing"), AMPERE, {"gradient_checkpointing": True}, None),
    (out_of_memory.mixed_precision, AMPERE, {"precision": "fp32"}, {"precision": "bf16"}),
    (out_of_memory.mixed_precision, VOLTA, {"precision": "fp32"}, {"precision": "fp16"}),
    (out_of_memory.mixed_precision, AMPERE, {"precision": "fp16"}, None),
    (out_of_memory.mixed_precision, NO_CARD, {"precision": "fp32"}, None),
    (out_of_memory.eight_bit_optimizer, AMPERE, {"optim": "adamw_torch"}, {"optim": "adamw_bnb_8bit"}),
    (out_of_memory.eight_bit_optimizer, AMPERE, {"optim": "adamw_torch_fused"}, {"optim": "adamw_bnb_8bit"}),
    (out_of_memory.eight_bit_optimizer, AMPERE, {"optim": "sgd"}, None),
    (out_of_memory.eight_bit_optimizer, AMPERE, {"optim": "adamw_torch", "peft_method": "lora"}, None),
    (out_of_memory.eight_bit_optimizer, NO_CARD, {"optim": "adamw_torch"}, None),
    # The conservative preset has 8; the next smaller one is offered before.
    (out_of_memory.safe_batch, AMPERE, {"per_device_train_batch_size": 48, "gradient_accumulation_steps": 2}, {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 12}),
    (out_of_memory.safe_batch, AMPERE, {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 2}, None),
    (out_of_memory.safe_batch, AMPERE, {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}, None),
    (row("pure-bf16"), AMPERE, {}, {"weights_dtype": "bf16", "precision": "bf16"}),
    (row("pure-bf16"), AMPERE, {"weights_dtype": "bf16", "precision": "bf16"}, None),
    (row("pure-bf16"), AMPERE, {"peft_method": "lora"}, None),
    (row("pure-bf16"), VOLTA, {}, None),
)  # fmt: skip


@pytest.mark.parametrize(("rung", "where", "now", "change"), STEPS)
def test_a_rung_changes_this_much(
    rung: Rung, where: Situation, now: dict[str, Any], change: dict[str, Any] | None
) -> None:
    found = [dict(remedy.change) for remedy in rung(where, Settings(**now))]
    assert found == ([] if change is None else [change])


@pytest.mark.parametrize(
    ("parameters", "effect"), [(None, "6 bytes per parameter less"), (1_000_000_000, "6.0 GB less")]
)
def test_eight_bit_states_save_six_bytes_of_eight(parameters: int | None, effect: str) -> None:
    known = situation(state=training(trainable_parameters=parameters))
    (remedy,) = out_of_memory.eight_bit_optimizer(known, Settings(optim="adamw_torch"))
    assert remedy.effect == effect
