"""The job editor: a job as lines of text, the dialog that edits them, and their parser."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, get_args

from msgspec import structs
from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import DescendantFocus, Event, Key, Paste
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Label

from tuner_tui.core.files import read_data_file
from tuner_tui.settings.apply import default_apply_mode
from tuner_tui.settings.argv import unknown_placeholder
from tuner_tui.settings.dialects.dialect import dialects
from tuner_tui.settings.dialects.hf import to_hf
from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.job import ApplyMode, BuiltinJob, CommandJob, Job, Launcher
from tuner_tui.settings.model import FIELDS, Settings, parse_section
from tuner_tui.ui.keys import KEYS
from tuner_tui.ui.screens.dialogs import Choice, Dialog
from tuner_tui.ui.terminal.base_widgets import LineInput, join_lines

COMMAND, BUILTIN = "command", "built-in"
LAUNCH_PLACEHOLDERS = ("config", "output_dir", "checkpoint")
"""Placeholders that the launch fills in itself."""
UNKNOWN_TASK = "unknown"
_FORM = read_data_file(Path(__file__).with_name("job_form.yaml"))
APPLY_HELP: Mapping[str, str] = {mode: entry["help"] for mode, entry in _FORM["apply"].items()}


class JobField(NamedTuple):
    """A line of the form; `choices` holds the values it can have, if it is not free text, and `words` what is shown."""

    name: str
    label: str
    help: str
    choices: tuple[str, ...] = ()
    words: Mapping[str, str] = MappingProxyType({})


def job_fields(kind: str) -> tuple[JobField, ...]:
    """Return the lines for a kind of job, without the first one; those of `kind` are that one alone."""
    return tuple(
        JobField(name, field["label"], field["help"], _choices(field.get("choices", ())), field.get("words", {}))
        for name, field in _FORM[kind].items()
    )


def _choices(choices: list[str] | str) -> tuple[str, ...]:
    """Return the choices of a line, which are given by a list or by the name of one."""
    if choices == "dialects":
        return tuple(dialects())  # a large table, not read before a job is edited
    named = {"launchers": get_args(Launcher), "apply modes": get_args(ApplyMode)}
    return named[choices] if isinstance(choices, str) else tuple(choices)


(KIND_FIELD,) = job_fields("kind")


def format_job(job: Job) -> dict[str, str]:
    """Return the text of each line."""
    values = {name: _text(value) for name, value in structs.asdict(job).items() if name != "stated"}
    values["env"] = _format_pairs(job.env)
    if isinstance(job, BuiltinJob):
        return {"kind": BUILTIN, **values}
    return {
        "kind": COMMAND,
        **values,
        "command": shlex.join(job.command),
        "aliases": _format_pairs(job.aliases),
        "task": job.task or UNKNOWN_TASK,
    }


def guess_apply_mode(command: str) -> str | None:
    """Return how settings can reach the command, or None while it is not a valid shell line."""
    try:
        return default_apply_mode(shlex.split(command))
    except ValueError:
        return None


def parse_job(texts: Mapping[str, str], before: Job | None = None) -> Job:
    """Parse the lines. Raises `FieldError` with the name of the invalid line.

    What the file of the command states stays as it was `before`, unless the command is another.
    """
    kind = texts["kind"]
    values = {line.name: texts[line.name].strip() for line in job_fields(kind)}
    given: dict[str, Any] = {name: text for name, text in values.items() if text}
    given["env"] = _parse_pairs("env", values["env"])
    if kind == BUILTIN:
        return _checked_launcher(parse_section(BuiltinJob, given))
    given["command"] = _split_shell("command", values["command"])
    wrong = unknown_placeholder(given["command"], {*FIELDS, *to_hf(Settings()).values, *LAUNCH_PLACEHOLDERS})
    if wrong is not None:
        raise FieldError("command", wrong)
    if given["task"] == UNKNOWN_TASK:
        del given["task"]
    given["aliases"] = _parse_pairs("aliases", values["aliases"])
    job = parse_section(CommandJob, given)
    if isinstance(before, CommandJob) and before.command == job.command:
        job = structs.replace(job, stated=before.stated)
    return _checked_launcher(job)


def _checked_launcher(job: Job) -> Job:
    if job.processes > 1 and job.launcher == "plain":
        raise FieldError("processes", "Several processes need a launcher: torchrun, accelerate or deepspeed.")
    return job


def _split_shell(name: str, text: str) -> tuple[str, ...]:
    try:
        arguments = tuple(shlex.split(text))
    except ValueError as error:
        raise FieldError(name, f"This is not a valid shell line: {str(error).lower()}.") from error
    if name == "command" and not arguments:
        raise FieldError(name, "Enter a command, such as python train.py.")
    return arguments


def _parse_pairs(name: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in _split_shell(name, text):
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise FieldError(name, f"{word} must have the form NAME=value.")
        pairs[key] = value
    return pairs


def _format_pairs(pairs: Mapping[str, str]) -> str:
    return shlex.join(f"{name}={value}" for name, value in pairs.items())


def _text(value: object) -> str:
    if value is None:
        return ""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


PREVIEW_AFTER_S = 0.3
"""Pause of typing after which the preview is brought up to date."""


class JobScreen(Dialog["Job"]):
    """Returns the edited job. An invalid line gets the focus, and a message says what is wrong.

    `preview` returns what a job would start, or why it cannot.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*KEYS["job"]]
    heading = "Job"
    hint = "↑ ↓ line · ◂ ▸ choice · enter accept · esc cancel"

    def __init__(self, job: Job, preview: Callable[[Job], Awaitable[str]]) -> None:
        super().__init__()
        self._preview = preview
        self._pause: Timer | None = None
        self._typed = ""
        self._before, self._texts = job, format_job(job)
        self._last = {self._texts["kind"]: dict(self._texts)}
        self._guess_apply = guess_apply_mode(self._texts.get("command", "")) == self._texts.get("apply")

    def body(self) -> Iterable[Widget]:
        yield _row(KIND_FIELD, self._texts)
        yield VerticalScroll(*self._fields(), id="job-lines", can_focus=False)
        yield Label("", id="message", markup=False)
        yield Label("", id="preview", markup=False)

    def _fields(self) -> list[Widget]:
        return [_row(field, self._texts) for field in job_fields(self._texts["kind"])]

    def on_mount(self) -> None:
        first = "job-command" if self._texts["kind"] == COMMAND else "job-kind"
        self.query_one(f"#{first}").focus()
        self._show_preview()

    @on(Choice.Changed)
    @on(Input.Changed)
    def _show_preview_soon(self) -> None:
        if self._pause is not None:
            self._pause.stop()
        self._pause = self.set_timer(PREVIEW_AFTER_S, self._show_preview)

    def _show_preview(self) -> None:
        self.query_one("#preview", Label).update("")
        self.run_worker(self._read_preview(), exclusive=True)

    async def _read_preview(self) -> None:
        try:
            job = parse_job(self._read(), self._before)
        except FieldError as error:
            text, wrong = str(error), True
        else:
            text, wrong = await self._preview(job), False
        for preview in self.query("#preview").results(Label):  # none if the dialog was closed meanwhile
            preview.set_class(wrong, "-wrong").update(text)

    @on(Choice.Changed, "#job-kind")
    async def _kind_changed(self, event: Choice.Changed) -> None:
        """Show the lines of the other kind of job; the texts of this one are kept."""
        self._last[self._texts["kind"]] = self._read()
        kind = event.choice.value
        if kind not in self._last:
            new = CommandJob(command=("python", "train.py"), apply="inject") if kind == COMMAND else BuiltinJob()
            self._last[kind], self._guess_apply = format_job(new), True
        self._texts = self._last[kind]
        box = self.query_one("#job-lines", VerticalScroll)
        await box.remove_children()
        await box.mount(*self._fields())
        if kind == COMMAND:  # a new command is typed at once, in place of the example
            command = self.query_one("#job-command", LineInput)
            command.select_on_focus = not self._typed
            command.value, self._typed = self._typed or command.value, ""
            command.action_end()
            self.set_focus(command)

    def on_key(self, event: Key) -> None:
        if event.character and (event.character.isalnum() or event.character in "./~" or self._typed):
            self._begin_command(event, event.character)

    def on_paste(self, event: Paste) -> None:
        self._begin_command(event, join_lines(event.text))

    def _begin_command(self, event: Event, text: str) -> None:
        """Take what is typed or pasted on the first line as the start of a command."""
        kind = self.query_one("#job-kind", Choice)
        if self.focused is kind:
            event.stop()
            if not self._typed:
                kind.value = COMMAND
                kind.post_message(Choice.Changed(kind))
            self._typed += text

    @on(Choice.Changed, "#job-apply")
    def _apply_changed(self, event: Choice.Changed) -> None:
        self._guess_apply = False
        self._show_message(APPLY_HELP[event.choice.value])

    @on(Input.Changed, "#job-command")
    def _command_typed(self, event: Input.Changed) -> None:
        """Guess from the command how settings reach it, as the command line does, until the user chooses."""
        mode = guess_apply_mode(event.value)
        if self._guess_apply and mode is not None:
            self.query_one("#job-apply", Choice).value = mode

    @on(Input.Changed, "#job-processes")
    def _processes_typed(self, event: Input.Changed) -> None:
        """Choose torchrun for several processes where no launcher is chosen."""
        launcher = self.query_one("#job-launcher", Choice)
        if event.value.isdigit() and int(event.value) > 1 and launcher.value == "plain":
            launcher.value = "torchrun"

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        name = (event.widget.id or "").removeprefix("job-")
        lines = {line.name: line for line in (KIND_FIELD, *job_fields(self._texts["kind"]))}
        if name == "apply" and isinstance(event.widget, Choice):
            self._show_message(APPLY_HELP[event.widget.value])
        elif name in lines:
            self._show_message(lines[name].help)

    @on(Input.Submitted)
    def action_accept(self) -> None:
        """Accept, also on Enter in a line: a binding of the screen could overtake keys still queued for the input."""
        try:
            self.dismiss(parse_job(self._read(), self._before))
        except FieldError as error:
            self.query_one(f"#job-{error.field}").focus()
            self._show_preview()

    def _read(self) -> dict[str, str]:
        texts = dict(self._texts)
        for line in job_fields(self._texts["kind"]):
            for widget in self.query(f"#job-{line.name}"):
                if isinstance(widget, (Input, Choice)):
                    texts[line.name] = widget.value
        return texts

    def _show_message(self, text: str) -> None:
        self.query_one("#message", Label).update(text)


def _row(line: JobField, texts: dict[str, str]) -> Widget:
    text = texts.get(line.name, "")
    if line.choices:
        field: Widget = Choice(line.choices, text, line.words, id=f"job-{line.name}")
    else:
        field = LineInput(text, id=f"job-{line.name}", select=line.name == "command" or text.isdigit())
    return Horizontal(Label(line.label, markup=False), field, classes="row")
