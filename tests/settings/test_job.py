"""Where the number of fallbacks comes from, and what a job means."""

from __future__ import annotations

import pytest
from msgspec import structs

from tuner_tui.core.files import read_data_file
from tuner_tui.memory.job_task import assumes_task, modelled_job, trains_other_task
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import (
    MAX_FALLBACKS,
    OTHER_TASKS,
    BuiltinJob,
    CommandJob,
    fallback_limit,
    job_from_json,
    other_task_pattern,
    same_program,
    same_training,
    task_of_source,
)
from tuner_tui.settings.preset_file import dump_preset
from tuner_tui.settings.presets import parse_preset

JOB = CommandJob(command=("python", "train.py"), fallback=2)


@pytest.mark.parametrize(
    ("flag", "variable", "times"),
    [(None, None, None), (None, "5", 5), (None, " ", None), (0, "5", 0), (1, None, 1), (None, "0", 0)],
)
def test_the_flag_wins_over_the_variable_and_without_both_the_job_decides(
    flag: int | None, variable: str | None, times: int | None
) -> None:
    environment = {} if variable is None else {"TUNER_FALLBACK": variable}
    assert fallback_limit(flag, environment) == times


@pytest.mark.parametrize("text", ["often", "-1", str(MAX_FALLBACKS + 1), "1.5", "²"])
def test_a_variable_that_is_no_number_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match="TUNER_FALLBACK"):
        fallback_limit(None, {"TUNER_FALLBACK": text})


def test_a_variable_extends_that_of_the_start() -> None:
    job = CommandJob(command=("x",), env={"PATH": "/opt/bin:$PATH", "ARGS": "$HOME ${ARGS}", "NAME": "$NAME_2"})
    environment = {"PATH": "/bin", "HOME": "/root", "NAME": "n"}
    assert job.environment(environment) == {"PATH": "/opt/bin:/bin", "ARGS": "$HOME ", "NAME": "$NAME_2"}


def test_a_preset_keeps_it() -> None:
    text = "version: 1\nname: mine\njob:\n  kind: builtin\n  fallback: 3\n"
    loaded = parse_preset(text, "mine")
    assert loaded.preset.job == BuiltinJob(fallback=3)
    assert parse_preset(dump_preset(loaded.preset), "mine").preset.job == BuiltinJob(fallback=3)


def test_it_is_no_part_of_what_trains() -> None:
    assert same_training(JOB, structs.replace(JOB, fallback=0))
    assert not same_training(JOB, structs.replace(JOB, command=("python", "other.py")))
    assert not same_training(JOB, BuiltinJob(fallback=2))
    assert same_training(JOB, structs.replace(JOB, env={**JOB.env, "OMP_NUM_THREADS": "1"}))
    assert not same_training(JOB, structs.replace(JOB, env={**JOB.env, "MODEL": "large"}))
    assert len({BuiltinJob(), BuiltinJob(), BuiltinJob(env={"OMP_NUM_THREADS": "1"})}) == 2
    assert same_training(BuiltinJob(), BuiltinJob(env={"OMP_NUM_THREADS": "1"}, fallback=2))
    assert not same_training(BuiltinJob(), BuiltinJob(env={"OMP_NUM_THREADS": "1"}, data="own.csv"))


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("python t.py", "python t.py --lr 1e-4 --bf16", True),
        ("python t.py --lr 2e-4 --model a", "python t.py --model a --lr=-1", True),
        ("python t.py trainer.steps=5", "python t.py trainer.steps=70 compile=true", True),
        ("python t.py --model a", "python t.py --model b", False),
        ("python t.py data.csv", "python t.py other.csv", False),
        ("python -m t", "python -m u", False),
    ],
)
def test_numbers_and_switches_of_a_command_do_not_make_another_program(first: str, second: str, same: bool) -> None:
    jobs = (CommandJob(command=tuple(command.split())) for command in (first, second))
    assert same_program(*jobs) == same


