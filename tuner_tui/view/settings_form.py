"""The settings form as rows of text, the help of each field, and how the keys step its values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct, field, structs

from tuner_tui.core.text import wrap_text
from tuner_tui.core.units import UNKNOWN
from tuner_tui.view.cells import READING, Line, Style, TextSpan, join_fitting, line, shorten

if TYPE_CHECKING:
    from tuner_tui.settings.model import FieldSpec, Resolved, Settings, Value
    from tuner_tui.settings.rules import Problem

FieldTone = Literal["", "changed", "warning", "error"]
TWOS = tuple(sorted({1, 3, *(2**n for n in range(1, 31)), *(3 * 2**n for n in range(1, 30))}))
MANTISSAS = (1.0, 2.0, 3.0, 5.0)
DEFAULT_STEPS = 100


class DataParallel(NamedTuple):
    """Processes, and the GPUs among which each of them splits a step.

    `perhaps` is the number of GPUs it would use if the command builds a Trainer, which is not known before it runs; 0
    before machine and interpreter were read.
    """

    processes: int = 1
    gpu_count: int = 1
    perhaps: int = 1

    @property
    def replicas(self) -> int:
        """The copies of the model that train together."""
        return self.processes * self.gpu_count


SINGLE_DEVICE = DataParallel()


class ValueInEffect(NamedTuple):
    """What a run uses in place of the value that it was given, and why where that is known."""

    text: str
    why: str = ""


class SettingsView(Struct, frozen=True):
    """The contents of the settings panel.

    `saved` is what the preset holds; with `dirty` settings or job differ from it. `can_undo`: there is a change, or a
    preset loaded, to go back from. `spread` multiplies the batch; `check` finds the problems of other settings.
    `in_effect` has what the followed run uses in place of the values shown, where these differ. `unknown` are the
    fields whose value only the command knows, `unknown_before` those of `saved`; it is still `reading` them where that
    is set. `ended` says how the followed run, which had these settings, failed.
    """

    specs: tuple[FieldSpec, ...]
    resolved: Resolved
    saved: Resolved
    problems: tuple[Problem, ...] = ()
    preset: str | None = None
    spread: DataParallel = SINGLE_DEVICE
    check: Callable[[Settings], tuple[Problem, ...]] = lambda settings: ()
    dirty: bool = False
    can_undo: bool = False
    in_effect: Mapping[str, ValueInEffect] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    unknown_before: frozenset[str] = frozenset()
    reading: bool = False
    ended: str = ""


class FormRow(NamedTuple):
    """One line of the form: a field, or the heading of `group` (`name` is None)."""

    label: str
    name: str | None = None
    value: str = ""
    origin: str = ""
    tone: FieldTone = ""
    changed: bool = False
    group: str = ""


class FieldHelpText(NamedTuple):
    """Help of one field: facts, then a sentence or the problem with its value."""

    facts: str
    sentence: str
    tone: FieldTone = ""


WIDEST_CHANGE = 14
"""Cells up to which a changed value stands next to the one before."""
PARTLY = "▹"
"""The sign of a group of which some fields are shown."""
KNOBS = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "precision", "dataloader_num_workers",
    "dataloader_prefetch_factor",
)  # fmt: skip
"""The fields that decide most about speed and memory: shown first, and never folded."""


def group_fields(specs: Sequence[FieldSpec]) -> Mapping[str, list[FieldSpec]]:
    """Return the fields below the knobs by group, in the order of their first fields."""
    groups: dict[str, list[FieldSpec]] = {}
    for spec in specs:
        if spec.name not in KNOBS:
            groups.setdefault(spec.group, []).append(spec)
    return groups


def form_rows(
    view: SettingsView, opened: Collection[str] | None = None, show_changed: bool = False, partly: Collection[str] = ()
) -> tuple[FormRow, ...]:
    """Return the knobs, then each group: its heading, and its fields if it is in `opened`; None opens all groups.

    Of a group in `partly` the fields are shown that somebody has set, or a run has observed. With `show_changed` a
    folded group shows its fields that differ from their defaults or from the preset.
    """
    worst = worst_problems(view.problems)
    wrong = {name for name, problem in worst.items() if problem.severity == "error"}
    by_name = {spec.name: spec for spec in view.specs}
    rows = [_field_row(view, by_name[name], worst.get(name)) for name in KNOBS if name in by_name]
    for group, specs in group_fields(view.specs).items():
        shown = [spec for spec in specs if spec.name in wrong or _is_set(view, spec)] if group in partly else []
        shown = specs if opened is None or group in opened else shown
        if not shown:  # what is wrong is never folded away
            shown = [spec for spec in specs if spec.name in wrong or (show_changed and _differs(view, spec))]
        rows.append(_heading(view, group, specs, worst, shown))
        rows.extend(_field_row(view, spec, worst.get(spec.name)) for spec in shown)
    return tuple(rows)


def _is_set(view: SettingsView, spec: FieldSpec) -> bool:
    is_given = view.resolved.origin(spec.name).kind not in ("default", "recommended")
    return spec.name not in view.unknown and (is_given or _differs(view, spec))


def _differs(view: SettingsView, spec: FieldSpec) -> bool:
    value = getattr(view.resolved.settings, spec.name)
    return spec.name in view.in_effect or not value == spec.default == getattr(view.saved.settings, spec.name)


def _heading(
    view: SettingsView, group: str, specs: Sequence[FieldSpec], worst: Mapping[str, Problem], shown: Sequence[FieldSpec]
) -> FormRow:
    """Return the heading of a group, with the number of fields that differ from the preset, and of those not shown.

    Of one without a field shown, those that are not at their defaults are counted.
    """
    now, saved, names = view.resolved.settings, view.saved.settings, {spec.name for spec in specs}
    changed = sum(getattr(now, spec.name) != getattr(saved, spec.name) for spec in specs)
    differing = 0 if shown else sum(getattr(now, spec.name) != spec.default for spec in specs)
    problems = [worst[spec.name] for spec in specs if spec.name in worst]
    wrong = any(problem.severity == "error" for problem in problems)
    tone: FieldTone = "error" if wrong else "warning" if problems else "changed" if changed else ""
    note = f"{changed} changed" if changed else f"{differing} set" if differing else ""
    if problems and not shown:
        note = f"! {problems[0].sentence}"
    elif (hidden := [spec for spec in specs if spec not in shown]) and (shown or view.unknown.issuperset(names)):
        unknown = all(spec.name in view.unknown for spec in hidden)
        more = f"{len(hidden)} {'unknown' if unknown else 'more'}"
        note = " · ".join(filter(None, (note, more)))
    sign = PARTLY if shown and len(shown) < len(specs) else "▾" if shown else "▸"
    return FormRow(f"{sign} {group}", origin=note, tone=tone, group=group)


def worst_problems(problems: Sequence[Problem]) -> Mapping[str, Problem]:
    """Return the problem shown at each field, errors before warnings."""
    # Sorting is stable and `setdefault` keeps the first: of two errors the one that was found first stays.
    worst: dict[str, Problem] = {}
    for problem in sorted(problems, key=lambda problem: problem.severity != "error"):
        for name in problem.fields:
            worst.setdefault(name, problem)
    return worst


def _field_row(view: SettingsView, spec: FieldSpec, problem: Problem | None) -> FormRow:
    value, saved = (getattr(resolved.settings, spec.name) for resolved in (view.resolved, view.saved))
    is_new = spec.name in view.unknown_before - view.unknown
    changed = is_new or value != saved
    tone: FieldTone = "changed" if changed else ""
    origin = view.resolved.origin(spec.name).label
    origin = "" if value is None and origin == "observed" else origin  # a run without workers has no prefetch
    file = PurePath(view.preset or "")
    if origin == "preset" and file.suffix and file.stem == view.resolved.origin(spec.name).detail:
        origin = file.name
    if spec.name in view.unknown:
        origin = READING if view.reading else "unknown"
    value_text = UNKNOWN if spec.name in view.unknown else format_field(spec, value)
    if changed and len(both := f"{UNKNOWN if is_new else format_field(spec, saved)} → {value_text}") <= WIDEST_CHANGE:
        value_text = both
    if spec.name in view.in_effect:
        tone, origin = "warning", f"! {view.in_effect[spec.name].text}"
    if problem is not None:
        tone = problem.severity
        better = problem.fix.get(spec.name)  # first: of the sentence a few words have room
        fix = f"try {format_field(spec, better)} · " if better is not None else ""
        origin = f"{'✗' if tone == 'error' else '!'} {fix}{problem.sentence}"
    return FormRow(spec.label, spec.name, value_text, origin, tone, changed, group=spec.group)


def format_field(spec: FieldSpec, value: Value) -> str:
    """Return a value as shown in the form, `–` if it is empty."""
    return format_input(spec, value) or "–"


def field_help(view: SettingsView, spec: FieldSpec) -> FieldHelpText:
    """Return the help of `spec` below the form."""
    origin = view.resolved.origin(spec.name)
    # The reason of a recommendation has its own line.
    recommended = origin.kind == "recommended"
    came = "" if recommended else " ".join(dict.fromkeys((origin.label, origin.detail))).strip()
    came = "the command sets it to an unknown value" if spec.name in view.unknown else came
    takes = spec.bounds or " · ".join(spec.choices or spec.suggestions)
    facts = " · ".join(part for part in (spec.name, spec.unit, takes, came) if part)
    problem = worst_problems(view.problems).get(spec.name)
    if problem is not None:
        return _problem_help(view, facts, problem)
    if spec.name in view.in_effect:
        text, why = view.in_effect[spec.name]
        return FieldHelpText(facts, f"the run: {text}{f', because {why}' if why else ''}", "warning")
    return FieldHelpText(facts, f"recommended · {origin.detail}" if recommended else spec.help)


def _problem_help(view: SettingsView, facts: str, problem: Problem) -> FieldHelpText:
    specs = {spec.name: spec for spec in view.specs}
    right = ", ".join(f"{specs[name].label} {format_field(specs[name], value)}" for name, value in problem.fix.items())
    sentence = f"{problem.sentence} → {right}" if right else problem.sentence
    return FieldHelpText(facts, sentence, problem.severity)


def group_help(view: SettingsView, group: str) -> FieldHelpText:
    """Return the help of a group: its fields, and how to open it."""
    specs = group_fields(view.specs).get(group, [])
    labels = ", ".join(spec.label for spec in specs)
    problem = next((p for p in view.problems for spec in specs if spec.name in p.fields), None)
    if problem is not None:
        return _problem_help(view, f"{group}: {labels}", problem)
    return FieldHelpText(f"{len(specs)} settings · enter expands or collapses", labels)


def effective_batch(view: SettingsView, width: int) -> str:
    """Return `effective batch 128 = 16 × 4 × 2 processes`, or `× 2 GPUs` for one process, in at most `width` cells.

    Empty while a factor is unknown. Where only the run can tell whether one process shares a step among the GPUs, both
    stand there.
    """
    settings, spread = view.resolved.settings, view.spread
    if not spread.perhaps or not view.unknown.isdisjoint(KNOBS[:2]):
        return ""
    parts = " × ".join(str(getattr(settings, name)) for name in KNOBS[:2])
    many = f" × {spread.processes} processes" if spread.processes > 1 else ""
    many += f" × {spread.gpu_count} GPUs" if spread.gpu_count > 1 else ""
    perhaps = f" (× {spread.perhaps} GPUs with a Trainer)" if spread.perhaps > 1 else ""
    product = settings.effective_batch(spread.replicas)
    batch = f"batch {product} = {parts}{many}"
    texts = (f"effective {batch}{perhaps}", f"{batch}{perhaps}", f"{batch}{perhaps.replace(' with a Trainer', '?')}")
    return next((text for text in texts if len(text) <= width), batch)


def step_value(spec: FieldSpec, value: Value, up: bool) -> Value:
    """Return the next value above or below `value`: the next choice, switch position or round number."""
    match spec.kind:
        case "bool":
            return _next((None, True, False) if spec.optional else (False, True), value, up)
        case "int":
            return _bounded(spec, _step_int(spec, value, up))
        case "float":
            return _bounded(spec, _step_float(spec, float(value or 0), up))
        case _:
            return _next(spec.choices or spec.suggestions, value, up)


def _next(options: Sequence[Value], value: Value, up: bool) -> Value:
    if not options:
        return value
    if value not in options:
        return options[0]
    return options[(options.index(value) + (1 if up else -1)) % len(options)]


def _step_int(spec: FieldSpec, value: Value, up: bool) -> int | None:
    if value is None:
        return (DEFAULT_STEPS if spec.unit == "steps" else max(2, int(spec.minimum or 0))) if up else None
    number = int(value)
    if not up and spec.optional and number <= (spec.minimum or 0):
        return None
    if spec.unit in ("steps", "micro batches"):
        return max(1, number * 2) if up else number // 2
    if spec.unit in ("samples", "tokens") or spec.name.startswith("lora_"):
        return int(_next_in(TWOS, number, up))
    return number + (1 if up else -1)


def _next_in(numbers: Sequence[float], number: float, up: bool) -> float:
    # The tolerance keeps a value that equals one of the numbers but for rounding from being its own neighbour.
    if up:
        return next((value for value in numbers if value > number * 1.0001), number)
    return next((value for value in reversed(numbers) if value < number * 0.9999), number)


def _step_float(spec: FieldSpec, number: float, up: bool) -> float:
    if number == 0:
        return 0.01 if up else 0.0
    if not up and number <= 0.01 and not spec.above_minimum:
        return 0.0
    # Round numbers of twenty decades: a learning rate has no natural step.
    return _next_in([float(f"{m}e{e}") for e in range(-12, 8) for m in MANTISSAS], number, up)


def _bounded(spec: FieldSpec, value: int | float | None) -> Value:
    if value is None:
        return None
    if spec.maximum is not None and (value > spec.maximum or (spec.below_maximum and value == spec.maximum)):
        return None if spec.optional else type(value)(spec.maximum) if not spec.below_maximum else value * 0.9
    if spec.minimum is not None and value < spec.minimum:
        return type(value)(spec.minimum)
    return value


def find_field(rows: Sequence[FormRow], text: str, after: int = -1) -> int | None:
    """Return the index of the next row after `after`, wrapping around, whose label or name contains `text`."""
    wanted = text.strip().lower()
    order = [*range(after + 1, len(rows)), *range(after + 1)]
    return next((i for i in order if (n := rows[i].name) and (wanted in n or wanted in rows[i].label.lower())), None)


def format_input(spec: FieldSpec, value: Value) -> str:
    """Return a value as it is typed."""
    from tuner_tui.settings.model import format_value

    return format_value(spec.name, value)


def check_input(view: SettingsView, spec: FieldSpec, text: str) -> FieldHelpText | None:
    """Return the problem with `text` as the value of `spec`, alone or with other fields; None if it is valid."""
    from tuner_tui.settings.errors import FieldError
    from tuner_tui.settings.model import parse_value

    facts = field_help(view, spec).facts
    try:
        value = parse_value(spec.name, text)
    except FieldError as error:
        return FieldHelpText(facts, str(error), "error")
    settings = structs.replace(view.resolved.settings, **{spec.name: value})
    problem = worst_problems(view.check(settings)).get(spec.name)
    return None if problem is None else _problem_help(view, facts, problem)._replace(tone="warning")


HELP_STYLES: Mapping[str, Style] = {"warning": "warn", "error": "bad"}


def help_rows(text: FieldHelpText, width: int) -> list[Line]:
    """Return as many facts of a field as one dim line holds, and its help or problem below."""
    style = HELP_STYLES.get(text.tone, "")
    facts = join_fitting(text.facts.split(" · "), width) or shorten(text.facts, width)
    sentence = wrap_text(text.sentence, max(8, width))
    return [line(TextSpan(facts, "dim")), *(line(TextSpan(part, style)) for part in sentence)]
