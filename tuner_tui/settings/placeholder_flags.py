"""Turns a command into one with placeholders, by the flags that look like settings: `--bs`, `--lr`, `--workers`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

FLAGS = {
    "per_device_train_batch_size": "batchsize bs bsz trainbatchsize microbatchsize batch perdevicebatchsize "
    "perdevicetrainbatchsize",
    "per_device_eval_batch_size": "testbatchsize evalbatchsize valbatchsize validationbatchsize evalbs",
    "learning_rate": "lr learningrate baselr initlr",
    "dataloader_num_workers": "workers numworkers nworkers numworker nworker dataworkers loaderworkers "
    "dataloadernumworkers",
    "gradient_accumulation_steps": "gradientaccumulationsteps gradaccum gradaccumsteps accumulationsteps accumiter "
    "gradaccumulation accumsteps",
    "weight_decay": "weightdecay wd",
    "max_grad_norm": "maxgradnorm clip clipgrad gradclip clipgradnorm gradientclip",
    "seed": "seed manualseed randomseed",
}
"""Names of flags for a setting, without dashes and underscores, in lower case."""


def placeholder_command(
    command: Sequence[str], names: Collection[str], options: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """`command` with a placeholder for those of the settings `names` that it has a flag for, and these settings.

    A flag in the command has its value replaced; one that the script's parser accepts is appended. `options` are the
    parser's, each with its aliases: `-b --batch-size`. None if there is no such flag.
    """
    words, done = list(command), []
    for name in names:
        spellings = {word for option in options for word in option.split() if _matches(option.split(), name)}
        if _replace_value(words, name, spellings):
            done.append(name)
        elif spellings:
            words += [max(spellings, key=len), f"{{{name}}}"]
            done.append(name)
    return (tuple(words), tuple(done)) if done else None


def _matches(spellings: Sequence[str], name: str) -> bool:
    known = FLAGS.get(name, "").split()
    return any(one.lstrip("-").replace("-", "").replace("_", "").lower() in known for one in spellings)


def _replace_value(words: list[str], name: str, spellings: Collection[str]) -> bool:
    for index, word in enumerate(words):
        flag, equals, _ = word.partition("=")
        if not (flag in spellings or (flag.startswith("-") and _matches([flag], name))):
            continue
        if equals:
            words[index] = f"{flag}={{{name}}}"
            return True
        if index + 1 < len(words) and not words[index + 1].startswith("--"):
            words[index + 1] = f"{{{name}}}"
            return True
    return False
