"""`TrainingArguments` in YAML or JSON, as `HfArgumentParser` of the user's script reads them."""

from tuner_tui.settings.dialects.dialect import Dialect

DIALECT = Dialect(
    name="hf",
    tool="Hugging Face Trainer",
    command="python {script} {config}",
    names={},
    script_marker=r"\.parse_(yaml|json)_file\(",
    file_keys=frozenset({
        "dataset_config_name", "task_name", "train_file", "validation_file", "block_size", "max_train_samples",
        "tokenizer_name", "config_name",
    }),
)  # fmt: skip
