"""Every file in `files.yaml`: the settings and the job that are read, and the text after changes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from tuner_tui.settings.apply import build_command
from tuner_tui.settings.dialects.nested_values import to_fill_in
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.file_notes import ONLY_THIS
from tuner_tui.settings.file_update import update_tool_file
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.preset_file import LoadedPreset
from tuner_tui.settings.presets import load_preset
from tuner_tui.settings.yaml_reader import read_tool_file

CASES: dict[str, dict[str, Any]] = yaml.load(Path(__file__).with_name("files.yaml").read_text(), yaml.CSafeLoader)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A case whose files exist in `tmp_path`; `path` is the one to open."""
    values = CASES[request.param]
    for name, text in values["files"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return {**values, "path": tmp_path / values.get("open", next(iter(values["files"])))}


def job_values(loaded: LoadedPreset) -> dict[str, Any] | None:
    """What differs from a job's defaults, with the command as one text; the dialect is that of the file."""
    job, tool = loaded.preset.job, loaded.dialect
    if job is None or tool is None:
        return None
    assert isinstance(job, CommandJob)
    default = CommandJob(command=(), stated=job.stated)
    values = {name: value for name, value in structs.asdict(job).items() if value != getattr(default, name)}
    if values.get("dialect") == tool.name:
        del values["dialect"]
    return {**values, "command": shlex.join(job.command)}


def test_files_are_read_and_changed(case: dict[str, Any], tmp_path: Path) -> None:
    def portable(value: Any) -> Any:
        return yaml.safe_load(yaml.safe_dump(value, width=100_000).replace(str(tmp_path), "ROOT"))

    path: Path = case["path"]
    if "refused" in case:
        with pytest.raises(PresetError, match=case["refused"]):
            load_preset(path)
    if "settings" in case:
        loaded = load_preset(path)
        assert case.get("note", "") in "\n".join(loaded.notes)
        assert "more" not in case or not any(ONLY_THIS in note for note in loaded.notes)
        assert loaded.preset.settings == case["settings"]
        assert list(loaded.left_open) == case.get("left_open", [])
        assert loaded.dialect is not None
        assert loaded.dialect.name == case["tool"]
        job = loaded.preset.job or loaded.training
        assert isinstance(job, CommandJob)
        assert "stated" not in case or job.stated == case["stated"]
        assert "names" not in case or [job.model, job.data] == case["names"]
        assert portable(job_values(loaded)) == case["job"]
    for change in case.get("changes", ()):
        update = update_tool_file(path, Settings(**change["set"]), list(change["set"]))
        lines = [line for line in update.diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        assert lines == change.get("diff", "").splitlines()
        assert portable(list(update.left_out)) == ([change["left_out"]] if "left_out" in change else [])


@pytest.mark.parametrize("case", [name for name in CASES if "apply" in CASES[name]], indirect=True)
def test_commands_take_settings(case: dict[str, Any], tmp_path: Path) -> None:
    job, path, expected = load_preset(case["path"]).preset.job, case["path"], case["apply"]
    assert isinstance(job, CommandJob)
    file_values = read_tool_file(path).values if "config" in expected else None
    chosen = expected["set"]
    applied = build_command(job, Settings(**chosen), None, "out", chosen=chosen, own_config=file_values)
    assert shlex.join(applied.argv).replace(str(tmp_path), "ROOT") == expected["command"]
    assert yaml.safe_load(applied.config_yaml or "null") == expected.get("config")


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("--data=/path/to/data", True), ("path_to_data", True), ("/your_path/x.csv", True), ("your-org/chat", True),
        ("{TBD}", True), ("<model_name>", True), ("/data/<DATASET>/a", True), ("[YOUR_TOKEN]", True), ("???", True),
        ("/mnt/xxx/a", True), ("CHANGE_ME", True), ("Replace with a model", True),
        ("</s>", False), ("<image>", False), ("{epoch}-{loss}", False), ("[RGB]", False), ("FULL_SHARD", False),
        ("path/tools", False), ("data/yours", False), ("gpt2-xxl", False), ("{'a': 1}", False),
    ],
)  # fmt: skip
def test_placeholders_of_texts(text: str, is_open: bool) -> None:
    assert to_fill_in(text) is is_open
