"""What is kept for backward, counted by hand: the tensors that the code of each model gives to autograd."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from tests.memory.shapes import BERT, GPT2, LLAMA_1B, TINY_DECODER, TINY_ENCODER
from tuner_tui.memory.activation_memory import (
    ActivationBytes,
    NumberSizes,
    activation_bytes,
    attention_bytes,
    block_bytes,
    number_sizes,
)
from tuner_tui.memory.device import Device
from tuner_tui.memory.estimate import estimate
from tuner_tui.memory.fixed_memory import OFFLOAD_BUFFERS, fixed_sizes, offloaded_bytes, shard
from tuner_tui.memory.model_shape import ModelShape
from tuner_tui.settings.distributed import Sharding
from tuner_tui.settings.model import Settings

QWEN3 = replace(LLAMA_1B, query_norm=True)
GPU, CPU = Device(True, (8, 0)), Device(False)
MIXED = NumberSizes(compute=2, stream=4, mask=1, casts=True, wide=True)
PLAIN = NumberSizes(compute=4, stream=4, mask=1, casts=False, wide=False)


def settings(**values: Any) -> Settings:
    return convert(values, Settings)


@pytest.mark.parametrize(
    ("shape", "values", "device", "expected"),
    [
        (BERT, {"precision": "bf16"}, GPU, MIXED),
        (BERT, {"precision": "fp16"}, GPU, MIXED),
        (BERT, {"precision": "fp32"}, GPU, PLAIN),
        (BERT, {"precision": "bf16"}, CPU, NumberSizes(2, 4, 2, True, False)),
        (BERT, {"precision": "fp32"}, CPU, NumberSizes(4, 4, 4, False, False)),
        (replace(BERT, weight_bytes=2), {"precision": "bf16"}, GPU, NumberSizes(2, 2, 1, False, False)),
        (replace(BERT, weight_bytes=2), {"precision": "fp32"}, GPU, NumberSizes(2, 2, 1, False, False)),
    ],
)
def test_autocast_computes_in_16_bit_and_keeps_the_stream_in_fp32(
    shape: ModelShape, values: dict[str, Any], device: Device, expected: NumberSizes
) -> None:
    assert number_sizes(shape, settings(**values), device) == expected


@pytest.mark.parametrize(
    ("shape", "numbers", "adapted", "expected"),
    [
        # Four copies of the inputs of linear layers, query, key, value and context, two inputs of LayerNorm, two masks;
        # input and output of GELU.
        (BERT, MIXED, False, 768 * (4 * 2 + 4 * 2 + 2 * 4 + 2) + 3072 * 2 * 2),
        (BERT, PLAIN, False, 768 * (2 * 4 + 4 * 4 + 2 * 4 + 2) + 3072 * 2 * 4),
        (replace(BERT, hidden_dropout=0.0), MIXED, False, 768 * (4 * 2 + 4 * 2 + 2 * 4) + 3072 * 2 * 2),
        # The outputs of two norms, the joint tensor (3), the rotated query and key, the context, two inputs of norms;
        # both halves of the gated MLP, the activated half and the product.
        (TINY_ENCODER, MIXED, False, 128 * (2 * 2 + 6 * 2 + 2 * 4) + 256 * 4 * 2),
        (TINY_ENCODER, PLAIN, False, 128 * (2 * 4 + 6 * 4 + 2 * 4) + 256 * 4 * 4),
        # As BERT, with one joint linear layer; GELU in Python: five tensors, four of fp32 under autocast on a GPU.
        (GPT2, MIXED, False, 768 * (2 * 2 + 4 * 2 + 2 * 4 + 2) + 3072 * 4 * 4),
        (GPT2, PLAIN, False, 768 * (2 * 4 + 4 * 4 + 2 * 4 + 2) + 3072 * 5 * 4),
        (replace(GPT2, hidden_dropout=0.0), PLAIN, False, 768 * (2 * 4 + 4 * 4 + 2 * 4) + 3072 * 5 * 4),
        # Inputs of five linear layers, two RMS norms (input in fp32, scaled input), 2048 wide queries and context, 512
        # wide keys and values; the gated MLP.
        (LLAMA_1B, MIXED, False, 2048 * (5 * 2 + 2 * 4 + 2 * 4) + (2 * 2048 + 2 * 512) * 2 + 8192 * 4 * 2),
        (LLAMA_1B, PLAIN, False, 2048 * (2 * 4 + 2 * 4 + 2 * 4) + (2 * 2048 + 2 * 512) * 4 + 8192 * 4 * 4),
        (LLAMA_1B, MIXED, True, 2048 * (5 * 2 + 2 * 4) + (2 * 2048 + 2 * 512) * 2 + 8192 * 4 * 2),
        (QWEN3, MIXED, False, 2048 * 26 + 5120 * 2 + 8192 * 8 + (2048 + 512) * (4 + 2)),
        (QWEN3, MIXED, True, 2048 * 18 + 5120 * 2 + 8192 * 8 + (2048 + 512) * 4),
    ],
)
def test_a_block_keeps_these_tensors_per_token(
    shape: ModelShape, numbers: NumberSizes, adapted: bool, expected: int
) -> None:
    # An adapter of rank 8 keeps its 8 numbers in each linear layer, and a copy of the attention's output.
    adapter = 7 * 8 * 2 + 2048 * 2 if adapted else 0
    chosen = settings(
        peft_method="lora" if adapted else "none", lora_r=8, precision="bf16" if numbers.casts else "fp32"
    )
    assert block_bytes(shape, chosen, numbers) == expected + adapter


def test_dora_keeps_the_outputs_of_both_layers() -> None:
    """And in 16 bit that of a layer with a bias once more: BERT's six have one, Llama's seven none."""
    for shape, outputs, copies in (
        (BERT, 4 * 768 + 3072 + 768, 3),
        (LLAMA_1B, 2 * 2048 + 2 * 512 + 2 * 8192 + 2048, 2),
    ):
        lora, dora = (block_bytes(shape, settings(peft_method=name), MIXED) for name in ("lora", "dora"))
        assert dora - lora == outputs * copies * 2
    assert (
        block_bytes(BERT, settings(peft_method="dora"), PLAIN) - block_bytes(BERT, settings(peft_method="lora"), PLAIN)
        == (4 * 768 + 3072 + 768) * 2 * 4
    )


SUMS = 12 * 64 * 4
"""One fp32 value for each of 12 heads and 64 queries."""


@pytest.mark.parametrize(
    ("shape", "values", "device", "expected"),
    [
        (BERT, {"attn_implementation": "flash_attention_2", "precision": "bf16"}, GPU, (SUMS, 0, 0)),
        (BERT, {"attn_implementation": "sdpa", "precision": "bf16"}, GPU, (SUMS + 64 * 64 * 2, 0, 0)),
        (GPT2, {"attn_implementation": "sdpa", "precision": "bf16"}, GPU, (SUMS, 0, 0)),
        # Eager: the softmax in fp32, its 16-bit copy and the mask of dropout; scores in backward and in an evaluation.
        (BERT, {"attn_implementation": "eager", "precision": "bf16"}, GPU, (7, 4, 8)),
        (BERT, {"attn_implementation": "eager", "precision": "bf16"}, CPU, (10, 4, 8)),
        (GPT2, {"attn_implementation": "eager", "precision": "bf16"}, CPU, (8, 4, 8)),
        (BERT, {"attn_implementation": "eager", "precision": "fp32"}, GPU, (9, 4, 8)),
        (replace(BERT, attention_dropout=0.0), {"attn_implementation": "eager", "precision": "bf16"}, GPU, (6, 4, 8)),
        (replace(BERT, attention_dropout=0.0), {"attn_implementation": "eager", "precision": "fp32"}, GPU, (4, 4, 8)),
        # The math kernel on a CPU with dropout: softmax, mask and result; in 16 bit three inputs are cast to fp32.
        (BERT, {"attn_implementation": "sdpa", "precision": "fp32"}, CPU, (12, 4, 8)),
        (BERT, {"attn_implementation": "sdpa", "precision": "bf16"}, CPU, (12 + 3 * 2 * 64 / 64, 4, 8)),
    ],
)
def test_attention_keeps_scores_or_their_sums(
    shape: ModelShape, values: dict[str, Any], device: Device, expected: tuple[float, float, float]
) -> None:
    """Small figures are bytes for each of 12 x 64 x 64 scores."""
    chosen = settings(**values)
    size_bytes = attention_bytes(shape, chosen, device, number_sizes(shape, chosen, device), 64)
    scores = 12 * 64 * 64
    kept = expected[0] if expected[0] >= SUMS else expected[0] * scores
    assert (size_bytes.kept, size_bytes.extra, size_bytes.evaluation) == (
        kept,
        expected[1] * scores,
        expected[2] * scores,
    )


@pytest.mark.parametrize(
    ("shape", "precision", "device", "keys", "scores"),
    [
        # Flash attention in 16 bit takes grouped keys as they are; in fp32 none does: 24 of 32 heads are made.
        (LLAMA_1B, "bf16", GPU, 0, 0),
        (LLAMA_1B, "fp32", GPU, 2 * 24 * 64 * 4, 4),
        (LLAMA_1B, "fp32", CPU, 0, 0),
        # A T4 has no flash attention: the math kernel keeps scores in fp32, and casts 32 heads of 64 three times.
        (LLAMA_1B, "fp16", Device(True, (7, 5)), 2 * 24 * 64 * 2 + 3 * 2 * 32 * 64, 4),
        (LLAMA_1B, "fp16", Device(True), 0, 0),
        # With the mask of padded texts they are made in any precision.
        (replace(LLAMA_1B, task="classification"), "bf16", GPU, 2 * 24 * 64 * 2, 0),
        (replace(LLAMA_1B, task="classification"), "fp32", GPU, 2 * 24 * 64 * 4, 0),
    ],
)
def test_keys_and_values_of_grouped_heads(
    shape: ModelShape, precision: str, device: Device, keys: int, scores: int
) -> None:
    chosen = settings(precision=precision, attn_implementation="sdpa")
    size_bytes = attention_bytes(shape, chosen, device, number_sizes(shape, chosen, device), 16)
    sums = 0 if scores else 32 * 16 * 4
    mask = 0 if shape.language_model else 16 * 16 * (2 if precision == "bf16" else 4)
    assert size_bytes.kept == 16 * keys + 32 * 16 * 16 * scores + sums + mask
    repeated = 2 * 24 * 64 * (4 if precision == "fp32" else 2)
    assert size_bytes.evaluation == (16 * repeated + 32 * 16 * 16 * 8 if scores else 0)


def test_modernbert_frees_its_joint_tensor_where_values_are_copied() -> None:
    """In eager attention the values are a copy, so that two thirds of the joint tensor are not kept by it."""
    chosen = settings(attn_implementation="eager", precision="bf16")
    size_bytes = attention_bytes(TINY_ENCODER, chosen, GPU, MIXED, 16)
    assert size_bytes.kept == 4 * 16 * 16 * 6 - 2 * 16 * 128 * 2


def test_one_sample_of_a_language_model() -> None:
    """TINY_DECODER under autocast on a GPU: 128 wide, 4 heads of 32 with 2 for keys, MLP 384, 4096 words; 64 tokens."""
    size_bytes = activation_bytes(TINY_DECODER, settings(precision="bf16", max_length=64), GPU)
    block = 128 * 26 + (2 * 128 + 2 * 64) * 2 + 384 * 4 * 2
    assert size_bytes == ActivationBytes(
        block=64 * block + 4 * 64 * 4,  # with the sums of attention
        checkpoint=64 * 128 * 4,
        ends=64 * 128 * (2 * 4 + 2),  # the last norm, twice, and the input of the output layer
        block_extra=64 * (2 * 384 + 4 * 128),  # the gradient of the MLP, and that of the stream in fp32
        loss_forward=64 * 4096 * 10,
        loss_backward=64 * 4096 * 12,
        evaluation=64 * 4096 * 10,
    )


def test_one_sample_of_a_classifier() -> None:
    """TINY_ENCODER in fp32 on a GPU: 128 wide, 4 heads of 32, MLP 256; 64 tokens."""
    size_bytes = activation_bytes(TINY_ENCODER, settings(precision="fp32", max_length=64), GPU)
    assert size_bytes == ActivationBytes(
        block=64 * (128 * 40 + 256 * 16) + 4 * 64 * 4 + 64 * 64 * 4,  # with the sums and the mask of attention
        checkpoint=64 * 128 * 4,
        ends=64 * 128 * 4,
        block_extra=64 * 2 * 4 * 256,  # both halves of the gated MLP
        loss_forward=0,
        loss_backward=0,
        evaluation=64 * (128 * (2 * 4 + 2 * 4) + 256 * 4 * 4),
    )


@pytest.mark.parametrize("shape", [BERT, GPT2])
def test_an_evaluation_keeps_two_tensors_of_each_width_in_a_block(shape: ModelShape) -> None:
    """In fp32: the stream before and after, two copies of it, and the MLP before and after its activation."""
    size_bytes = activation_bytes(replace(shape, task="classification"), settings(max_length=64, precision="fp32"), GPU)
    assert size_bytes.evaluation == 64 * (4 * 4 * 768 + 2 * 4 * 3072)


@pytest.mark.parametrize(
    ("shape", "values", "expected"),
    [
        (GPT2, {"precision": "bf16"}, 12 * 3072),  # three tensors in fp32
        (GPT2, {"precision": "fp32"}, 1.65 * 4 * 3072),  # as measured
        (BERT, {"precision": "bf16"}, 2 * 3072 + 4 * 768),
        (BERT, {"precision": "fp32"}, 4 * 3072),
        (BERT, {"precision": "bf16", "peft_method": "lora"}, 8 * (3072 + 768)),
        (BERT, {"precision": "fp32", "peft_method": "lora"}, 2 * 4 * 3072),
    ],
)
def test_temporary_tensors_of_a_backward_pass(shape: ModelShape, values: dict[str, Any], expected: float) -> None:
    size_bytes = activation_bytes(
        shape, settings(max_length=64, attn_implementation="flash_attention_2", **values), GPU
    )
    assert size_bytes.block_extra == pytest.approx(64 * expected)


def test_adapters_keep_neither_embeddings_nor_final_layers() -> None:
    plain, adapted = (
        activation_bytes(BERT, settings(max_length=64, precision="bf16", peft_method=name), GPU).ends
        for name in ("none", "lora")
    )
    assert (plain, adapted) == (64 * 768 * (4 + 1), 0)


def test_no_sample_is_longer_than_the_positions_of_the_model() -> None:
    assert activation_bytes(BERT, settings(max_length=512), GPU) == activation_bytes(
        BERT, settings(max_length=900), GPU
    )


def test_the_first_gpu_gathers_the_logits_of_all_in_fp32() -> None:
    one_gpu, four = (
        activation_bytes(TINY_DECODER, settings(max_length=64), replace(GPU, gpu_count=gpus)) for gpus in (1, 4)
    )
    assert four.loss_forward - one_gpu.loss_forward == four.evaluation - one_gpu.evaluation == 4 * 4 * 64 * 4096


@pytest.mark.parametrize(
    ("values", "block"),
    [
        # 12 h² weights and 9 h biases of linear layers in 16 bit in each block; a classifier has no output layer.
        ({"precision": "bf16"}, 2 * (12 * 768 * 768 + 9 * 768)),
        ({"precision": "fp32"}, 0),
        ({"precision": "bf16", "weights_dtype": "bf16"}, 0),
    ],
)
def test_autocast_copies_the_weights_of_linear_layers(values: dict[str, Any], block: int) -> None:
    sizes = fixed_sizes(BERT, settings(**values))
    assert (sizes.block_copies, sizes.copies, sizes.cached) == (block, 12 * block, 12 * block)


def test_a_language_model_copies_its_output_layer_too() -> None:
    sizes = fixed_sizes(GPT2, settings(precision="bf16", gradient_accumulation_steps=2), processes=2)
    block, head = 2 * (12 * 768 * 768 + 9 * 768), 2 * 50_257 * 768
    assert (sizes.block_copies, sizes.copies) == (block + head, 12 * block + head)
    assert sizes.word_matrix == 4 * 50_257 * 768
    assert sizes.gradients == sizes.accumulated == sizes.buckets == 4 * 124_439_808
    single = fixed_sizes(GPT2, settings(precision="bf16", gradient_accumulation_steps=1))
    assert (single.accumulated, single.buckets) == (0, 0)


def test_quantized_layers_are_copied_one_at_a_time() -> None:
    """Llama 1B in 4 bit: the MLP's 2048 x 8192 matrix is the largest; adapters of rank 8 are cast, the weights not."""
    chosen = settings(precision="bf16", peft_method="lora", quantization="nf4", lora_r=8)
    sizes = fixed_sizes(LLAMA_1B, chosen)
    adapter = 8 * (2 * (2048 + 2048) + 2 * (2048 + 512) + 3 * (2048 + 8192))
    assert sizes.dequantized == 2 * 2048 * 8192
    assert sizes.block_copies == 2 * adapter + 2 * 128_256 * 2048  # and the output layer, which is not quantized
    assert sizes.cached == 2 * 16 * adapter
    assert sizes.norms == sizes.word_matrix == 0
    dora = fixed_sizes(LLAMA_1B, settings(precision="bf16", peft_method="dora"))
    assert dora.norms == 4 * 8192 * (8192 + 2 * 2048)


