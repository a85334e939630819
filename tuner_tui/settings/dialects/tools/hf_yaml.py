"""`TrainingArguments` in YAML or JSON: flat, as `HfArgumentParser` reads them, or in sections of the user's own."""

from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.dialect import Dialect
from tuner_tui.settings.fields import FIELDS

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

SECTION_NAMES: dict[str, tuple[str, ...]] = {
    "max_length": ("max_length", "max_seq_length", "cutoff_len"),
    "lora_r": ("lora_r", "peft_config.r", "lora.r"),
}

SECTIONS_DIALECT = Dialect(
    name="hf-sections",
    tool="Hugging Face Trainer",
    command="python {script} {config}",
    names={name: name for name in SECTION_NAMES},
    nested=True,
    leaves={**{spelling: (spelling,) for name in FIELDS for spelling in hf.argument_names(name)}, **SECTION_NAMES},
    model_keys=("model_name_or_path", "model.model_name_or_path", "model.name", "model_name", "model"),
)
