"""Adapters on models whose classifiers are built in different ways."""

from __future__ import annotations

from typing import Any

import pytest

from tests.late_module import late_module
from tuner_tui.trainer.job_file import JobArguments

transformers, models = late_module("transformers"), late_module("tuner_tui.trainer.models")
pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),  # peft asks for it
]
SMALL = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BART = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
MODELS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "Bert": (SMALL, ["classifier"]),
    "Roberta": (SMALL, ["classifier"]),
    "DistilBert": ({"vocab_size": 64, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16},
                   ["pre_classifier", "classifier"]),
    "Bart": ({"vocab_size": 64, "d_model": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2, **BART},
             ["classification_head"]),
    "Llama": ({**SMALL, "pad_token_id": 0}, ["score"]),
}  # fmt: skip


@pytest.mark.parametrize("family", MODELS)
def test_the_head_trains_in_full_and_all_else_by_adapters(family: str) -> None:
    shape, heads = MODELS[family]
    config = getattr(transformers, f"{family}Config")(**shape)
    model = getattr(transformers, f"{family}ForSequenceClassification")(config)
    assert models.find_heads(model) == heads
    job = JobArguments(task="classification", peft_method="lora", lora_r=2)
    adapted = models.add_adapters(model, job, checkpointing=False)
    trained = [name for name, weight in adapted.named_parameters() if weight.requires_grad]
    in_full = {name for name in trained if "lora" not in name}
    assert {name.split(".modules_to_save.")[0].removeprefix("base_model.model.") for name in in_full} == set(heads)
    assert any("lora" in name for name in trained)
    assert not any("lora" in name and head in name for name in trained for head in heads)
