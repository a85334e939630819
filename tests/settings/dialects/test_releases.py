"""What is written for a release of transformers: only arguments that its `TrainingArguments` has without a warning."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.settings.dialects.record_fields import RELEASES, read_record
from tests.settings.strategies import all_settings
from tuner_tui.settings.dialects.hf import SCRIPT_FIELDS, arguments_of_release, to_hf
from tuner_tui.settings.model import FIELDS, Settings

RECORD = read_record()
NAMES = [name for name in FIELDS if name not in SCRIPT_FIELDS]


@pytest.mark.parametrize("release", RELEASES)
@given(settings=all_settings)
def test_no_argument_is_unknown_or_deprecated(release: str, settings: Settings) -> None:
    fields = {name: letters[RELEASES.index(release)] for name, letters in RECORD.items()}
    asked = [name for name, letter in fields.items() if letter != "-"]
    for names in (arguments_of_release(*map(int, release.split(".")[:2])), asked):
        written = to_hf(settings, names, only=NAMES)
        assert {name: fields.get(name) for name in written.values} == dict.fromkeys(written.values, "p")
        # Nothing is lost but sequential sampling, which came with train_sampling_strategy.
        lost = settings.train_sampling_strategy == "sequential" and fields.get("train_sampling_strategy", "-") == "-"
        assert written.unsupported == (("train_sampling_strategy",) if lost else ())