ADAM_BYTES = 12
"""An fp32 copy of a weight and its two states, as DeepSpeed keeps them (arxiv.org/abs/1910.02054, section 3.1)."""


@pytest.mark.parametrize(
    ("stage", "weights", "gradients", "states"),
    [(1, 2, 2, ADAM_BYTES / 4), (2, 2, 2 / 4, ADAM_BYTES / 4), (3, 2 / 4, 2 / 4, ADAM_BYTES / 4)],
)
def test_each_stage_of_zero_divides_more_of_the_state(
    stage: int, weights: float, gradients: float, states: float
) -> None:
    planned = settings(precision="bf16", optim="adamw_torch_fused", weights_dtype="bf16")
    whole = fixed_sizes(replace(LLAMA_1B, weight_bytes=2), planned, 4)
    divided = shard(whole, Sharding("zero", stage, by_deepspeed=True), 4, replace(LLAMA_1B, weight_bytes=2), planned)
    numbers = whole.numbers.total
    assert divided.weights == pytest.approx(weights * numbers)
    assert divided.gradients == pytest.approx(gradients * numbers)
    assert divided.states == pytest.approx(states * numbers)


def test_what_is_offloaded_takes_no_memory_of_the_gpu() -> None:
    planned, shape = settings(precision="bf16", weights_dtype="bf16"), replace(LLAMA_1B, weight_bytes=2)
    offloading = Sharding("zero", 2, by_deepspeed=True, offloads_optimizer=True)
    divided = shard(fixed_sizes(shape, planned, 4), offloading, 4, shape, planned)
    assert (divided.gradients, divided.states, divided.step_copies) == (0, 0, 0)


