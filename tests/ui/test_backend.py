"""The backend on this machine: presets keep their description, and tuner.yaml counts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from tests.fakes.inventories import python
from tests.fakes.situations import box, make_gpu
from tests.fakes.tuning_views import FakeTunings
from tests.fakes.ui_backend import FakeBackend
from tests.runs.builders import whole_run
from tuner_tui.advice.finding import Remedy
from tuner_tui.core.line_files import append_line
from tuner_tui.core.procfs import ProcessId, this_machine
from tuner_tui.runs.events.types import InEffect
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import SupervisorState, write_supervisor_state
from tuner_tui.runs.store.record import read_record, write_record
from tuner_tui.settings.edit_history import EditHistory
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Resolved, Settings, Value
from tuner_tui.settings.presets import find_preset
from tuner_tui.ui.backend import Backend
from tuner_tui.ui.feeds import BackendError
from tuner_tui.ui.records import NameTakenError
from tuner_tui.ui.tunings import Tunings


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_saved_preset_keeps_its_description() -> None:
    backend = Backend()
    opened = backend.load_preset("t4-16gb")
    backend.save_preset("my-t4", opened, False)
    first, saved = find_preset("t4-16gb").preset, find_preset("my-t4").preset
    assert (saved.name, saved.about, saved.for_, saved.source) == ("my-t4", first.about, first.for_, first.source)
    with pytest.raises(NameTakenError):
        backend.save_preset("my-t4", opened, False)


def test_the_project_file_gives_its_job_and_its_notes(tmp_path: Path) -> None:
    (tmp_path / "tuner.yaml").write_text("job: {kind: command, command: [python, train.py], apply: hf-args}\n")
    opened = Backend().load_preset("demo")
    assert isinstance(opened.job, CommandJob)
    (tmp_path / "tuner.yaml").write_text("per_device_train_batch_size: 12\npush_to_hub: true\n")
    opened = Backend().load_preset("demo")
    assert opened.resolved.settings.per_device_train_batch_size == 12
    assert any("push_to_hub" in note and note.startswith("tuner.yaml") for note in opened.notes)


def test_the_interpreter_of_the_command_line_may_be_edited_and_is_not_saved() -> None:
    backend = Backend(interpreter=Path("/opt/train/bin/python"))
    opened = backend.load_preset("demo")
    assert opened.job.interpreter == "/opt/train/bin/python"
    backend.save_preset("mine-here", opened, False)
    saved = find_preset("mine-here").preset.job
    assert saved is not None
    assert saved.interpreter is None
    edited = replace(opened, job=structs.replace(opened.job, interpreter="/other/python"))
    assert edited.launch_request().job.interpreter == "/other/python"
    assert edited.launch_request().interpreter is None


@pytest.mark.parametrize(("real", "fake"), [(Backend, FakeBackend), (Tunings, FakeTunings)])
def test_the_fake_answers_every_call_itself(real: type, fake: type) -> None:
    calls = {name for name, value in vars(real).items() if callable(value) and not name.startswith("_")}
    assert calls <= vars(fake).keys()


def test_the_picker_offers_what_was_made_for_this_machine_first() -> None:
    listed = Backend().list_presets(box(make_gpu(name="Tesla T4", capability=(7, 5))))
    suiting = [item.name for item in listed if item.suits]
    assert "t4-16gb" in suiting
    assert "v100-16gb" not in suiting
    assert [item.name for item in listed[: len(suiting)]] == suiting
    assert not any(preset.suits for preset in Backend().list_presets(None))


def test_presets_are_judged_by_the_gpus_though_torch_is_cpu_only() -> None:
    """A GPU of 24 GB beside 64 GB of RAM."""
    backend, machine = Backend(), box(make_gpu(memory_total_bytes=24 * 2**30))
    entries = [entry for entry in backend.list_presets(machine) if entry.name in ("qlora-8b-24gb", "lora-8b-80gb")]
    cpu_only = backend.preset_outlooks(entries, machine, python("2.13.0+cpu", None, bitsandbytes="0.49.0"))
    cuda = backend.preset_outlooks(entries, machine, python("2.13.0", "13.0", bitsandbytes="0.49.0"))
    verdicts = {}
    for name, outlook in cpu_only.items():
        assert outlook.memory.on_gpu
        assert outlook.memory.estimate is not None
        assert outlook.memory.estimate == cuda[name].memory.estimate
        verdicts[name] = (outlook.lacks, outlook.memory.estimate.verdict)
    assert verdicts == {"qlora-8b-24gb": ("", "fits"), "lora-8b-80gb": ("", "too large")}


def test_a_preset_that_fits_says_which_packages_are_missing() -> None:
    backend, machine = Backend(), box(make_gpu(memory_total_bytes=24 * 2**30))
    entries = [entry for entry in backend.list_presets(machine) if entry.name in ("qlora-8b-24gb", "full-1b-24gb")]
    outlooks = backend.preset_outlooks(entries, machine, python())
    assert {name: each.lacks for name, each in outlooks.items()} == dict.fromkeys(
        ("qlora-8b-24gb", "full-1b-24gb"), "bitsandbytes"
    )


def test_what_trains_on_the_cpu_waits_for_no_gpu() -> None:
    backend, machine = Backend(), box(make_gpu(uuid="GPU-0"), make_gpu(index=1, uuid="GPU-1"))
    config = replace(backend.load_preset("demo"), job=BuiltinJob(launcher="torchrun", processes=2))
    waits = [
        dict(backend.offer_queueing(config, machine, interpreter).lines)["Waits for"]
        for interpreter in (python("2.13.0+cpu", None), python("2.13.0", "13.0"))
    ]
    assert waits == ["the CPU", "2 of 2 GPUs"]


def test_presets_are_judged_by_the_gpus_with_most_free_memory() -> None:
    busy, free = (
        make_gpu(index=n, memory_total_bytes=80 * 2**30, memory_used_bytes=u * 2**30) for n, u in ((0, 60), (1, 0))
    )
    backend, machine = Backend(), box(busy, free)
    entries = [entry for entry in backend.list_presets(machine) if entry.name == "lora-8b-80gb"]
    memory = backend.preset_outlooks(entries, machine, python("2.13.0", "13.0"))["lora-8b-80gb"].memory
    assert memory.estimate is not None
    assert (memory.estimate.verdict, memory.against) == ("fits", "on GPU 1")
    part = structs.replace(free, memory_used_bytes=40 * 2**30)
    memory = backend.preset_outlooks(entries, box(busy, part), python("2.13.0", "13.0"))["lora-8b-80gb"].memory
    assert memory.estimate is not None
    assert (memory.estimate.capacity_bytes, memory.against) == (40 * 2**30, "free on GPU 1")


def test_a_completed_run_is_continued_only_by_a_longer_training(tmp_path: Path) -> None:
    folder = whole_run(tmp_path)
    backend = Backend()
    shown = backend.open_run(folder.path)
    for config in (None, shown):
        with pytest.raises(BackendError, match=r"r001 has completed.*t starts a new run"):
            backend.offer_restart(folder.path, config)
    longer = replace(shown, resolved=Resolved(shown.resolved.settings.changed(max_steps=900)))
    with pytest.raises(BackendError, match="checkpoint"):
        backend.offer_restart(folder.path, longer)


def test_a_run_that_has_ended_is_read_once_for_the_idle_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path))
    root = tmp_path / "runs"
    first = whole_run(root)
    recent = Backend().watch_recent()
    [row] = next(recent)
    first.events.write_text("")
    second = whole_run(root)
    rows = {each.run: each for each in next(recent)}
    assert [*rows] == [second.id, first.id]
    assert replace(rows[first.id], age_s=row.age_s) == row
    assert (row.status, row.step) == ("ended", rows[second.id].step)


def test_a_restart_starts_at_step_0_without_a_checkpoint_and_says_so(tmp_path: Path) -> None:
    folder, backend = whole_run(tmp_path), Backend()
    write_record(folder, replace(read_record(folder), job=BuiltinJob(), cwd=str(tmp_path), interpreter=sys.executable))
    lost = SupervisorState(this_machine(), ProcessId(2**22 - 7, 1), 1.0, exit_code=1, outcome="failed")
    write_supervisor_state(folder.state, lost)
    offer = backend.offer_restart(folder.path, None)
    assert offer.sentence.startswith("r001 has no checkpoint to resume from; a new run starts at step 0, with the same")


def test_a_restart_names_the_variables_that_a_remedy_has_set(tmp_path: Path) -> None:
    folder, backend = whole_run(tmp_path), Backend()
    job = CommandJob(command=(sys.executable, "-c", "print()"), apply="inject")
    write_record(folder, replace(read_record(folder), job=job, cwd=str(tmp_path), interpreter=sys.executable))
    ended = SupervisorState(this_machine(), ProcessId(2**22 - 7, 1), 1.0, exit_code=1, outcome="failed")
    write_supervisor_state(folder.state, ended)
    shown = backend.open_run(folder.path)
    fewer = replace(shown, job=replace(job, env={"OMP_NUM_THREADS": "1"}))
    assert backend.offer_restart(folder.path, fewer).sentence.endswith("at step 0, with OMP_NUM_THREADS=1.")


def test_a_restart_says_how_its_effective_batch_changes(tmp_path: Path) -> None:
    folder, backend = whole_run(tmp_path), Backend()
    record = replace(read_record(folder), job=BuiltinJob(), cwd=str(tmp_path), interpreter=sys.executable)
    write_record(folder, record)
    ended = SupervisorState(this_machine(), ProcessId(2**22 - 7, 1), 1.0, exit_code=1, outcome="failed")
    write_supervisor_state(folder.state, ended)
    append_line(folder.events, encode_event(InEffect(t=3.0, values={"optimizer": "AdamW"})))
    shown, settings = backend.open_run(folder.path), record.resolved.settings
    micro, effective = settings.per_device_train_batch_size, settings.effective_batch()
    changed = EditHistory.of(shown.resolved).edit("per_device_train_batch_size", 3 * micro).current
    offer = backend.offer_restart(folder.path, replace(shown, resolved=changed))
    assert dict(offer.lines)["Effective batch"] == f"{effective} → {3 * effective}"
    assert "Effective batch" not in dict(backend.offer_restart(folder.path, shown).lines)


def test_a_retry_starts_at_step_0_without_a_checkpoint_and_says_so(tmp_path: Path) -> None:
    folder, backend = whole_run(tmp_path), Backend()
    record = replace(read_record(folder), job=BuiltinJob(), cwd=str(tmp_path), interpreter=sys.executable)
    write_record(folder, record)
    change: dict[str, Value] = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    offer = backend.offer_retry(folder.path, Remedy("smaller", "", change), "gpu-oom", None)
    assert offer.sentence == (
        "r001 has no checkpoint to resume from; a new run starts at step 0, with micro batch 8 → 4, accumulation 1 → 2."
    )
    command = CommandJob(command=(sys.executable, "-c", "pass"), apply="inject")
    write_record(folder, replace(record, job=command, resolved=Resolved(Settings())))
    with folder.events.open("ab") as events:
        events.write(encode_event(InEffect(t=3.0, values={"per_device_train_batch_size": 32})))
    for micro in (4, Settings().per_device_train_batch_size):
        change["per_device_train_batch_size"] = micro
        offer = backend.offer_retry(folder.path, Remedy("smaller", "", change), "gpu-oom", None)
        assert f"with micro batch 32 → {micro}," in offer.sentence, "the command brought its batch itself"


def test_a_start_is_compared_with_what_the_last_run_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path))
    folder, backend = whole_run(tmp_path / "runs"), Backend()
    job = CommandJob(command=(sys.executable, "-c", "print()"), apply="inject")
    first = replace(
        read_record(folder), job=job, cwd=str(tmp_path), resolved=Resolved(Settings()), interpreter=sys.executable
    )
    write_record(folder, first)
    name = "per_device_train_batch_size"
    append_line(folder.events, encode_event(InEffect(t=3.0, values={name: 16})))
    shown = backend.open_run(folder.path)
    for size, changes in ((24, "micro batch 16 → 24"), (16, "the same settings")):
        changed = EditHistory.of(shown.resolved).edit(name, size).current
        assert dict(backend.offer_launch(replace(shown, resolved=changed)).lines)["Since r001"] == changes


def test_what_a_trainer_does_by_default_is_not_what_its_command_says(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from transformers import Trainer, TrainingArguments\nTrainer().train()\n")
    facts = [
        Backend().read_job(CommandJob(command=("python", "train.py", *options), cwd=str(tmp_path)))
        for options in ((), ("--eval_strategy", "no"))
    ]
    assert [facts.given["eval_strategy"] for facts in facts] == ["no", "no"]
    assert [facts.sources.get("eval_strategy") for facts in facts] == ["default", None]
