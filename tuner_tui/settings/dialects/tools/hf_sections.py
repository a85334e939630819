"""`TrainingArguments` in sections of a file that the user's own script reads, such as `training_args:`."""

from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.dialect import Dialect
from tuner_tui.settings.fields import FIELDS

NAMES: dict[str, tuple[str, ...]] = {
    "max_length": ("max_length", "max_seq_length", "cutoff_len"),
    "lora_r": ("lora_r", "peft_config.r", "lora.r"),
}

DIALECT = Dialect(
    name="hf-sections",
    tool="Hugging Face Trainer",
    command="python {script} {config}",
    names={name: name for name in NAMES},
    nested=True,
    leaves={**{spelling: (spelling,) for name in FIELDS for spelling in hf.argument_names(name)}, **NAMES},
    model_keys=("model_name_or_path", "model.model_name_or_path", "model.name", "model_name", "model"),
)
