"""Hugging Face Trainer with a dataset of its own columns. Arguments: a folder, then `evaluation=WORD`.

The evaluation is `well`, `large` (it runs out of memory) or `wrong` (its batch cannot be evaluated).
"""

import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, DataCollatorWithPadding, Trainer, TrainingArguments

LENGTHS = [4 + index % 5 for index in range(64)]
LENGTHS[40] = 15


class Padding(DataCollatorWithPadding):
    """Without a tokenizer, for there is nothing to tokenise."""

    def __init__(self) -> None:
        return

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        longest = max(len(feature["input_ids"]) for feature in features)
        print("longest", longest, flush=True)
        ids = [feature["input_ids"] + [0] * (longest - len(feature["input_ids"])) for feature in features]
        labels = [feature["labels"] for feature in features]
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(labels)}


class Evaluating(Trainer):
    """A Trainer whose evaluation goes as asked."""

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        if "evaluation=large" in sys.argv:
            raise RuntimeError("CUDA out of memory. Tried to allocate 9.00 GiB.")
        if "evaluation=wrong" in sys.argv:
            raise KeyError("labels")
        return super().prediction_step(*args, **kwargs)


def main() -> None:
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForSequenceClassification(BertConfig(vocab_size=64, max_position_embeddings=16, **shape))
    rows = [{"input_ids": [5] * length, "labels": index % 2} for index, length in enumerate(LENGTHS)]
    arguments = TrainingArguments(
        sys.argv[1], per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=1, eval_steps=1,
        eval_strategy="steps", save_strategy="steps", save_steps=1, report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    data = Dataset.from_list(rows)
    trainer = Evaluating(model, arguments, train_dataset=data, eval_dataset=data, data_collator=Padding())
    trainer.train()
    trainer.save_model(str(Path(sys.argv[1], "final")))


if __name__ == "__main__":
    main()
