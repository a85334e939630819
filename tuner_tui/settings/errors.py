"""Exceptions for bad settings, presets and options. The text of each is one sentence for the user."""

from __future__ import annotations


class SettingsError(ValueError):
    """Bad settings or options. `str(error)` is one sentence to show to the user."""


class FieldError(SettingsError):
    """A value that a field does not accept, or an unknown field. `field` is the name as given."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


class PresetError(SettingsError):
    """A preset file that cannot be read or written. The sentence starts with file and, where known, line."""


class PresetExistsError(PresetError):
    """The preset file exists and must not be replaced."""
