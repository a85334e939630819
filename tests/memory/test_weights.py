"""Bytes of weights in every dtype, by hand and as bitsandbytes has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import convert

from tests.late_module import one_worker, skip_without
from tuner_tui.memory.activation_memory import activation_bytes
from tuner_tui.memory.closed_form import memory_phases
from tuner_tui.memory.device import Device
from tuner_tui.memory.estimate import MemoryEstimate, estimate
from tuner_tui.memory.fixed_memory import fixed_sizes
from tuner_tui.memory.job_task import usual_task
from tuner_tui.memory.known_shapes import config_to_trace, known_shape, shape_from_config
from tuner_tui.memory.model_config import known_config, known_configs
from tuner_tui.memory.model_shape import loaded_shape
from tuner_tui.memory.parameter_counts import count_parameters
from tuner_tui.memory.training_code import BUILT_IN, TrainingCode, training_code
from tuner_tui.settings.model import Settings

GIB = 2**30
PUBLISHED = yaml.load(Path(__file__).with_name("published.yaml").read_text(), yaml.CSafeLoader)

GPU = Device(True, (8, 0))


def shape(name: str) -> Any:
    known_model = known_shape(name, "causal-lm" if "torch_dtype" in known_configs()[name] else "classification")
    assert known_model is not None
    return known_model


@pytest.mark.parametrize(("name", "millions"), PUBLISHED["millions"].items())
def test_well_known_models_have_their_published_size(name: str, millions: float) -> None:
    share = 0.02 if shape(name).approximates else 0.01  # the nearest family may have positions where this one has none
    assert count_parameters(shape(name), Settings()).total / 1e6 == pytest.approx(millions, rel=share)


@pytest.mark.train
@one_worker
@pytest.mark.parametrize(("name", "millions"), PUBLISHED["traced millions"].items())
def test_a_model_that_is_traced_by_its_name_has_its_published_size(name: str, millions: float) -> None:
    skip_without("transformers")
    from tests.gpu.measure_memory import quiet
    from tuner_tui.trainer.job_file import JobArguments
    from tuner_tui.trainer.memory_tracer.tracer import build_meta_model

    task = usual_task(name)
    assert task is not None
    config = config_to_trace(name, task)
    assert config is not None
    with quiet():
        model = build_meta_model(JobArguments(task=task, model=name), 2, False, dict(config))
    assert sum(weight.numel() for weight in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.005)


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED["exactly"].items())
def test_parameters_are_counted_to_the_last(name: str, parameters: int) -> None:
    assert count_parameters(shape(name), Settings()).total == parameters


@pytest.mark.parametrize(("model", "name"), PUBLISHED["a model is known by the beginning of its name"])
def test_a_model_is_known_by_the_beginning_of_its_name(model: str, name: str | None) -> None:
    assert known_config(model) == (None if name is None else known_configs()[name])


@pytest.mark.parametrize(("model", "millions", "share"), PUBLISHED["the name tells the size"])
def test_the_name_tells_the_size(model: str, millions: float, share: float) -> None:
    shape = known_shape(model, "causal-lm")
    assert shape is not None
    assert count_parameters(shape, Settings()).total / 1e6 == pytest.approx(millions, rel=share)


def test_nothing_is_said_of_positions_that_the_table_does_not_have() -> None:
    assert shape("llama-3.1-8b").positions is None
    assert shape("bert-base-uncased").positions == 512
    long, short = (
        estimate(shape("llama-3.2-1b"), Settings(max_length=length), Device(True)) for length in (65_536, 32_768)
    )
    assert long.total_bytes > 1.5 * short.total_bytes


@pytest.mark.parametrize("model", PUBLISHED["the name does not tell the size"])
def test_no_size_is_guessed_from_a_word(model: str) -> None:
    assert known_shape(model, "causal-lm") is None
    assert known_shape(model, "classification") is None


@pytest.mark.parametrize("name", [name for name, config in known_configs().items() if "size" in config])
def test_a_model_without_a_closed_form_has_its_size(name: str) -> None:
    shape = known_shape(name, "causal-lm")
    assert shape is not None
    assert shape.size_only
    assert count_parameters(shape, Settings()).total == pytest.approx(known_configs()[name]["size"] * 1e6, rel=0.01)


@pytest.mark.parametrize(
    ("values", "each"),
    [
        ({}, 4), ({"precision": "bf16"}, 4), ({"peft_method": "lora"}, 2), ({"weights_dtype": "bf16"}, 2),
        ({"weights_dtype": "saved"}, 2), ({"weights_dtype": "fp32", "peft_method": "dora"}, 4),
    ],
)  # fmt: skip
def test_weights_that_train_are_fp32_and_frozen_ones_as_saved(values: dict[str, Any], each: int) -> None:
    """`test_load.py` of the trainer holds the built-in job to the same rule."""
    assert loaded_shape(shape("llama-3.2-1b"), convert(values, Settings)).weight_bytes == each


def test_full_training_of_a_bf16_model_keeps_fp32_weights_gradients_and_states() -> None:
    """16 bytes for each of 1,235,814,400 parameters."""
    sizes = fixed_sizes(shape("llama-3.2-1b"), Settings(precision="bf16", optim="adamw_torch_fused"))
    assert sizes.before_a_sample == 16 * 1_235_814_400


def test_adapters_train_in_fp32_on_16_bit_weights() -> None:
    settings = Settings(precision="bf16", peft_method="lora", optim="adamw_torch_fused")
    numbers = count_parameters(shape("llama-3.2-1b"), settings)
    sizes = fixed_sizes(shape("llama-3.2-1b"), settings)
    assert sizes.weights == 2 * 1_235_814_400 + 4 * numbers.trainable
    assert (sizes.gradients, sizes.states) == (4 * numbers.trainable, 8 * numbers.trainable)


def test_embeddings_norms_and_output_layer_stay_as_saved() -> None:
    """Qwen2.5-7B: 2 × 152,064 × 3,584 embeddings, 28 blocks; their 233,046,016 linear weights are 4 bits each."""
    settings = Settings(peft_method="lora", quantization="nf4", bnb_4bit_use_double_quant=True)
    numbers = count_parameters(shape("qwen2.5-7b"), settings)
    linear = 28 * (2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18_944)
    frozen = 7_615_616_512 - linear
    expected = 2 * frozen + linear * (0.5 + 1 / 64 + 4 / 64 / 256) + 4 * numbers.trainable
    assert fixed_sizes(shape("qwen2.5-7b"), settings).weights == pytest.approx(expected, rel=1e-9)


def qwen(**values: Any) -> MemoryEstimate:
    settings = convert({
        "per_device_train_batch_size": 1, "per_device_eval_batch_size": 1, "max_length": 1024, "precision": "bf16",
        "optim": "adamw_torch_fused", "gradient_checkpointing": True, "peft_method": "lora", **values,
    }, Settings)  # fmt: skip
    return estimate(shape("qwen2.5-7b"), settings, Device(True, (8, 6), 24 * GIB))


def test_an_estimate_by_name_is_that_by_configuration() -> None:
    by_config = shape_from_config(known_configs()["qwen2.5-7b"], "any", "causal-lm")
    by_name = known_shape("Qwen/Qwen2.5-7B", "causal-lm")
    assert by_config is not None
    assert by_name is not None
    assert count_parameters(by_config, Settings()) == count_parameters(by_name, Settings())
    assert (by_config.weight_bytes, by_name.weight_bytes) == (2, 2)
    assert qwen().total_bytes / GIB == pytest.approx(17.4, abs=0.4)


def test_quantization_takes_a_7b_model_from_17_to_8_gib() -> None:
    assert qwen(quantization="int8").total_bytes / GIB == pytest.approx(11.3, abs=0.3)
    assert qwen(quantization="nf4", bnb_4bit_use_double_quant=True).total_bytes / GIB == pytest.approx(8.3, abs=0.3)


@pytest.mark.parametrize(
    ("model", "each"),
    [
        ("unsloth/Qwen2.5-7B-bnb-4bit", 0.516), ("unsloth/qwen2.5-7b-instruct-unsloth-bnb-4bit", 0.6),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", 0.52), ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", 0.52),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", 1.02), ("mlx-community/Qwen2.5-7B-4bit", 0.516),
        ("neuralmagic/Qwen2.5-7B-FP8", 1.0), ("org/Qwen2.5-7B-AQLM-2Bit-1x16", 0.27),
        ("Qwen/Qwen2.5-7B-Instruct", None), ("org/Qwen2.5-7B-awqward", None),
        ("/cache/qwen/Qwen2___5-7B-Instruct", None),
    ],
)  # fmt: skip
def test_a_name_says_that_the_weights_are_quantized(model: str, each: float | None) -> None:
    settings, plain = Settings(peft_method="lora"), shape("qwen2.5-7b")
    quantized = known_shape(model, "causal-lm")
    assert quantized is not None
    assert quantized.quantized_bytes == each
    linear = 28 * (2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18_944)
    saved = 0 if each is None else linear * (2 - each)
    assert fixed_sizes(plain, settings).weights - fixed_sizes(quantized, settings).weights == pytest.approx(saved)


@pytest.mark.parametrize(
    ("quantization", "each"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.52), ({"quant_method": "gptq", "bits": 8}, 1.02),
        ({"quant_method": "awq", "w_bit": 4}, 0.52), ({"quant_method": "unheard"}, None), ("nonsense", None),
    ],
)  # fmt: skip
def test_a_configuration_says_that_the_weights_are_quantized(quantization: Any, each: float | None) -> None:
    config = {**known_configs()["qwen2.5-7b"], "quantization_config": quantization}
    quantized = shape_from_config(config, "here", "causal-lm")
    assert quantized is not None
    assert quantized.quantized_bytes == each


def test_what_peft_prepares_has_embeddings_norms_and_output_layer_in_fp32() -> None:
    """2 bytes more for each of Qwen2.5-7B's weights that are not quantized, and the output layer's copy in 16 bit."""
    settings = Settings(precision="bf16", peft_method="lora", quantization="nf4")
    plain, prepared = (
        fixed_sizes(shape("qwen2.5-7b"), settings, code=TrainingCode(upcasts=on)) for on in (False, True)
    )
    linear = 28 * (2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18_944)
    assert prepared.weights - plain.weights == 2 * (7_615_616_512 - linear)
    assert prepared.copies - plain.copies == 2 * 152_064 * 3584
    unquantized = Settings(precision="bf16", peft_method="lora")
    same = (
        fixed_sizes(shape("qwen2.5-7b"), unquantized, code=TrainingCode(upcasts=on)).weights for on in (False, True)
    )
    assert len(set(same)) == 1


def test_each_adapter_on_16_bit_weights_keeps_a_copy_of_its_input_and_dropout_its_mask() -> None:
    """Qwen2.5-7B: 7 layers read 5 × 3,584 + 3,584 + 18,944 numbers; masks of one byte each."""
    dropped = [
        activation_bytes(shape("qwen2.5-7b"), Settings(precision="bf16", peft_method="lora", lora_dropout=share), GPU)
        for share in (0.0, 0.1)
    ]
    assert dropped[1].block - dropped[0].block == 128 * (6 * 3584 + 18_944)
    in_16_bit = TrainingCode(adapter_bytes=2)
    shared = activation_bytes(shape("qwen2.5-7b"), Settings(precision="bf16", peft_method="lora"), GPU, in_16_bit)
    assert dropped[0].block - shared.block == 128 * 2 * (5 - 2 + 1) * 3584


def test_layers_without_adapters_keep_neither_their_inputs_nor_adapters() -> None:
    """Without adapters on key, value, gate, up and down: 4 copies of 3,584 inputs, and the input of the last layer."""
    settings = Settings(precision="bf16", peft_method="lora", lora_r=8)
    every, some = (
        activation_bytes(shape("qwen2.5-7b"), settings, GPU, TrainingCode(adapted=roles)).block
        for roles in ((), ("query", "output"))
    )
    assert every - some == 128 * 2 * (4 * 3584 + 18_944 + 5 * 8)
    counted = count_parameters(shape("qwen2.5-7b"), settings, ("query", "output"))
    assert counted.trainable == 28 * 8 * 4 * 3584


def test_layers_trained_whole_are_copies_beside_the_model_of_an_adapter() -> None:
    """Two copies of the vocabulary of Llama 3.2 1B, 128,256 × 2,048: each with its gradient and Adam's two moments."""
    copied, whole = 2 * 128_256 * 2048, TrainingCode(whole_layers=2)
    lora = Settings(precision="bf16", peft_method="lora", weights_dtype="bf16")
    plain, more = (fixed_sizes(shape("llama-3.2-1b"), lora, code=code) for code in (BUILT_IN, whole))
    assert more.weights - plain.weights == more.gradients - plain.gradients == 4 * copied
    assert more.states - plain.states == 8 * copied
    full = Settings(precision="bf16")
    assert fixed_sizes(shape("llama-3.2-1b"), full, code=whole) == fixed_sizes(shape("llama-3.2-1b"), full)


