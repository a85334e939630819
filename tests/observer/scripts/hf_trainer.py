"""Hugging Face Trainer on a tiny BERT, no download. Arguments: a folder, then `resume`, `order=WORD`."""

import os
import sys
from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class Samples(torch.utils.data.Dataset):
    """Forty samples of twelve tokens, of which up to four are padding."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        mask = torch.ones(12, dtype=torch.long)
        mask[12 - index % 5 :] = 0
        ids = torch.randint(5, 50, (12,), generator=generator)
        return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor(index % 2)}


class Orders(TrainerCallback):
    """Writes an order into the control file, as a person at the screen does while the training runs."""

    def __init__(self, word: str) -> None:
        self.word = word

    def on_train_begin(self, *_: object, **__: object) -> None:
        Path(os.environ["TUNER_RUN_DIR"], "control").write_text(self.word + "\n")


class Arguments(TrainingArguments):
    """As TRL and others do it: a subclass that looks at its fields before it calls up."""

    def __post_init__(self) -> None:
        self.weight_decay_seen_early = self.weight_decay
        super().__post_init__()


def main() -> None:
    set_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForSequenceClassification(BertConfig(vocab_size=64, max_position_embeddings=16, **shape))
    arguments = Arguments(
        sys.argv[1],
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=5,  # the last step of an epoch: the next batches are fetched before `train()` is called
        save_steps=5,
        report_to="none",
        use_cpu="any device" not in sys.argv,
        disable_tqdm=True,
    )
    orders = [Orders(each.partition("=")[2]) for each in sys.argv if each.startswith("order=")]
    trainer = Trainer(model, arguments, train_dataset=Samples(), eval_dataset=Samples(), callbacks=orders)
    trainer.train(resume_from_checkpoint="resume" in sys.argv)
    for line in trainer.state.log_history:
        if "loss" in line:
            print("loss", float(line["loss"]).hex())
    print("weight decay", arguments.weight_decay_seen_early, arguments.weight_decay)


if __name__ == "__main__":
    main()
