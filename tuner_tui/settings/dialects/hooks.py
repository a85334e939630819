"""What `tools.yaml` cannot say of single tools: commands, keys that depend on several settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from tuner_tui.settings.dialects import hf
from tuner_tui.settings.dialects.python_source import is_started
from tuner_tui.settings.dialects.script_search import (
    TRAINING,
    console_script,
    find_script,
    find_scripts,
    named_for_training,
    names_file,
    names_other_work,
    needs_launcher,
    own_modules,
    package_import,
    pattern_of,
    read_source,
    reads_keys,
    trains,
    words_of,
)
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.model import DTYPE_PRECISIONS, FIELDS, Value

LEAST_STEPS = 50
"""A warmup of fewer may be one of epochs."""

DEEPSPEED_ACCUMULATION = "deepspeed_config.gradient_accumulation_steps"
"""In a file for DeepSpeed only: accelerate refuses that section with any other type."""


def keep_accumulation(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """No accumulation for a file without DeepSpeed's section."""
    others = any(key.startswith("deepspeed_config.") and key != DEEPSPEED_ACCUMULATION for key in values)
    return {} if others or DEEPSPEED_ACCUMULATION not in values else {DEEPSPEED_ACCUMULATION: None}


def name_optimizer(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """DeepSpeed reads the parameters of an optimizer that has a type only."""
    given = any(values.get(f"optimizer.params.{name}") is not None for name in ("lr", "weight_decay"))
    return {"optimizer.type": "AdamW"} if given and "optimizer.type" not in values else {}


def read_axolotl_evaluation(values: Mapping[str, Any]) -> Mapping[str, Value]:
    """Evaluations by steps, or several in an epoch, where the file holds data back for them."""
    if values.get("eval_strategy") is not None or not (values.get("val_set_size") or values.get("test_datasets")):
        return {}
    if values.get("eval_steps"):
        return {"eval_strategy": "steps"}
    evaluations = values.get("evals_per_epoch")
    return {"eval_strategy": "epoch" if evaluations == 1 else "steps"} if evaluations else {}


def complete_axolotl_keys(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The adapter's name, which says whether the weights under it are in 4 bits; intervals only where they count.

    axolotl refuses `save_steps` where `save_strategy` is not steps, and so for evaluations.
    """
    strategies = {f"{event}_steps": values.get(f"{event}_strategy", "steps") for event in ("save", "eval")}
    dropped = (steps for steps, strategy in strategies.items() if steps in values and strategy != "steps")
    keys: dict[str, Any] = dict.fromkeys(dropped)
    if values.get("adapter") in ("lora", "qlora"):
        keys["adapter"] = "qlora" if values.get("load_in_4bit") is True else "lora"
    return keys


def lightning_command(values: Mapping[str, Any], path: Path) -> str | None:
    """The program of the project that has the CLI, else the script that makes it; without subcommands if it says so.

    A file with a section for the subcommand is one of the whole program, and stands before it.
    """
    options = "--config {config} fit" if "fit" in values else "fit --config {config}"
    program = console_script(find_scripts(path, words_of("lightning_cli")))
    if program is not None:
        return f"{program} {options}"
    script = find_script(path, words_of("lightning_cli"), lambda _script, _source: True)
    if script is None:
        return None
    runs = not re.search(r"\brun\s*=\s*False", read_source(script))
    return f"python {shlex.quote(str(script))} {options if runs else '--config {config}'}"


LITGPT_ACCUMULATION = "train.accumulation"
"""Stands for accumulation until the global batch is known; in no file."""


def read_litgpt_training(values: Mapping[str, Any]) -> Mapping[str, Value]:
    """LoRA for a file with its rank, since the command says how to train; accumulation from the global batch.

    Warmup may be a fraction of one epoch, where the setting is one of all steps.
    """
    settings: dict[str, Value] = {"peft_method": "lora"} if "lora_r" in values else {}
    whole, samples = values.get("train.global_batch_size"), _samples_at_once(values)
    if isinstance(whole, int) and samples is not None:
        settings["gradient_accumulation_steps"] = max(1, whole // samples)
    fraction, epochs = values.get("train.lr_warmup_fraction"), values.get("train.epochs", 1)
    if isinstance(fraction, float) and isinstance(epochs, int) and 0 < fraction < epochs:
        settings["warmup_steps"] = fraction / epochs
    return settings


def name_global_batch(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """litgpt's own name for accumulation: the samples of all devices between two updates."""
    steps, samples = values.get(LITGPT_ACCUMULATION), _samples_at_once(values)
    if not isinstance(steps, int):
        return {}
    if samples is None:
        return {LITGPT_ACCUMULATION: None}
    return {"train.global_batch_size": steps * samples, LITGPT_ACCUMULATION: None}


def _samples_at_once(values: Mapping[str, Any]) -> int | None:
    micro, devices = values.get("train.micro_batch_size", 1), values.get("devices", 1)
    return micro * devices if isinstance(micro, int) and isinstance(devices, int) and micro * devices > 0 else None


def read_swift_training(values: Mapping[str, Any]) -> Mapping[str, Value]:
    """The precision by the type of the weights where nothing else says it, and evaluations of data held back.

    They come when checkpoints are saved, every 500 steps unless the file says otherwise.
    """
    settings: dict[str, Value] = {}
    word = DTYPE_PRECISIONS.get(str(values.get("torch_dtype")))
    if word is not None and not {"bf16", "fp16"} & values.keys():
        settings["precision"] = word
    if values.get("eval_strategy") is None and (values.get("val_dataset") or values.get("split_dataset_ratio")):
        settings["eval_strategy"] = str(values.get("save_strategy") or "steps")
        if settings["eval_strategy"] == "steps" and values.get("eval_steps") is None:
            settings |= {"eval_steps": values["save_steps"]} if values.get("save_steps") else {}
    return settings


def _words_in(name: str) -> list[str]:
    return re.split(r"[^a-z0-9]+", name.lower())


def torchtune_command(values: Mapping[str, Any], path: Path) -> str:
    """The recipe that the file's comments name, else the one that its name or its model's component belongs to."""
    named = pattern_of("torchtune_comment").search(read_source(path))
    if "optimizer" not in values and named is not None and names_other_work(PurePath(named[2])):
        raise SettingsError(f"is for `tune run {named[2]}`, which does not train")
    if named is not None and ("teacher_model" in values) == ("distillation" in named[2]):
        return f"tune run {named[1]}{named[2]} --config {{config}}"
    model = values.get("model")
    component = str(model.get("_component_", "")) if isinstance(model, Mapping) else ""
    words = {*_words_in(path.stem)} | ({"kd"} if "teacher_model" in values else set())
    words |= {"lora"} if re.search("lora|dora", component + path.stem) else {"full"}
    words |= {"full_dpo"} if {"full", "dpo"} <= words else set()
    single, distributed = next(names for word, names in words_of("torchtune_recipes").items() if word in words)
    return f"tune run {distributed if 'distributed' in words else single} --config {{config}}"


def read_torchtune_component(values: Mapping[str, Any]) -> Mapping[str, Value]:
    """Adapter and quantization, which the model's builder says: `torchtune.models.llama3_1.qlora_llama3_1_8b`.

    QLoRA of torchtune is torchao's nf4 with quantized scales.
    """
    builder = str(values.get("model._component_", "")).rpartition(".")[2]
    if not builder.startswith(("lora_", "qlora_")):
        return {}
    method = "dora" if values.get("model.use_dora") is True else "lora"
    quantized: dict[str, Value] = {"quantization": "nf4", "bnb_4bit_use_double_quant": True}
    return {"peft_method": method} | (quantized if builder.startswith("q") else {})


def trl_command(values: Mapping[str, Any], path: Path) -> str | None:
    """The script of the checkout that the file lies in, as of the alignment handbook; else TRL's own command.

    None where neither keys nor names say how the file trains, and for keys that TRL's commands refuse.
    """
    method = _training_method(values, path)
    others = {*words_of("trl_methods")} - {method}
    of_trl = {key for key in values if key in KNOWN or pattern_of("trl_arguments").fullmatch(key)}

    reads = reads_keys(path, dict.fromkeys(values), {*of_trl, *words_of("handbook")})

    def shown(script: Path, source: str) -> bool:
        return (method is None or others.isdisjoint(_words_in(script.stem))) and reads(script, source)

    parses = words_of("trl_parses")
    named = find_script(path, parses, lambda near, text: method in _words_in(near.stem) and shown(near, text))
    script = named or find_script(path, parses, shown)
    if script is not None:
        option = "" if "H4ArgumentParser(" in read_source(script) else "--config "
        return f"accelerate launch {shlex.quote(str(script))} {option}{{config}}"
    return f"trl {method} --config {{config}}" if method and of_trl >= values.keys() else None


def _training_method(values: Mapping[str, Any], path: Path) -> str | None:
    """How the file trains: said by the names of file and folders, the nearest first, else by keys."""
    for part in (path.stem, *(folder.name for folder in path.absolute().parents[:2])):
        for word in _words_in(part):
            if word in words_of("trl_methods"):
                return word
    keys_of_methods = words_of("trl_method_keys")
    return next((method for method, keys in keys_of_methods.items() if values.keys() & set(keys)), None)


def read_scripts_own(values: Mapping[str, Any]) -> Mapping[str, Value]:
    """Adapter, quantization, precision and lengths as scripts of QLoRA, LLaVA, diffusers and Composer have them.

    A file with the rank of LoRA trains by it, unless a switch of its own says otherwise.
    """
    settings: dict[str, Value] = {}
    rank = next((values[key] for key in ("lora_r", "model.lora.r") if values.get(key) is not None), None)
    if rank is not None:
        dora = str(values.get("use_dora")).lower() == "true"
        settings["peft_method"] = "none" if str(rank) == "0" else "dora" if dora else "lora"
    elif any(value and pattern_of("trained_adapter").search(key) for key, value in values.items()):
        settings["peft_method"] = "lora"
    kinds = {"4": str(values.get("quant_type", "nf4")), "8": "int8"}
    if str(values.get("bits")) in kinds:
        settings["quantization"] = kinds[str(values["bits"])]
    words = {"no": "fp32", "false": "fp32", "fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "true": "fp16", "t": "fp16"}
    precision = words.get(str(values.get("mixed_precision")).lower())
    # The script's own option wins over the launcher's.
    if precision is not None and not {"bf16", "fp16"} & values.keys():
        settings["precision"] = precision
    warmups = [value for key, value in values.items() if re.fullmatch(words_of("warmup"), key.rpartition(".")[2])]
    given = [key for key, value in values.items() if value is not None and re.search("warmup_(steps|ratio)", key)]
    if len(warmups) == 1 and not given:
        with suppress(TypeError, ValueError):
            if 0 < float(warmups[0]) < 1 or float(warmups[0]) >= LEAST_STEPS:
                settings["warmup_steps"] = float(warmups[0])
    methods = [values.get(key) for key in words_of("methods")]
    if "qlora" in methods:
        settings |= {"peft_method": "lora", "quantization": "nf4"}
    if any(method in words_of("without_adapters") for method in methods):
        settings["peft_method"] = "none"
    for key, value in values.items():
        duration = re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?)([a-z]+)", str(value))
        name = duration and words_of("durations").get(key.rpartition(".")[2], {}).get(duration[2])
        if duration and name:
            number = float(duration[1])
            settings[name] = int(number) if number.is_integer() and FIELDS[name].kind == "int" else number
    return settings


def takes_all_arguments(options: Mapping[str, Any], _section: str) -> bool:
    """Whether the options are those of a script that takes TrainingArguments."""
    return all(not options.keys().isdisjoint(words_of(name)) for name in ("batches", "of_trainer"))


def mmengine_command(_values: Mapping[str, Any], path: Path) -> str | None:
    """XTuner's program for a module of its own, else the checkout's only script for training that builds a runner."""
    if re.search(r"(?m)^from xtuner\b|=[ \n]*[\"']xtuner\.", read_source(path)):
        return "xtuner train {config}"
    script = find_script(path, words_of("mm_config"), lambda script, _source: "train" in script.stem)
    return None if script is None else f"python {shlex.quote(str(script))} {{config}}"


KNOWN = {
    *FIELDS, *hf.IGNORED_ARGUMENTS, *hf.RENAMED, *(name for field in FIELDS for name in hf.argument_names(field)),
    "predict_with_generate", "generation_config", "generation_max_length", "generation_num_beams",
}  # fmt: skip


def holds_arguments_only(values: Mapping[str, Any], section: str) -> bool:
    """Whether a section has nothing but arguments of TrainingArguments, so that a script hands it over as a whole."""
    inner: Any = values
    for name in section.split(".") if section else ():
        inner = inner.get(name) if isinstance(inner, Mapping) else None
    return isinstance(inner, Mapping) and inner.keys() <= KNOWN


def script_of_launchers_file(_values: Mapping[str, Any], path: Path) -> str | None:
    """The script that gives a file of DeepSpeed to its Trainer by name."""
    script = find_script(path, words_of("trains"), lambda _near, source: names_file(source, path))
    return None if script is None or needs_launcher(script) else f"python {shlex.quote(str(script))}"


def own_script_command(values: Mapping[str, Any], path: Path) -> str | None:
    """The command of the script near the file that is shown to read it and trains; None without such a script.

    A script without a command line opens the file by a path of its own, or imports it: it is no argument then.
    """
    training = words_of("trains")
    if path.suffix == ".py":
        imports = rf"{training}|(?m:^\s*(?:from|import)\b.*\b{re.escape(path.stem)}\b)"

        def imports_it(near: Path, _source: str) -> bool:
            modules = (module for module, _ in own_modules(near))
            return near != path and trains(near) and is_started(near) and path.absolute() in modules

        script = find_script(path, imports, imports_it)
        needs = script is None or needs_launcher(script) or pattern_of("subcommands").search(read_source(script))
        return None if needs else f"python {shlex.quote(str(script))}"
    shown = reads_keys(path, values, KNOWN)
    option = words_of("config_options")
    reads = rf"(?s)\A(?=.*(?:{words_of('reads_settings')}|{option}))(?=.*(?:{training}|\bimport train\w*\b)).*\w"
    for marker in (words_of("parses_file"), reads):
        script = find_script(path, marker, shown)
        if script is None or script.name == "__main__.py" or needs_launcher(script):  # the first has its own commands
            continue
        source = pattern_of("starts_a_launcher").sub("", read_source(script))
        is_module = (script.parent / "__init__.py").exists() and "__main__" not in source
        # Of a script in another part of the checkout, having the keys shows nothing: its name must say what it does.
        topics = {*re.findall(r"[a-z]{3,}", script.stem.lower())} - {*re.findall(r"[a-z]{3,}", str(path).lower())}
        is_other = not (named_for_training([script]) and all(map(TRAINING.search, topics)))
        is_far = script.parent not in path.absolute().parents and is_other and not names_file(source, path)
        # A subcommand says what to do with the file; what the parser requires is not known.
        others = re.sub(rf"add_argument\([^()]*?{option}[^()]*\)", "", source)
        if is_module or package_import(script) == "from ." or is_far or pattern_of("needs_more").search(others):
            continue
        words = f"python {shlex.quote(str(script))}"
        of_file = rf"[\"'](--[\w-]+)[\"'][^()]*\bdefault\s*=\s*[\"'](?:[\w./-]*/)?{re.escape(path.name)}[\"']"
        if options := [*dict.fromkeys(re.findall(of_file, source) or re.findall(option, source))]:
            parts = {*re.split(r"[\W_]+", path.stem)} - {"", "config", "cfg", "conf"}
            named = [option for option in options if parts & {*re.split(r"[\W_]+", option)}]
            likely = named or [option for option in options if option in ("--config", "--cfg")] or options
            return f"{words} {likely[0]} {{config}}" if len(likely) == 1 else None
        if pattern_of("takes_key_words").search(source):
            return f"{words} config={{config}}"
        if pattern_of("takes_words").search(source):
            return f"{words} {{config}}"
        # What an option has where it is not given opens nothing.
        sources = (source, *(text for _, text in own_modules(script)))
        if any(names_file(pattern_of("default_text").sub("", text), path) for text in sources):
            return words
    return None
