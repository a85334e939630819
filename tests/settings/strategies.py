"""Hypothesis strategies for settings, jobs and presets, made from the declaration itself."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import convert

from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import FIELDS, FieldSpec, Settings
from tuner_tui.settings.preset_file import HardwareRequirements, Preset

texts = st.text(max_size=40)
names = st.text(min_size=1, max_size=40)


def field_values(spec: FieldSpec) -> st.SearchStrategy[Any]:
    """Any value the field takes."""
    if spec.name == "warmup_steps":
        # From 1 on it counts in whole steps; a fraction there is a warning of its own.
        values: st.SearchStrategy[Any] = st.floats(0, 1, exclude_max=True) | st.integers(1, 10**7).map(float)
    elif spec.kind == "bool":
        values = st.booleans()
    elif spec.kind == "choice":
        values = st.sampled_from(spec.choices)
    elif spec.kind == "text":
        values = st.one_of(st.sampled_from(spec.suggestions), st.from_regex(r"\A[A-Za-z0-9_.-]+\Z"))
    elif spec.kind == "int":
        values = st.integers(int(spec.minimum or 0), int(spec.maximum or 0))
    else:
        values = st.floats(
            spec.minimum,
            spec.maximum,
            exclude_min=spec.above_minimum,
            exclude_max=spec.below_maximum,
            allow_nan=False,
        )
    return st.one_of(st.none(), values) if spec.optional else values


settings_values = st.fixed_dictionaries({}, optional={name: field_values(spec) for name, spec in FIELDS.items()})
all_settings = settings_values.map(lambda values: convert(values, Settings))

builtin_jobs = st.builds(
    BuiltinJob,
    task=st.sampled_from(["classification", "causal-lm"]),
    model=texts,
    data=texts,
    text_column=st.none() | texts,
    max_samples=st.none() | st.integers(1, 10**9),
    trust_remote_code=st.booleans(),
)
command_jobs = st.builds(
    CommandJob,
    command=st.lists(texts, min_size=1, max_size=5).map(tuple),
    apply=st.sampled_from(["placeholders", "hf-args", "yaml", "inject", "none"]),
    aliases=st.dictionaries(st.sampled_from(sorted(FIELDS)), texts, max_size=3),
    cwd=st.none() | texts,
    env=st.dictionaries(texts, texts, max_size=3),
    launcher=st.sampled_from(["plain", "torchrun", "accelerate"]),
    processes=st.integers(1, 64),
)
hardware = st.builds(
    HardwareRequirements,
    gpu=st.none() | names,
    min_memory_gib=st.none() | st.floats(0.5, 1024),
    min_gpus=st.none() | st.integers(1, 64),
    capability=st.none() | st.sampled_from(["7.0", "8.0", "12.0"]),
    min_cores=st.none() | st.integers(1, 512),
)
presets = st.builds(
    Preset,
    name=names,
    about=st.none() | texts,
    for_=st.none() | hardware,
    source=st.none() | texts,
    before=st.none() | texts,
    after=st.none() | texts,
    settings=settings_values,
    job=st.none() | builtin_jobs | command_jobs,
)