ROWS = [(part, row) for part in ("names", "classes") for row in read_data_file(OTHER_TASKS)[part]]


@pytest.mark.parametrize(("part", "row"), ROWS, ids=[row["examples"][0] for _, row in ROWS])
def test_each_row_matches_its_examples_and_not_its_counter_examples(part: str, row: dict[str, list[str]]) -> None:
    pattern = other_task_pattern("names" if part == "names" else "classes")
    spelled = str.lower if part == "names" else str
    assert [text for text in row["examples"] if pattern.search(spelled(text)) is None] == []
    assert [text for text in row["counter_examples"] if pattern.search(spelled(text)) is not None] == []


@pytest.mark.parametrize(
    ("words", "model", "task", "is_other"),
    [
        ("run_image_classification.py --model_name_or_path google/vit-base-patch16-224", None, None, True),
        ("train.py --model openai/whisper-small", None, "causal-lm", True),
        ("train.py", "google/flan-t5-base", None, True),
        ("train.py --model bert-base-uncased", None, "other", True),
        ("train.py", None, "other", True),
        ("run_clm.py --model_name_or_path Qwen/Qwen2.5-0.5B", None, None, False),
        ("vit/run_glue.py --model_name_or_path bert-base-uncased", None, None, False),
    ],
)
def test_what_trains_on_images_or_sound_is_not_taken_for_text(
    words: str, model: str | None, task: str | None, is_other: bool
) -> None:
    job = job_from_json({"kind": "command", "command": ["python", *words.split()], "model": model, "task": task})
    assert trains_other_task(job) == is_other


@pytest.mark.parametrize(
    ("words", "task", "expected"),
    [
        ("run_image_classification.py --model_name_or_path google/vit-base-patch16-224", None, "image-classification"),
        ("run_speech.py --model openai/whisper-small", None, "speech-to-text"),
        ("run_summarization.py --model facebook/bart-large-cnn", None, "seq2seq"),
        ("train.py --model bert-base-uncased", None, "classification"),
        ("run_glue.py --model gpt2", None, "classification"),
        ("run_mlm.py --model roberta-base", None, "causal-lm"),
        ("run_mim_pretrain.py --model google/vit-base-patch16-224", None, "image-classification"),
        ("train.py --model gpt2", None, "causal-lm"),
        ("run_trainer.py --model gpt2", None, "causal-lm"),
        ("train.py --model vit_base_patch16_224.augreg_in21k", None, "image-classification"),
        ("train.py --model resnet50", None, "image-classification"),
        ("train.py --model org/new-7b", "causal-lm", "causal-lm"),
        ("sft.py --model org/new-7b", None, "causal-lm"),
        ("train.py --model org/new-7b", None, None),
        ("train.py --model MCG-NJU/videomae-base", None, None),
        ("train.py --model openai/whisper-small", "causal-lm", None),
        ("train.py --model bert-base-uncased", "other", None),
        ("train.py", None, None),
    ],
)
def test_the_task_of_a_command_is_that_of_its_model(words: str, task: str | None, expected: str | None) -> None:
    """A name that is not known says nothing, whatever size is in it."""
    modelled = modelled_job(job_from_json({"kind": "command", "command": ["python", *words.split()], "task": task}))
    assert (None if modelled is None else modelled.task) == expected


@pytest.mark.parametrize(
    ("words", "task", "assumed"),
    [
        ("train.py --model roberta-base", None, True),
        ("run_glue.py --model roberta-base", None, False),
        ("train.py --model roberta-base", "classification", False),
        ("train.py --model gpt2", None, False),
    ],
)
def test_the_task_of_an_encoder_is_only_assumed_where_nothing_says_it(
    words: str, task: str | None, assumed: bool
) -> None:
    job = job_from_json({"kind": "command", "command": ["python", *words.split()], "task": task})
    assert assumes_task(job) == assumed
    assert task_of_source("model = AutoModelForQuestionAnswering.from_pretrained(name)") is None
