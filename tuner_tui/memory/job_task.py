"""What a job trains a model for, and the built-in job that takes the same memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import get_args

from tuner_tui.core.files import read_data_file
from tuner_tui.memory.known_shapes import shape_from_config
from tuner_tui.memory.model_config import read_config
from tuner_tui.memory.model_shape import FAMILIES_FILE
from tuner_tui.settings.job import TEXT_TASKS, BuiltinJob, CommandJob, Job, Task, named_model, names_other_task

SCRIPTS: Mapping[Task, re.Pattern[str]] = {
    "classification": re.compile(r"glue|classif|sentiment|(?<![a-z])(?:nli|ner)(?![a-z])"),
    "causal-lm": re.compile(r"[cm]lm|language_model|sft|dpo|grpo"),
}
"""Names of scripts that train a text model for a task, whatever it is usually trained for."""
FIRST_FAMILIES = "(?:distil)?(?:bert|gpt2|roberta)|xlm|xlnet|albert|camembert|openai-gpt|t5"
LOCAL_FOLDERS = r"(?:check_?points?|ckpts?|models?|weights|outputs?|saved?(?:_\w+)?|runs?|results?|exp\w*|work_dirs?)/"
LOCAL_FOLDERS += r"|.*/(?:original|final|best|last|latest)$"  # in `original` are Meta's own weights


def usual_task(model: str) -> Task | None:
    """What a model is usually fine-tuned for, by its configuration.

    None where no configuration can be read, and for an architecture or a class that is not covered.
    """
    config = read_config(model)
    if config is None:
        return None
    keys = read_data_file(FAMILIES_FILE)["config"]
    classes = [str(name) for name in config.get("architectures") or ()]
    by_class: dict[Task, list[str]] = keys["heads"]
    by_type: dict[Task, list[str]] = keys["tasks"]
    for task, endings in by_class.items():
        if any(name.endswith(tuple(endings)) for name in classes):
            return task
    for task, types in by_type.items():
        if config.get("model_type") in types:
            return task
    return None if shape_from_config(config, model, "causal-lm") is None else "causal-lm"


def unknown_task(model: str) -> str:
    """Why `usual_task` is None, and what to do, in sentences."""
    config, tasks = read_config(model), ", ".join(get_args(Task))
    if config is None:
        download = f", or get the configuration: {hint}" if (hint := download_hint(model)) else ""
        return (
            f"The task of {model} is unknown: its name is not in the list of known models, and its configuration is "
            f"not on this machine. Name the task (--task {tasks}){download}."
        )
    kind = next(iter(config.get("architectures") or ()), config.get("model_type") or "model of an unnamed architecture")
    return (
        f"{model} is a {kind}, a class without a known task. Name one of {tasks} (--task), or run the "
        "training for a few steps to measure its memory."
    )


def download_hint(model: str) -> str:
    """The command that gets the configuration of a model on the Hub; empty for a path, which no Hub has.

    Without an owner only the first families have models there.
    """
    is_id = re.fullmatch(rf"(?!{LOCAL_FOLDERS})([\w-][\w.-]*/|{FIRST_FAMILIES})[\w.-]*(?<!\.pt|pkl|pth|bin)", model)
    return f"hf download {model} config.json" if is_id else ""


def modelled_job(job: Job | None) -> BuiltinJob | None:
    """The built-in job that takes the same memory as `job`: itself, or one for the model that a command trains.

    None where the task of a command is not known, or not covered.
    """
    if not isinstance(job, CommandJob):
        return job
    model = named_model(job)
    if model is None or job.task == "other" or model.endswith((".pth", ".ckpt", ".pkl")):  # weights of any network
        return None
    usual = usual_task(model)
    # The name of a script says the task of a text model, and of one that is not known.
    is_of_text = usual in TEXT_TASKS or read_config(model) is None
    task = job.task or (is_of_text and _task_of_script(job.command)) or usual
    if task is None or (task in TEXT_TASKS and names_other_task(model, job.command)):
        return None
    return BuiltinJob(task=task, model=model)


def _task_of_script(command: Sequence[str]) -> Task | None:
    script = next((word for word in command if word.endswith(".py")), "")
    return next((task for task, pattern in SCRIPTS.items() if pattern.search(script)), None)


def assumes_task(job: Job) -> bool:
    """Whether only the family of its model says what a command trains: an encoder may get any head."""
    modelled = modelled_job(job)
    if modelled is None or not isinstance(job, CommandJob) or job.task or _task_of_script(job.command):
        return False
    by_family = modelled.task in ("classification", "image-classification")
    return by_family and not (read_config(modelled.model) or {}).get("architectures")


def task_text(job: BuiltinJob, assumed: bool = False) -> str:
    """The task for a reader, such as `masked language modelling` where an encoder computes the loss of its tokens."""
    if job.task == "causal-lm":
        return f"{'masked' if usual_task(job.model) == 'classification' else 'causal'} language modelling"
    return f"an unstated task, planned as {job.task}," if assumed else job.task


def trains_other_task(job: Job) -> bool:
    """Whether something else than a classifier or a causal language model of text is trained, by task and names."""
    modelled = modelled_job(job)
    if modelled is not None and modelled.task not in TEXT_TASKS:
        return True
    command = job.command if isinstance(job, CommandJob) else ()
    return job.task == "other" or names_other_task(named_model(job) or "", command)
