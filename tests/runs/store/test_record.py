"""`run.json`: round trips, and a sentence for each kind of damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tuner_tui.core.json_struct import to_json
from tuner_tui.runs.store.folder import RunFolder, create_folder
from tuner_tui.runs.store.record import RecordError, RunRecord, read_record, write_record
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import AppliedRemedy, Origin, OriginKind, Resolved, Settings


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_folder(tmp_path)


def record(**more: object) -> RunRecord:
    plain: dict[str, object] = {
        "id": "r001",
        "created_t": 1.5,
        "job": CommandJob(command=("python", "train.py"), apply="hf-args", aliases={"seed": "s"}),
        "resolved": Resolved(Settings(learning_rate=1e-4), {"learning_rate": Origin(OriginKind.FLAG, "--set")}),
        "argv": ("python", "train.py"),
        "cwd": "/",
        "interpreter": "/usr/bin/python3",
        "host": "box",
        "program_version": "0.1.0",
        "output_dir": "/out",
        "versions": {"torch": "2.13.0"},
        "lineage": ("r000",),
        "memory_limit_bytes": 5,
    }
    return RunRecord(**{**plain, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("job", [BuiltinJob(), CommandJob(command=("x",))])
def test_the_record_comes_back(folder: RunFolder, job: BuiltinJob | CommandJob) -> None:
    write_record(folder, record(job=job))
    assert read_record(folder) == record(job=job)
    assert folder.record.stat().st_mode & 0o077 == 0


def test_a_title_names_the_script_in_place_of_the_launcher() -> None:
    argv = ("python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "fine.py", "--seed", "1")
    job = CommandJob(command=("python", "fine.py"), launcher="torchrun", processes=2)
    assert record(argv=argv, job=job).title == "torchrun fine.py --seed 1"
    assert record(argv=("/opt/bin/python", "-u", "fine.py")).title == "python -u fine.py"


REMEDY = AppliedRemedy("larger-batch", "batch 8 → 16", "gpu-underused", "r000", {"seed": 3}, (1.1, 1.5), 7)


def test_a_remedy_comes_back_with_what_it_promised(folder: RunFolder) -> None:
    resolved = Resolved(Settings(seed=4), {"seed": Origin(OriginKind.REMEDY, "gpu-underused", REMEDY)})
    write_record(folder, record(resolved=resolved))
    assert read_record(folder).resolved.last_remedies == (REMEDY,)


def test_a_remedy_that_set_a_variable_comes_back(folder: RunFolder) -> None:
    fewer = replace(REMEDY, before={}, env_before={"OMP_NUM_THREADS": None})
    write_record(folder, record(resolved=Resolved(Settings(), env_remedies=(fewer,))))
    assert read_record(folder).resolved.last_remedies == (fewer,)


@pytest.mark.parametrize("damage", [{"run": "../../etc"}, {"speed": "fast"}, {"before": None}])
def test_a_damaged_remedy_is_passed_over(folder: RunFolder, damage: dict[str, object]) -> None:
    remedy = {**to_json(REMEDY), **damage}
    changed(folder, origins={"seed": ["remedy", "gpu-underused"]}, settings={"seed": 4}, remedies=[remedy])
    resolved = read_record(folder).resolved
    assert (resolved.settings.seed, resolved.last_remedies) == (4, ())


def changed(folder: RunFolder, **more: object) -> None:
    write_record(folder, record())
    folder.record.write_text(json.dumps({**json.loads(folder.record.read_text()), **more}))


def test_what_a_newer_program_added_is_passed_over(folder: RunFolder) -> None:
    changed(folder, mood="good", origins={"learning_rate": ["omen", ""]}, settings={"learning_rate": 0.1, "aura": 1})
    record = read_record(folder)
    assert record.resolved.settings == Settings(learning_rate=0.1)
    assert record.resolved.origins == {}


def test_a_setting_now_out_of_bounds_is_left_at_its_default(folder: RunFolder) -> None:
    changed(folder, settings={"learning_rate": -1, "seed": 7})
    assert read_record(folder).resolved.settings == Settings(seed=7)


def test_a_newer_record_is_named_as_such(folder: RunFolder) -> None:
    changed(folder, v=99, program_version="9.9")
    with pytest.raises(RecordError, match=r"newer tuner-tui \(9\.9\)"):
        read_record(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"null", b"\xff", b'{"v":1,"id":7}', b"[" * 100_000])
def test_damage_is_a_sentence(folder: RunFolder, content: bytes) -> None:
    folder.record.write_bytes(content)
    with pytest.raises(RecordError, match=r"run\.json is damaged"):
        read_record(folder)


def test_a_newer_record_may_not_say_by_what_it_was_written(folder: RunFolder) -> None:
    folder.record.write_text('{"v": 99}')
    with pytest.raises(RecordError, match=r"newer tuner-tui\.$"):
        read_record(folder)
