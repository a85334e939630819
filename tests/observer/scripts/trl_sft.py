"""TRL's supervised fine-tuning of a tiny Llama: padded, then packed. Arguments: a folder, and settings as JSON."""

import json
import sys

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig, SFTTrainer

WORDS = ["<pad>", "<eos>", "<unk>", *(f"w{index}" for index in range(40))]


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


def main() -> None:
    set_seed(0)
    texts = [{"text": " ".join(f"w{(row * 7 + at) % 40}" for at in range(4 + row % 6))} for row in range(24)]
    for packing in (False, True):
        shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        model = LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), max_position_embeddings=64, **shape))
        arguments = SFTConfig(
            output_dir=sys.argv[1],
            per_device_train_batch_size=4,
            max_steps=3,
            packing=packing,
            packing_strategy="wrapped",
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            **{"max_length": 16, **(json.loads(sys.argv[2]) if sys.argv[2:] else {})},
        )
        trainer = SFTTrainer(
            model, args=arguments, train_dataset=Dataset.from_list(texts), processing_class=tokenizer()
        )
        arguments.max_grad_norm = 0.5
        trainer.train()
        print("weight decay", arguments.weight_decay)
        print(*(f"loss {entry['loss']!r} {entry['grad_norm']!r}" for entry in trainer.state.log_history[:-1]), sep="\n")


if __name__ == "__main__":
    main()