@pytest.mark.parametrize(("offloads_weights", "published_gib"), [(True, 71.71), (False, 63.74)])
def test_what_is_offloaded_takes_as_much_of_the_host_as_deepspeed_documents(
    offloads_weights: bool, published_gib: float
) -> None:
    # "Estimated memory needed … 2851M total params" with zero_init, deepspeed.readthedocs.io/en/latest/memory.html
    planned, shape = settings(precision="bf16", weights_dtype="bf16"), replace(LLAMA_1B, weight_bytes=2)
    offloading = Sharding("zero", 3, by_deepspeed=True, offloads_optimizer=True, offloads_weights=offloads_weights)
    size = offloaded_bytes(shape, planned, offloading) / fixed_sizes(shape, planned).numbers.total * 2851e6
    assert size * OFFLOAD_BUFFERS / 2**30 == pytest.approx(published_gib, rel=0.001)


def test_fsdp_offloads_the_trainings_own_tensors() -> None:
    planned = settings(precision="bf16", optim="adamw_torch")
    sizes = fixed_sizes(LLAMA_1B, planned)
    whole = offloaded_bytes(LLAMA_1B, planned, Sharding("fsdp", 3, False, True, True))
    assert whole == sizes.weights + sizes.gradients + sizes.states
    assert offloaded_bytes(LLAMA_1B, planned, Sharding("fsdp", 3)) == 0


def test_fsdp_holds_whole_gradients_between_micro_batches() -> None:
    fsdp = Sharding("fsdp", 3)
    once, several = (settings(precision="bf16", gradient_accumulation_steps=count) for count in (1, 4))
    held = [
        shard(fixed_sizes(LLAMA_1B, planned, 8), fsdp, 8, LLAMA_1B, planned).accumulated for planned in (once, several)
    ]
    assert held == [0, 2 * fixed_sizes(LLAMA_1B, once).numbers.total]


def test_more_processes_take_less_of_each_gpu() -> None:
    planned = settings(precision="bf16", gradient_checkpointing=True, max_length=1024)
    for sharding in (Sharding("fsdp", 3), Sharding("zero", 2, by_deepspeed=True), Sharding("fsdp", 2)):
        peaks = [estimate(LLAMA_1B, planned, GPU, count, sharding=sharding).total_bytes for count in (1, 2, 4, 8)]
        assert peaks == sorted(peaks, reverse=True)
        assert peaks[0] > 1.3 * peaks[-1]
