"""Turns a command into one with placeholders, by the flags that look like settings: `--bs`, `--lr`, `--workers`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from tuner_tui.settings.fields import closest_match

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


PLACEHOLDER_WORD = re.compile(r"(?:[\w-]+=)?\{([A-Za-z_]\w*)\}")
"""A word of a command that is a placeholder, alone or as the value of an option."""


def unknown_placeholder(command: Sequence[str], known: Collection[str]) -> str | None:
    """What is wrong with the first placeholder that is not in `known`; None if all are."""
    for word in command:
        match = PLACEHOLDER_WORD.fullmatch(word)
        if match is not None and match[1] not in known:
            meant = next((name for name in FLAGS if _matches([match[1]], name)), None) or closest_match(match[1], known)
            return f"{{{match[1]}}} is not a setting{f'; {{{meant}}}?' if meant else '.'}"
    return None


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
