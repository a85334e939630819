"""The settings in effect in a run: those given at launch, completed by what the observer reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner_tui.settings.errors import FieldError
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Resolved, Settings, check_value

DTYPE_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "none": "fp32"}
"""Precision by the name of an autocast or parameter dtype; `none` where no autocast was active."""


def chosen_settings(resolved: Resolved, job: BuiltinJob | CommandJob | None) -> frozenset[str] | None:
    """The settings that a launch passes to the training: None for all of them, which the built-in job takes."""
    return resolved.chosen if isinstance(job, CommandJob) else None


def effective_settings(given: Settings, chosen: frozenset[str] | None, in_effect: Mapping[str, Any]) -> Settings:
    """`given`, with the observed values of the settings that are not in `chosen`.

    A command keeps its own value of a setting that it was not given, and the observer reports that value in
    `in_effect`. Values that the setting cannot have are ignored: a script may use a learning rate of 1e30. Returns
    `given` where `chosen` is None.
    """
    if chosen is None:
        return given
    observed = observed_values(in_effect)
    own = {name: value for name, value in observed.items() if name not in chosen and _is_valid(name, value)}
    if own.get("dataloader_num_workers") == 0:
        own |= {"dataloader_prefetch_factor": None, "dataloader_persistent_workers": False}
    return given.changed(**own)


def observed_values(in_effect: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values that the observer reported, by the name of the setting; unchecked."""
    values = {name: in_effect[name] for name in Settings.model_fields if in_effect.get(name) is not None}
    precision = observed_precision(in_effect)
    return values if precision is None else {**values, "precision": precision}


def observed_precision(in_effect: Mapping[str, Any]) -> str | None:
    """The precision by the autocast dtype around the forward pass, or by the weights if they are 16-bit themselves."""
    dtype = in_effect.get("autocast_dtype")
    if dtype is None:
        return None
    precision = DTYPE_PRECISIONS.get(str(dtype), str(dtype))
    by_weights = DTYPE_PRECISIONS.get(str(in_effect.get("parameter_dtype")))
    return by_weights if precision == "fp32" and by_weights is not None else precision


def _is_valid(name: str, value: object) -> bool:
    try:
        check_value(name, value)
    except FieldError:
        return False
    return True
