"""The shapes known by name or read from a `config.json`, held against the models that Transformers builds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import convert

from tests.gpu.cases import CAUSAL, CONFIGS, FAMILIES, Case
from tests.late_module import one_worker, skip_without
from tests.memory.ground_truth import shape_of
from tuner_tui.core.files import read_data_file
from tuner_tui.memory.device import Device
from tuner_tui.memory.estimate import NEAREST_FAMILY_UNCERTAINTY, estimate
from tuner_tui.memory.job_task import unknown_task, usual_task
from tuner_tui.memory.known_shapes import known_shape, shape_from_config
from tuner_tui.memory.model_config import BUILT_IN_FILE, hub_cache
from tuner_tui.memory.parameter_counts import count_parameters
from tuner_tui.settings.job import Task
from tuner_tui.settings.model import Settings

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 100,
    "intermediate_size": 128, "max_position_embeddings": 256, "torch_dtype": "bfloat16",
}  # fmt: skip
DROPOUT = read_data_file(Path(__file__).with_name("dropout.yaml"))["dropout"]
OTHER_TASK = {"small-roberta", "other-bert", "other-modernbert"}
MODELS = [
    *((name, task, "none") for name, tasks in read_data_file(BUILT_IN_FILE).items() for task in tasks),
    *((name, "classification" if name in OTHER_TASK else "causal-lm", "none") for name in CONFIGS),
    ("tiny", "classification", "lora"), ("tiny", "causal-lm", "dora"), ("gpt2", "causal-lm", "lora"),
    ("bert-base", "classification", "dora"), ("small-roberta", "classification", "lora"),
]  # fmt: skip


@one_worker
@pytest.mark.parametrize(("model", "task", "adapter"), MODELS)
def test_parameters_are_those_of_the_model_itself(model: str, task: str, adapter: str) -> None:
    skip_without("transformers")
    import torch

    from tests.gpu.measure_memory import build_model, quiet
    from tuner_tui.trainer.job_file import JobArguments

    case = Case(model, task, adapter=adapter)
    with quiet(), torch.device("meta"):
        built = build_model(case, JobArguments(task=task, peft_method=adapter))
    counted = count_parameters(shape_of(case), convert({"peft_method": adapter}, Settings))
    total = sum(parameter.numel() for parameter in built.parameters())
    trained = sum(parameter.numel() for parameter in built.parameters() if parameter.requires_grad)
    assert counted.total == pytest.approx(total, rel=1e-3)
    assert counted.trainable == pytest.approx(trained, rel=2e-3)


def test_a_folder_with_a_configuration_is_enough(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    shape = known_shape(str(tmp_path), "causal-lm")
    assert shape is not None
    assert (shape.layers, shape.kv_heads, shape.head_dim, shape.weight_bytes, shape.tied) == (3, 4, 16, 2, False)


def test_a_hub_model_is_found_where_it_was_downloaded_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--org--name" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA))
    assert known_shape("org/name", "causal-lm") is not None
    assert known_shape("org/other", "causal-lm") is None


def test_the_hub_cache_follows_its_variables() -> None:
    assert hub_cache({"HF_HUB_CACHE": "/a"}) == Path("/a")
    assert hub_cache({"HF_HOME": "/b"}) == Path("/b/hub")
    assert hub_cache({"XDG_CACHE_HOME": "/c"}) == Path("/c/huggingface/hub")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"model_type": "bert"}', '{"model_type": "mamba", "hidden_size": 8}'])
def test_what_has_no_closed_form_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert known_shape(str(tmp_path), "causal-lm") is None


@pytest.mark.parametrize("wrong", [{"num_attention_heads": 0}, {"hidden_size": "wide"}, {"vocab_size": None}])
def test_a_torn_configuration_is_none(wrong: dict[str, object]) -> None:
    assert shape_from_config({**LLAMA, **wrong}, "m", "causal-lm") is None


@pytest.mark.parametrize("model", ["gemma2", "phi3", "olmo", "falcon", "opt", "gpt_neox", "electra"])
def test_another_architecture_is_given_the_nearest_family_and_says_so(model: str) -> None:
    shape = shape_from_config(FAMILIES[model], model, "causal-lm" if model in CAUSAL else "classification")
    assert shape is not None
    assert shape.approximates == model
    estimated = estimate(shape, Settings(), Device(False))
    assert estimated.uncertainty >= NEAREST_FAMILY_UNCERTAINTY
    assert f"used for {model}" in estimated.rests_on


def test_deberta_is_counted_where_its_attention_is_that_of_version_3() -> None:
    config = FAMILIES["deberta-v2"]
    shape = shape_from_config(config, "m", "classification")
    assert shape is not None
    assert (shape.family, shape.relative, shape.approximates) == ("bert", True, "")
    for variant in ({"conv_kernel_size": 3}, {"share_att_key": False}, {"position_buckets": 128}):
        assert shape_from_config({**config, **variant}, "m", "classification") is None


@pytest.mark.parametrize(
    ("config", "task"),
    [
        ({"model_type": "vit"}, "image-classification"),
        ({"model_type": "vit", "architectures": ["ViTForImageClassification"]}, "image-classification"),
        ({"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"]}, "speech-to-text"),
        ({"model_type": "mt5"}, "seq2seq"),
        ({"model_type": "bart", "architectures": ["BartForSequenceClassification"]}, "classification"),
        ({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}, "causal-lm"),
        ({"model_type": "new", "architectures": ["NewForCausalLM"]}, "causal-lm"),
        ({"model_type": "deberta-v2", "architectures": ["DebertaV2ForMaskedLM"]}, "classification"),
        ({"model_type": "videomae", "architectures": ["VideoMAEForVideoClassification"]}, None),
        ({"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"]}, None),
        ({}, None),
    ],
)
def test_what_a_model_is_usually_trained_for(config: dict[str, object], task: Task | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert usual_task(str(tmp_path)) == task


def test_a_name_that_is_not_known_has_no_task() -> None:
    assert [usual_task(name) for name in ("org/new-7b", "org/new-base", "")] == [None, None, None]
    assert "hf download org/new-7b" in unknown_task("org/new-7b")
    assert "hf download" not in unknown_task("mynet")  # a name of the user's own
    assert "hf download" not in unknown_task("llama3/original")  # a folder of torchtune's downloads
    assert "hf download" in unknown_task("org/original-7b")


@pytest.mark.parametrize("model", ["mixtral", "qwen3_moe", "mamba", "albert", "t5"])
def test_what_is_near_to_no_family_has_no_shape(model: str) -> None:
    assert shape_from_config(FAMILIES[model], model, "causal-lm") is None


@pytest.mark.parametrize(("config", "task", "dropouts"), DROPOUT)
def test_dropout_that_no_configuration_names_is_the_family_s(
    config: dict[str, object], task: Task, dropouts: list[float]
) -> None:
    """The defaults of the configuration classes of Transformers."""
    sizes = {
        "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 100,
        "intermediate_size": 128, "max_position_embeddings": 256,
    }  # fmt: skip
    shape = shape_from_config({**sizes, **config}, "m", task)
    assert shape is not None
    assert [shape.attention_dropout, shape.hidden_dropout] == dropouts


SIZES = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
         "vocab_size": 8192, "max_position_embeddings": 512}  # fmt: skip


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "vit", "image_size": 224},
        {"model_type": "beit", "patch_size": 16},
        {"model_type": "imagegpt", "architectures": ["ImageGPTForCausalImageModeling"]},
        {"model_type": "bart", "is_encoder_decoder": True},
        {"model_type": "llama", "architectures": ["LlavaForConditionalGeneration"]},
    ],
)
@pytest.mark.parametrize("task", ["classification", "causal-lm"])
def test_images_sound_and_sequence_to_sequence_have_no_shape(config: dict[str, object], task: Task) -> None:
    assert shape_from_config({**SIZES, **config}, "any", task) is None


@pytest.mark.parametrize("model", ["facebook/wav2vec2-xls-r-300m", "google-t5/t5-3b", "Qwen/Qwen2-VL-2B-Instruct"])
def test_nor_has_a_name_of_theirs_that_says_a_size(model: str) -> None:
    assert known_shape(model, "causal-lm") is None