def test_4_bit_layers_of_older_bitsandbytes_keep_their_inputs() -> None:
    """The two normalised tensors of 3,584 numbers and the last layer's input, besides the copies for the adapters."""
    settings = Settings(precision="bf16", peft_method="lora", quantization="nf4")
    plain, older = (
        activation_bytes(shape("qwen2.5-7b"), settings, GPU, TrainingCode(keeps_inputs=keeps)).block
        for keeps in (False, True)
    )
    assert older - plain == 128 * 2 * (2 * 3584 + 18_944)
    uncertainties = [
        estimate(
            shape("qwen2.5-7b"), settings, GPU, code=TrainingCode(keeps_inputs=True, uncertainty=share)
        ).uncertainty
        for share in (0.05, 0.22)
    ]
    assert uncertainties == [training_code("older bitsandbytes").uncertainty, 0.22]


def test_a_loop_that_holds_its_graph_keeps_the_inputs_of_two_micro_batches() -> None:
    """Those of each block's attention, its output, its MLP and the MLP's last layer, up to the next loss."""
    settings = Settings(precision="bf16", peft_method="lora", quantization="nf4")
    size = shape("qwen2.5-7b")
    held = activation_bytes(size, settings, GPU, TrainingCode(keeps_inputs=True, holds_graph=True)).held
    assert held == 28 * 128 * 2 * (2 * 3584 + 28 * 128 + 18_944)
    for variant in (TrainingCode(keeps_inputs=True), TrainingCode(holds_graph=True)):
        assert activation_bytes(size, settings, GPU, variant).held == 0
    checkpointed = settings.changed(gradient_checkpointing=True)
    assert activation_bytes(size, checkpointed, GPU, TrainingCode(keeps_inputs=True, holds_graph=True)).held == 0


def test_litgpt_quantizes_the_output_layer_and_has_more_embeddings() -> None:
    settings = Settings(precision="bf16", peft_method="lora", quantization="nf4")
    size, matrix = shape("qwen2.5-7b"), 152_064 * 3584
    plain, quantized, more = (
        fixed_sizes(size, settings, code=code).weights
        for code in (TrainingCode(), TrainingCode(quantizes_output=True), TrainingCode(more_embeddings=2))
    )
    assert plain - quantized == matrix * (2 - (1 / 2 + 4 / 64))
    assert more - plain == 2 * 2 * matrix


def test_litgpt_ties_no_output_layer() -> None:
    settings = Settings(peft_method="lora", weights_dtype="bf16", optim="adamw_torch_fused")
    tied, untied = (
        min(
            phase.weights for phase in memory_phases(shape("llama-3.2-1b"), settings, GPU, code=TrainingCode(unties=on))
        )
        for on in (False, True)
    )
    assert untied - tied == 2 * 128_256 * 2048
