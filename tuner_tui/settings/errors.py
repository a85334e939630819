"""What is said when settings, a preset or a command line are wrong. Each is one sentence for a person."""

from __future__ import annotations


class SettingsError(ValueError):
    """Bad input to the settings. `str(error)` is one sentence that can stand on the screen or on stderr."""


class FieldError(SettingsError):
    """A value that a field cannot take, or a field that does not exist. `field` is the name as given."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


class PresetError(SettingsError):
    """A preset file that cannot be read or written. The sentence starts with file and, where known, line."""


class PresetExistsError(PresetError):
    """The preset file is there already and nobody said that it may be replaced."""
