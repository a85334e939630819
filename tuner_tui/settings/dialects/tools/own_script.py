"""The user's own YAML, JSON or TOML file, read by the user's own script: keys are found by what they end with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner_tui.settings.dialects.dialect import LIGHTNING_WORDS, Dialect
from tuner_tui.settings.dialects.script_search import find_script, read_source
from tuner_tui.settings.dialects.tools import hydra

READS = r"\b(?:safe_load|full_load|yaml\.load|OmegaConf\.load|YAML|json\.loads?|tomllib\.loads?|toml\.load)\("
OPTION = re.compile(r"[\"'](--[\w-]*(?:config|cfg|yaml|conf|params|hparams)[\w-]*)[\"']")
READS_AND_TRAINS = (
    rf"(?s)\A(?=.*(?:{READS}|{OPTION.pattern}))(?=.*(?:\.backward\(|\b\w*Trainer\(|\.fit\(|\b(?:def|import) train)).*\w"
)
"""The source of a script that reads a file of settings, or has an option for one, and trains."""
TAKES_WORDS = re.compile(
    r"sys\.argv|parse_args|parse_known_args|@click\.|@app\.command|typer\.run|fire\.Fire|tyro\.cli"
)


def choose_command(values: Mapping[str, Any], path: Path) -> str:
    """The script near the file that reads settings and trains, with its option for the file if it has one.

    A script without a command line opens the file by a path of its own: the file is no argument then.
    """
    script = find_script(path, READS_AND_TRAINS)
    if script is None:
        return DIALECT.command
    source = read_source(script)
    option = OPTION.search(source)
    words = f"python {shlex.quote(str(script))}"
    if option is not None:
        return f"{words} {option[1]} {{config}}"
    return f"{words} {{config}}" if TAKES_WORDS.search(source) else words


DIALECT = Dialect(
    name="own-script",
    tool="Your script",
    command="python {script} --config {config}",
    names=hydra.DIALECT.names,
    values={
        "max_steps": {None: {"trainer.max_steps": -1}},
        "dataloader_prefetch_factor": {None: {}},
        "quantization": hydra.DIALECT.values["quantization"],
    },
    read_as={"trainer.precision": LIGHTNING_WORDS},
    also_read={
        "precision": tuple(
            ({key: on}, value if on else "fp32")
            for on in (False, True)  # a switch that is on counts before others that are off
            for key, value in (("bf16", "bf16"), ("fp16", "fp16"), ("amp", "fp16"), ("use_amp", "fp16"))
        ),
    },
    whole=hydra.DIALECT.whole,
    extends_hf=False,
    nested=True,
    leaves={
        **hydra.DIALECT.leaves,
        "data.batch_size": (*hydra.DIALECT.leaves["data.batch_size"], "bs", "train.bs"),
        "data.num_workers": (*hydra.DIALECT.leaves["data.num_workers"], "workers", "n_workers"),
        "model.optimizer.lr": (*hydra.DIALECT.leaves["model.optimizer.lr"], "base_lr", "init_lr"),
        "seed": ("seed", "random_seed", "manual_seed"),
        **{key: (key,) for key in ("bf16", "fp16", "amp", "use_amp")},
    },
    takes_more=lambda _file, _section: False,
    choose_command=choose_command,
    model_keys=("pretrained_model_name_or_path", "pretrained_model"),
    data_keys=(
        "dataset_name",
        "dataset.name",
        "data.dataset",
        "dataset",
        "data.name",
        "data_path",
        "data.path",
        "data_dir",
    ),
)
