"""Passes a checkpoint to the command that resumes from it, also through an option of the script's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.read.checkpoints import SavedCheckpoint
from tuner_tui.settings.apply import AppliedCommand
from tuner_tui.settings.command_training import read_training_script
from tuner_tui.settings.dialects.dialect import dialect_by_name
from tuner_tui.settings.dialects.file_formats import dump_config
from tuner_tui.settings.dialects.script_search import words_of
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job

# Four ways, tried in this order:
# - `{checkpoint}` in the command is replaced by the path, and is left out together with the option before it where
#   there is no checkpoint.
# - Configuration files and `hf-args` get `resume_from_checkpoint`, the name that Trainer, TRL, LLaMA-Factory, axolotl
#   and ms-swift share.
# - The observer passes the path to `Trainer.train()` where a script calls it without one.
# - A script that saved the file itself is given an option of its own, found in its argument parser as the observer saw
#   it, or in its source.
CHECKPOINT_PLACEHOLDER = "{checkpoint}"
RESUME_KEY = "resume_from_checkpoint"
RESUME_VARIABLE = "TUNER_RESUME"
"""Passes the checkpoint to the observer."""


def with_checkpoint(applied: AppliedCommand, job: Job, checkpoint: Path | None) -> AppliedCommand:
    """The command that resumes from `checkpoint`, or starts at step 0 if it is None."""
    if isinstance(job, CommandJob) and any(CHECKPOINT_PLACEHOLDER in word for word in applied.argv):
        return replace(applied, argv=_fill_placeholder(applied.argv, checkpoint))
    if checkpoint is None:
        return applied
    if applied.config_yaml is not None:
        if not accepts_checkpoint(job):
            return applied  # the reader of the file has no such key, and may refuse a file with one
        values = {**yaml.safe_load(applied.config_yaml), RESUME_KEY: str(checkpoint)}
        as_json = applied.config_yaml.startswith("{")
        return replace(applied, config_yaml=dump_config(values, as_json=as_json))
    if isinstance(job, CommandJob) and job.apply == "hf-args":
        return replace(applied, argv=(*applied.argv, f"--{RESUME_KEY}", str(checkpoint)))
    return applied


def accepts_checkpoint(job: Job) -> bool:
    """Whether the command itself takes a checkpoint; otherwise only the observer can pass it, to scripts that use
    Trainer."""
    if isinstance(job, BuiltinJob):
        return True
    in_file = job.apply == "yaml" and dialect_by_name(job.dialect).extends_hf
    return in_file or job.apply == "hf-args" or any(CHECKPOINT_PLACEHOLDER in word for word in job.command)


def takes_checkpoint(job: Job, checkpoint: SavedCheckpoint) -> bool:
    """Whether the command takes this checkpoint, or the observer can pass it to the Trainer that wrote it."""
    return checkpoint.by_trainer or (accepts_checkpoint(job) and not checkpoint.weights_only)


def _fill_placeholder(argv: tuple[str, ...], checkpoint: Path | None) -> tuple[str, ...]:
    if checkpoint is not None:
        return tuple(word.replace(CHECKPOINT_PLACEHOLDER, str(checkpoint)) for word in argv)
    kept: list[str] = []
    for word in argv:
        if CHECKPOINT_PLACEHOLDER not in word:
            kept.append(word)
        elif word == CHECKPOINT_PLACEHOLDER and kept and kept[-1].startswith("-") and "=" not in kept[-1]:
            kept.pop()
    return tuple(kept)


INIT_FROM = "init_from"
"""nanoGPT's name, whose value `resume` continues what its output folder holds."""


class OwnResume(Struct, frozen=True):
    """How the command resumes from `checkpoint`, which the script saved itself.

    `words` are added to the command, replacing one of `spellings` that it may have; none where the script loads the
    file without being asked.
    """

    checkpoint: Path
    spellings: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The path, and what makes the script load it."""
        if not self.words:
            return f"{self.checkpoint}, which the script loads if it exists"
        return f"{self.checkpoint}, through the script's own {' '.join(self.words)}"

    def applied_to(self, argv: Sequence[str]) -> tuple[str, ...]:
        """`argv` with the option, in place of one that it has."""
        kept: list[str] = []
        is_value = False
        for word in argv:
            if word.partition("=")[0] in self.spellings:
                is_value = len(self.words) > 1 and "=" not in word
            elif is_value:
                is_value = False
            else:
                kept.append(word)
        return (*kept, *self.words)


def find_own_resume(job: Job, cwd: Path, state: RunState, checkpoint: Path) -> OwnResume | None:
    """How the script of `job` resumes; None where neither its parser, seen in the run, nor its source says.

    `state` is that of a run of the job. An option with a value gets the path of the checkpoint.
    """
    if not isinstance(job, CommandJob):
        return None
    script = read_training_script(job.command, cwd)
    options = [*state.options, *(script.options if script is not None else ())]
    switches = [*state.switches, *(script.switches if script is not None else ())]
    best = min([*_ranked(options, has_value=True), *_ranked(switches, has_value=False)], default=None)
    if best is not None:
        _, is_switch, option, spellings = best
        return OwnResume(checkpoint, spellings, (option,) if is_switch else (option, str(checkpoint)))
    if script is not None and INIT_FROM in script.configured:
        return OwnResume(checkpoint, (f"--{INIT_FROM}",), (f"--{INIT_FROM}=resume",))
    if script is not None and script.loads_itself:
        return OwnResume(checkpoint)
    return None


def _ranked(options: Sequence[str], *, has_value: bool) -> Iterator[tuple[int, bool, str, tuple[str, ...]]]:
    """Rank, whether it is a switch, the name to use and all spellings of each option that resumes."""
    names: list[str] = words_of("resume_options")
    for words in options:
        spellings = tuple(words.split())
        for option in spellings:
            name = option.lstrip("-").replace("-", "").replace("_", "").lower()
            if name in names:
                yield names.index(name), not has_value, option, spellings
