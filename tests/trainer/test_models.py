"""A real 16-bit checkpoint, loaded in full, under adapters and quantized: dtypes, and the bytes of the estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from tests.late_module import late_module, skip_without
from tuner_tui.memory.fixed_memory import fixed_sizes
from tuner_tui.memory.known_shapes import known_shape
from tuner_tui.settings.model import Settings
from tuner_tui.trainer.job_file import JobArguments, JobError

skip_without("peft")
torch, transformers = late_module("torch"), late_module("transformers")
built_in, models = late_module("tuner_tui.trainer.built_in"), late_module("tuner_tui.trainer.models")
training = late_module("tuner_tui.trainer.training")

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]
BF16, FP16, FP32 = "bfloat16", "float16", "float32"


@pytest.fixture(scope="module", params=[BF16, FP16])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A checkpoint of a small Llama with an output layer of its own, and its 16-bit type."""
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = built_in.shape_tokenizer()
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=384, pad_token_id=tokenizer.pad_token_id, tie_word_embeddings=False,
    )  # fmt: skip
    transformers.AutoModelForCausalLM.from_config(config).to(getattr(torch, request.param)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, request.param


def load(folder: Path, precision: str = "bf16", classes: list[str] | None = None, **values: Any) -> Any:
    """The job's model with its adapters."""
    task = "causal-lm" if classes is None else "classification"
    job = JobArguments(task=task, model=str(folder), **values)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return models.add_adapters(models.load_model(job, tokenizer, classes, precision), job, False)


def dtypes(model: Any, trained: bool) -> set[str]:
    return {dtype_name(parameter) for parameter in model.parameters() if parameter.requires_grad is trained}


def dtype_name(parameter: Any) -> str:
    return str(parameter.dtype).removeprefix("torch.")


@pytest.mark.parametrize(
    ("values", "trained", "frozen"),
    [
        ({}, FP32, None), ({"weights_dtype": "saved"}, "saved", None), ({"weights_dtype": "bf16"}, BF16, None),
        ({"peft_method": "lora"}, FP32, "saved"), ({"peft_method": "dora"}, FP32, "saved"),
        ({"peft_method": "lora", "weights_dtype": "fp32"}, FP32, FP32),
    ],
)  # fmt: skip
def test_what_trains_is_fp32_and_what_is_frozen_is_as_saved(
    saved: tuple[Path, str], values: dict[str, Any], trained: Any, frozen: Any
) -> None:
    folder, kind = saved
    model = load(folder, **values)
    assert dtypes(model, True) == {kind if trained == "saved" else trained}
    assert dtypes(model, False) == (set() if frozen is None else {kind if frozen == "saved" else frozen})


def test_a_frozen_base_is_fp16_where_the_gpu_has_no_bf16(saved: tuple[Path, str]) -> None:
    folder, _ = saved
    assert dtypes(load(folder, "fp16", peft_method="lora"), False) == {FP16}
    assert dtypes(load(folder, "fp16"), True) == {FP32}


@pytest.mark.parametrize("autocast", [False, True])
def test_a_head_trains_in_fp32_on_16_bit_weights(saved: tuple[Path, str], autocast: bool) -> None:
    model = load(saved[0], classes=["a", "b", "c"], peft_method="lora")
    assert dtypes(model, True) == {FP32}
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        outputs = model(input_ids=torch.ones(2, 8, dtype=torch.int64))
    outputs["logits"].float().sum().backward()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert all(parameter.grad is not None and dtype_name(parameter.grad) == FP32 for parameter in trained)


def test_16_bit_weights_do_not_reach_the_loss_scaler(saved: tuple[Path, str]) -> None:
    folder, _ = saved
    job = JobArguments(task="causal-lm", model=str(folder), weights_dtype="saved")
    with pytest.raises(JobError, match=r"weights_dtype saved trains .* the fp16 loss scaler does not support"):
        training.refuse_16_bit_gradients(job, load(folder, "fp16", weights_dtype="saved"))
    training.refuse_16_bit_gradients(job, load(folder, "fp16"))
    training.refuse_16_bit_gradients(job, load(folder, "fp16", peft_method="lora"))


@pytest.mark.parametrize(
    "values",
    [
        {"quantization": "nf4"}, {"quantization": "fp4"}, {"quantization": "int8"}, {"quantization": "none"},
        {"quantization": "nf4", "bnb_4bit_use_double_quant": True},
    ],
    ids=lambda values: " ".join(map(str, values.values())),
)  # fmt: skip
def test_quantized_weights_train_an_adapter_and_take_what_is_estimated(
    saved: tuple[Path, str], values: dict[str, Any]
) -> None:
    """Counted in the loaded model: weights and the scales beside them, without lookup tables of a few KiB."""
    pytest.importorskip("bitsandbytes")
    folder, kind = saved
    model = load(folder, peft_method="lora", **values)
    assert models.count_parameters(model)[0] == sum(
        parameter.numel() for parameter in load(folder, peft_method="lora").parameters()
    )  # fmt: skip
    model(input_ids=torch.ones(1, 8, dtype=torch.int64), labels=torch.ones(1, 8, dtype=torch.int64))["loss"].backward()
    assert dtypes(model, True) == {FP32}
    assert {dtype_name(model.get_output_embeddings().weight), dtype_name(model.get_input_embeddings().weight)} == {kind}
    shape = known_shape(str(folder), "causal-lm")
    assert shape is not None
    expected = fixed_sizes(shape, convert({"peft_method": "lora", **values}, Settings)).weights
    assert sum(map(stored_bytes, model.parameters())) == pytest.approx(expected, rel=0.01)


def stored_bytes(parameter: Any) -> int:
    """Bytes of a parameter and its scales."""
    total = int(parameter.nbytes)
    state = getattr(parameter, "quant_state", None)
    if state is not None:
        total += state.absmax.nbytes + (state.state2.absmax.nbytes if state.nested else 0)
    scales = getattr(parameter, "SCB", None)
    return total + (0 if scales is None else scales.nbytes)
