"""The job as lines of text, and back."""

from __future__ import annotations

import asyncio

import pytest

from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.ui.screens.job import BUILTIN, COMMAND, JobScreen, format_job, job_fields, parse_job
from tuner_tui.ui.terminal.base_app import BaseApp

COMMAND_JOB = CommandJob(
    command=("python", "my train.py", "--lr", "{learning_rate}"),
    apply="placeholders",
    aliases={"learning_rate": "optimizer.lr"},
    cwd="/srv/here",
    env={"A": "one two", "B": ""},
    launcher="torchrun",
    processes=2,
    interpreter="/env/bin/python",
    stated={"gpus": 2},
)


@pytest.mark.parametrize(
    "job",
    [
        COMMAND_JOB,
        CommandJob(
            command=("trl", "sft", "x.yaml"),
            apply="yaml",
            dialect="trl",
            model="gpt2",
            task="causal-lm",
            data="acme/chat",
        ),
        BuiltinJob(),
        BuiltinJob(
            task="causal-lm", model="gpt2", data="a.csv", text_column="t", max_samples=5, trust_remote_code=True
        ),
    ],
)
def test_there_and_back(job: Job) -> None:
    texts = format_job(job)
    assert parse_job(texts, job) == job
    assert {line.name for line in job_fields(texts["kind"])} == texts.keys() - {"kind"}


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ("command", "", "Enter a command"),
        ("command", "python 'x", "not a valid shell line"),
        ("command", "python train.py --lr {lr}", r"{lr} is not a setting; {learning_rate}\?"),
        ("command", "python train.py --wd={weight_decy}", r"{weight_decy} is not a setting; {weight_decay}\?"),
        ("env", "A", "NAME=value"),
        ("aliases", "learning_rat=lr", "did you mean"),
        ("processes", "two", "a whole number, at least 1"),
        ("processes", "0", "at least 1"),
    ],
)
def test_what_cannot_be_read_names_its_line(line: str, text: str, expected: str) -> None:
    with pytest.raises(FieldError, match=expected) as caught:
        parse_job({**format_job(COMMAND_JOB), line: text})
    assert caught.value.field == line


def test_several_processes_need_a_launcher() -> None:
    with pytest.raises(FieldError, match="need a launcher") as caught:
        parse_job({**format_job(COMMAND_JOB), "launcher": "plain"})
    assert caught.value.field == "processes"


def test_a_number_of_samples_that_is_none() -> None:
    with pytest.raises(FieldError) as caught:
        parse_job({**format_job(BuiltinJob()), "max_samples": "many"})
    assert caught.value.field == "max_samples"


@pytest.mark.parametrize("job", [CommandJob, BuiltinJob])
def test_every_field_of_a_job_has_a_line(job: type[CommandJob] | type[BuiltinJob]) -> None:
    """What has no line would be lost when the form is accepted."""
    kind = COMMAND if job is CommandJob else BUILTIN
    assert {line.name for line in job_fields(kind)} == {*job.__struct_fields__} - {"stated"}  # kept


async def test_a_preview_that_comes_after_the_dialog_was_closed_is_dropped() -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def preview(job: Job) -> str:
        asked.set()
        await asyncio.shield(answered.wait())
        return "late"

    app = BaseApp("dark", colour=True, ascii_only=False)
    async with app.run_test() as pilot:
        screen = JobScreen(BuiltinJob(), preview)
        await app.push_screen(screen)
        await asked.wait()
        await screen.remove_children()
        answered.set()
        await pilot.pause()
        assert app.screen is screen
