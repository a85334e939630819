"""Lightning 2.6, `LightningCLI`: jsonargparse's YAML of trainer, model, data and optimizer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner_tui.settings.dialects.dialect import LIGHTNING_WORDS, Dialect, lightning_precision
from tuner_tui.settings.dialects.script_search import console_script, find_script, find_scripts, read_source


def choose_command(_values: Mapping[str, Any], path: Path) -> str:
    """The program of the project that has the CLI, else the script that makes it; without subcommands if it says so."""
    program = console_script(find_scripts(path, CLI))
    if program is not None:
        return f"{program} fit --config {{config}}"
    script = find_script(path, CLI)
    if script is None:
        return DIALECT.command
    runs = not re.search(r"\brun\s*=\s*False", read_source(script))
    return f"python {shlex.quote(str(script))} {'fit ' if runs else ''}--config {{config}}"


CLI = r"LightningCLI[()]"
"""A call or a subclass of Lightning's command line."""

DIALECT = Dialect(
    name="lightning",
    tool="Lightning",
    command="python {script} fit --config {config}",
    names={
        "precision": "trainer.precision",
        "per_device_train_batch_size": "data.init_args.batch_size",
        "gradient_accumulation_steps": "trainer.accumulate_grad_batches",
        "learning_rate": "optimizer.init_args.lr",
        "weight_decay": "optimizer.init_args.weight_decay",
        "max_grad_norm": "trainer.gradient_clip_val",
        "num_train_epochs": "trainer.max_epochs",
        "max_steps": "trainer.max_steps",
        "max_length": "data.init_args.max_length",
        "dataloader_num_workers": "data.init_args.num_workers",
        "dataloader_pin_memory": "data.init_args.pin_memory",
        "dataloader_persistent_workers": "data.init_args.persistent_workers",
        "logging_steps": "trainer.log_every_n_steps",
        "seed": "seed_everything",
    },
    values={
        "precision": lightning_precision("trainer.precision"),
        "max_steps": {None: {"trainer.max_steps": -1}},
    },
    read_as={"trainer.precision": LIGHTNING_WORDS},
    whole=frozenset({"num_train_epochs"}),
    extends_hf=False,
    nested=True,
    # A class that the script fixes has no `init_args`; some modules and data modules have other names for the same.
    leaves={
        "data.init_args.batch_size": ("data.batch_size", "batch_size", "train_batch_size"),
        "optimizer.init_args.lr": ("optimizer.lr", "lr", "learning_rate"),
        "optimizer.init_args.weight_decay": ("optimizer.weight_decay", "weight_decay"),
        "data.init_args.max_length": ("data.max_length", "max_length", "max_seq_length"),
        "data.init_args.num_workers": ("data.num_workers", "num_workers"),
        "data.init_args.pin_memory": ("data.pin_memory", "pin_memory"),
        "data.init_args.persistent_workers": ("data.persistent_workers", "persistent_workers"),
        # `--config` of all subcommands has a section for each.
        **{key: (f"fit.{key}",) for key in (
            "trainer.accumulate_grad_batches", "trainer.gradient_clip_val", "trainer.max_epochs", "trainer.max_steps",
            "trainer.log_every_n_steps", "trainer.precision", "seed_everything",
        )},
    },
    file_keys=frozenset({
        "seed_everything", "trainer.max_epochs", "trainer.max_steps", "trainer.accelerator", "trainer.devices",
        "trainer.precision", "trainer.callbacks", "trainer.strategy", "trainer.logger.class_path",
        "model.class_path", "data.class_path", "optimizer.class_path", "lr_scheduler.class_path", "ckpt_path",
        "fit.trainer.max_epochs", "fit.trainer.accelerator", "fit.model.class_path", "fit.seed_everything",
    }),
    choose_command=choose_command,
    users_sections=("data.", "model.", "optimizer."),
    model_keys=("model.init_args.model_name_or_path", "model.init_args.model_name", "model.model_name_or_path"),
    data_keys=("data.class_path", "data.init_args.dataset_name"),
)  # fmt: skip
