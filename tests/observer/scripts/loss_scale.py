"""Gradient norms of tiny models, the same samples as one batch and as four added up; beside what the observer says."""

import importlib
import json
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import SequentialSampler
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

sys.path.insert(0, sys.argv[1])
ignores_accumulation = importlib.import_module("_tuner_observer.hooks.transformers_trainer").ignores_accumulation

ENCODER = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
           "intermediate_size": 16, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # fmt: skip
GPT = GPT2Config(
    n_embd=16, n_layer=1, n_head=2, vocab_size=60, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, pad_token_id=0
)
DISTIL = DistilBertConfig(dim=16, n_layers=1, n_heads=2, hidden_dim=16, vocab_size=60, dropout=0.0,
                          attention_dropout=0.0, seq_classif_dropout=0.0)  # fmt: skip


def own_loss(outputs: dict[str, torch.Tensor], labels: torch.Tensor, num_items_in_batch: torch.Tensor) -> torch.Tensor:
    return cross_entropy(outputs["logits"], labels, reduction="sum") / num_items_in_batch


class InOrder(Trainer):
    """Every sample in its place, however the batches are cut."""

    def _get_train_sampler(self, *_: object, **__: object) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)


class OwnLoss(InOrder):
    """Replaces the loss, and with it the division by the number of samples of a step."""

    def compute_loss(self, model: PreTrainedModel, inputs: dict[str, torch.Tensor], **_: object) -> torch.Tensor:
        return cross_entropy(model(**inputs).logits, inputs["labels"])


class Asks(TrainerCallback):
    """Asks as the observer does, from a callback."""

    answer: bool | None = None

    def on_train_begin(self, *_: object, model: PreTrainedModel, **__: object) -> None:
        self.answer = ignores_accumulation(model)


def grad_norm(
    build: Callable[[], PreTrainedModel], micro: int, asks: Asks, kind: type[Trainer] = InOrder, **more: object
) -> float:
    """Of the first step over eight samples."""
    torch.manual_seed(0)
    model = build()
    words = torch.randint(5, 50, (8, 8), generator=torch.Generator().manual_seed(1))
    language = "LMHead" in type(model).__name__
    samples = [
        {"input_ids": ids, "labels": ids if language else torch.tensor(number % 2)} for number, ids in enumerate(words)
    ]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=micro, gradient_accumulation_steps=8 // micro, max_steps=1,
            logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        trainer = kind(model, arguments, train_dataset=samples, callbacks=[asks], **more)
        trainer.train()
    return float(trainer.state.log_history[0]["grad_norm"])


CASES: dict[str, tuple[Callable[[], PreTrainedModel], dict[str, Any]]] = {
    "bert": (lambda: BertForSequenceClassification(BertConfig(**ENCODER)), {}),
    "bert, own loss": (
        lambda: BertForSequenceClassification(BertConfig(**ENCODER)),
        {"compute_loss_func": own_loss},
    ),
    "bert, own compute_loss": (lambda: BertForSequenceClassification(BertConfig(**ENCODER)), {"kind": OwnLoss}),
    "roberta": (lambda: RobertaForSequenceClassification(RobertaConfig(**ENCODER, pad_token_id=1)), {}),
    "distilbert": (lambda: DistilBertForSequenceClassification(DISTIL), {}),
    "gpt2": (lambda: GPT2ForSequenceClassification(GPT), {}),
    "gpt2 language model": (lambda: GPT2LMHeadModel(GPT), {}),
}
results = {}
for name, (build, more) in CASES.items():
    asks = Asks()
    whole, cut = grad_norm(build, 8, asks, **more), grad_norm(build, 2, asks, **more)
    results[name] = [asks.answer, cut / whole]
print(json.dumps(results))
