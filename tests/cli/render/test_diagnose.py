"""The text of `diagnose` where there are no findings."""

from __future__ import annotations

from tuner_tui.advice.settings_check import SettingCheck
from tuner_tui.cli.commands.diagnose import finding_lines

AGREES = SettingCheck("optim", "adamw_torch", "adamw_torch", "agrees")
DIFFERS = SettingCheck("tf32", True, False, "differs")


def test_nothing_wrong_stands_only_above_settings_that_are_in_effect() -> None:
    assert list(finding_lines((), (AGREES,))) == [["No problems found."]]
    assert list(finding_lines((), (AGREES, DIFFERS))) == [["1 requested setting is not in effect:"]]
    assert list(finding_lines((), (DIFFERS, DIFFERS))) == [["2 requested settings are not in effect:"]]
