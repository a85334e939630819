"""A Hugging Face script that was written without any tuner in mind: `hf_script.py OUTPUT`."""

import sys
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Samples(torch.utils.data.Dataset):
    """Two hundred samples of ten tokens."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.arange(index % 7, index % 7 + 10), "labels": torch.tensor(index % 2)}


def main() -> None:
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForSequenceClassification(BertConfig(vocab_size=64, max_position_embeddings=16, **shape))
    arguments = TrainingArguments(
        sys.argv[1], per_device_train_batch_size=6, gradient_accumulation_steps=2, report_to="none", use_cpu=True,
        disable_tqdm=True, eval_strategy="epoch",
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=Samples(), eval_dataset=Samples())
    trainer.train()
    trainer.save_model(str(Path(sys.argv[1], "final")))


if __name__ == "__main__":
    main()
