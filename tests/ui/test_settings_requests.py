"""Presets: load, save, save as; nothing is lost or replaced without a yes."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.widgets import Static

from tests.fakes.inventories import box
from tests.fakes.memory_outlooks import parts_of
from tests.fakes.ui_backend import INTERPRETER, FakeBox, listed, opened
from tests.ui.pilots import (
    PATIENCE_S,
    ScreenPilot,
    app_of,
    dialog,
    notes,
    on_screen,
    preset_shown,
    press_to,
    press_until,
    screen_text,
    until,
    value,
)
from tuner_tui.advice.estimate import EstimateRequest, PeakMemory
from tuner_tui.advice.file_checks import file_findings
from tuner_tui.advice.preflight import PreflightCheck
from tuner_tui.advice.recommend.recommendation import with_recommended
from tuner_tui.settings.file_update import FileUpdate
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import OriginKind
from tuner_tui.settings.presets import load_preset, preset_path
from tuner_tui.ui.backend import Backend
from tuner_tui.ui.feeds import BackendError
from tuner_tui.ui.panels.settings import SettingEdited
from tuner_tui.ui.records import NameTakenError

BATCH = "per_device_train_batch_size"


async def test_undo_brings_back_what_was_changed_before_a_preset_was_loaded() -> None:
    """16 was changed to 24 and to 32, then a preset of 2 was loaded and changed to 3."""
    async with on_screen(FakeBox()) as pilot:
        await press_to(pilot, "Presets", "plus", "plus", "p")
        await press_until(pilot, lambda: value(pilot, BATCH) == 2, "enter")
        assert "u restores your changes" in notes(pilot)
        await pilot.press("plus")
        seen = []
        for key in "uuuu":
            await pilot.press(key)
            seen.append((value(pilot, BATCH), preset_shown(pilot)))
        assert seen == [(2, "cpu"), (32, "llama-1b-sft changed"), (24, "llama-1b-sft changed"), (16, "llama-1b-sft")]
        assert "These are the settings of llama-1b-sft; ctrl+r redoes it." in notes(pilot), "as all of the form changes"
        seen = []
        for key in ("ctrl+r", "ctrl+y", "ctrl+r", "ctrl+r"):
            await pilot.press(key)
            seen.append((value(pilot, BATCH), preset_shown(pilot)))
        assert seen == [(24, "llama-1b-sft changed"), (32, "llama-1b-sft changed"), (2, "cpu"), (3, "cpu changed")]


async def test_the_list_of_presets_says_that_a_cpu_only_torch_uses_no_gpu() -> None:
    cpu_only = replace(INTERPRETER, packages={**INTERPRETER.packages, "torch": "2.13.0+cpu"}, torch_cuda=None)
    async with on_screen(FakeBox(interpreter=cpu_only, presets=[listed("large", "For a large GPU")])) as pilot:
        heading = "Would fit the GPU (this PyTorch is CPU-only)"
        await press_until(pilot, lambda: heading in screen_text(pilot.app), "p")


async def test_a_list_filters_as_it_is_typed_and_says_what_an_item_changes() -> None:
    presets = [
        listed("cpu", "Any machine without a GPU"),
        listed("llama-1b-sft", "Instruction tuning", yours=True, precision="bf16"),
        listed("large", "For a large GPU", suits=True, per_device_train_batch_size=48, precision="bf16"),
    ]
    async with on_screen(FakeBox(presets=presets)) as pilot:
        await press_to(pilot, "Presets", "p")
        await until(pilot, lambda: "Fits this machine" in screen_text(pilot.app))
        text = screen_text(pilot.app)
        assert 0 < text.index("Yours") < text.index("Fits this machine")
        assert "current" in text
        assert "for this machine" in text
        assert "✓ 56 ± 2 of 80 GiB" in text
        await press_until(pilot, lambda: "filter: large▏  1 of 3" in screen_text(pilot.app), *"large")
        assert "For a large GPU" in screen_text(pilot.app)
        assert "micro batch 16 → 48" in screen_text(pilot.app)
        assert "esc clear" in screen_text(pilot.app)
        await press_until(pilot, lambda: "filter:" not in screen_text(pilot.app), "escape")
        assert "esc back" in screen_text(pilot.app)
        await press_until(pilot, lambda: "filter: lrage▏  nearest: large  1 of 3" in screen_text(pilot.app), *"lrage")
        await press_until(pilot, lambda: "filter:" not in screen_text(pilot.app), "escape")
        await press_to(pilot, "", "slash", *"sft", "enter")
        assert preset_shown(pilot) == "llama-1b-sft"


async def test_the_cursor_is_on_a_preset_that_fits_as_soon_as_that_is_known() -> None:
    presets = [listed("other-machine", "Any machine without a GPU"), listed("large", "For a large GPU")]
    async with on_screen(FakeBox(presets=presets)) as pilot:
        await press_to(pilot, "Presets", "p")
        await until(pilot, lambda: "For a large GPU" in screen_text(pilot.app))
        assert "Any machine without" not in screen_text(pilot.app)
        assert "Not for this machine as it is" in screen_text(pilot.app)
        assert "needs 8 GPUs" in screen_text(pilot.app)


async def test_enter_on_a_choice_opens_its_list() -> None:
    async with on_screen(FakeBox()) as pilot:
        await press_to(pilot, "precision", "down", "down", "enter")
        await press_until(pilot, lambda: value(pilot, "precision") == "fp16", *"fp16", "enter")


def test_saving_under_the_name_of_a_shipped_preset_asks_first() -> None:
    """The copy would be used in place of it from then on."""
    backend = Backend()
    config = backend.load_preset("demo")
    with pytest.raises(NameTakenError, match="demo comes with tuner-tui") as raised:
        backend.save_preset("demo", config, False)
    assert raised.value.shipped
    assert not preset_path("demo").exists()
    backend.save_preset("demo", config, True)
    [listed] = [preset for preset in backend.list_presets(None) if preset.name == "demo"]
    assert (listed.yours, listed.hides_shipped) == (True, True)
    [cpu_preset] = [preset for preset in backend.list_presets(None) if preset.name == "cpu"]
    assert (cpu_preset.yours, cpu_preset.hides_shipped) == (False, False)
    with pytest.raises(NameTakenError, match="Replace it"):
        backend.save_preset("demo", config, False)


async def test_save_writes_the_settings_and_the_mark_goes() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await press_until(pilot, lambda: "llama-1b-sft" in box.saved, "plus", "ctrl+s")
        await until(pilot, lambda: preset_shown(pilot) == "llama-1b-sft")
        assert box.saved["llama-1b-sft"].resolved.settings.per_device_train_batch_size == 24


async def test_nothing_is_replaced_without_a_yes() -> None:
    box = FakeBox(saved={"llama-1b-sft": opened()})
    async with on_screen(box) as pilot:
        await press_to(pilot, "Save", "plus", "ctrl+s")
        await press_to(pilot, "", "n")
        assert box.saved["llama-1b-sft"].resolved.settings.per_device_train_batch_size == 8
        await press_to(pilot, "Save", "ctrl+s")
        await pilot.press("y")
        await until(pilot, lambda: box.saved["llama-1b-sft"].resolved.settings.per_device_train_batch_size == 24)


async def test_a_name_that_is_no_file_name_keeps_the_dialog() -> None:
    async with on_screen(FakeBox()) as pilot:
        await press_to(pilot, "Save as", "S")
        await pilot.press(*"/x", "enter")
        message = pilot.app.screen.query_one("#message", Static)
        await until(pilot, lambda: "not a preset name" in str(message.content))
        assert dialog(pilot) == "Save as"


async def test_save_as_asks_for_a_name() -> None:
    box = FakeBox()
    async with on_screen(box) as pilot:
        await press_to(pilot, "Save as", "S")
        await press_until(pilot, lambda: "llama-1b-sft-2" in box.saved, "end", *"-2", "enter")
        await until(pilot, lambda: preset_shown(pilot) == "llama-1b-sft-2")


WORKERS, PREFETCH, PERSISTENT = "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_persistent_workers"


def advising(box: FakeBox) -> Backend:
    return box.backend(recommend=with_recommended)


async def test_what_nobody_chose_is_recommended_with_its_reason() -> None:
    box = FakeBox(opened=opened(per_device_train_batch_size=24))
    async with on_screen(box, backend=advising(box)) as pilot:
        await until(pilot, lambda: value(pilot, "precision") == "bf16")
        editing = app_of(pilot).session.state.editing
        assert editing is not None
        origin = editing.current.origin("precision")
        assert origin.kind is OriginKind.RECOMMENDED
        assert "bf16 tensor cores" in origin.detail
        assert value(pilot, "per_device_train_batch_size") == 24
        assert not editing.dirty


async def test_it_follows_what_is_chosen_and_comes_back_with_undo() -> None:
    box = FakeBox(opened=opened())
    async with on_screen(box, backend=advising(box)) as pilot:
        await until(pilot, lambda: value(pilot, PERSISTENT) is True)
        before = value(pilot, PREFETCH)
        app_of(pilot).post_message(SettingEdited(WORKERS, "0"))
        await until(pilot, lambda: value(pilot, WORKERS) == 0)
        assert (value(pilot, PREFETCH), value(pilot, PERSISTENT)) == (None, False)
        app_of(pilot).action_do("undo")
        await until(pilot, lambda: value(pilot, PERSISTENT) is True)
        assert value(pilot, PREFETCH) == before


async def test_a_command_and_the_settings_of_a_run_stay_as_they_are() -> None:
    command = replace(opened(), job=CommandJob(command=("python", "train.py")))
    for as_it_is in (command, replace(opened(), as_it_ran=True)):
        box = FakeBox(opened=as_it_is)
        async with on_screen(box, backend=advising(box)) as pilot:
            editing = app_of(pilot).session.state.editing
            assert editing is not None
            assert editing.current == as_it_is.resolved


def test_a_preset_saved_here_holds_only_what_somebody_chose() -> None:
    box = FakeBox()
    chosen = opened("mine", learning_rate=1e-5)
    filled = with_recommended(chosen.resolved, box.inventory, INTERPRETER, chosen.job)
    Backend().save_preset("mine-alone", replace(chosen, resolved=filled), False)
    assert load_preset(preset_path("mine-alone")).preset.settings == {"learning_rate": 1e-5}


@pytest.mark.parametrize(
    ("terminal", "copied"),
    [
        ({"TERM": "xterm"}, "\x1b]52;c;bWljcm8gYmF0Y2ggMjQ=\a"),
        ({"TERM": "screen", "TMUX": "x"}, "\x1bPtmux;\x1b\x1b]52;c;bWljcm8gYmF0Y2ggMjQ=\a\x1b\\"),
    ],
)
async def test_the_settings_are_copied_to_the_terminal(
    terminal: dict[str, str], copied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.delenv("STY", raising=False)
    for name, text in terminal.items():
        monkeypatch.setenv(name, text)
    async with on_screen(FakeBox()) as pilot:
        written = record_writes(pilot, monkeypatch)
        await press_until(pilot, lambda: copied in written, "plus", "y")
        assert "Copied the settings" in notes(pilot)


async def test_a_terminal_without_a_clipboard_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "vt100")
    async with on_screen(FakeBox()) as pilot:
        await press_until(pilot, lambda: "Not copied" in notes(pilot), "y")


async def test_a_tools_file_is_written_after_a_yes() -> None:
    update = FileUpdate(Path("/x/sft.yaml"), "seed: 1  # mine\n", "seed: 2  # mine\n", ("no place for tf32",))
    box = FakeBox(file_update=update)
    async with on_screen(box) as pilot:
        for answer in ("n", "y"):
            await press_to(pilot, "Write the file", "ctrl+s")
            assert "+seed: 2  # mine" in screen_text(pilot.app)
            assert "no place for tf32" in screen_text(pilot.app)
            assert box.written == []
            await press_to(pilot, "", answer)
        await until(pilot, lambda: box.written == [update])
        assert box.saved == {}


def record_writes(pilot: ScreenPilot, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Everything that the app writes to its terminal from now on."""
    driver, written = app_of(pilot)._driver, list[str]()
    assert driver is not None
    monkeypatch.setattr(driver, "write", written.append)
    return written


TRL_FILE = """# mine
model_name_or_path: Qwen/Qwen2.5-0.5B  # small
dataset_name: trl-lib/Capybara
max_length: 512
per_device_train_batch_size: 4
future_option: 3
"""


def test_the_screens_settings_are_put_into_the_tools_file(tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text(TRL_FILE)
    backend = Backend(flags={"per_device_train_batch_size": "8"})
    config = backend.load_preset(str(path))
    update = backend.update_of_file(config)
    assert update is not None
    assert update.after == TRL_FILE.replace("train_batch_size: 4", "train_batch_size: 8")
    assert backend.export_settings(config) == ("sft.yaml", update.after)
    backend.write_file(update)
    assert path.read_text() == update.after


def test_without_a_tools_file_the_settings_are_copied_for_the_jobs_tool() -> None:
    backend = Backend(flags={"learning_rate": "1e-5"})
    config = backend.load_preset("cpu")
    assert backend.update_of_file(config) is None
    title, text = backend.export_settings(config)
    assert title == "the settings for Hugging Face Trainer"
    assert "learning_rate: 1.0e-05" in text.splitlines()


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_where_the_memory_goes_by_kind_and_by_module(size: tuple[int, int]) -> None:
    async with on_screen(FakeBox(), size=size) as pilot:
        await press_to(pilot, "Memory · llama-1b · micro batch 16", "m")
        assert re.search(r"weights +fp32 +4\.0 GiB +10 %", screen_text(pilot.app))
        assert re.search(r"MLP +bf16 +24\.0 GiB +60 % .* checkpointing on", screen_text(pilot.app))
        assert "GiB. CUDA context" in screen_text(pilot.app)
        await press_until(pilot, lambda: "model.embed_tokens" in screen_text(pilot.app), "m")
        assert re.search(r"model\.layers\.\*\.mlp · .*fp32 +3\.0 GiB +8 %", screen_text(pilot.app))
        await press_to(pilot, "", "escape")


async def test_while_the_model_is_traced_the_dialog_says_so_and_can_be_closed() -> None:
    go_on = threading.Event()

    def trace(request: EstimateRequest) -> PeakMemory:
        go_on.wait(PATIENCE_S)
        return parts_of(request)

    box = FakeBox()
    async with on_screen(box, backend=box.backend(memory_parts=trace)) as pilot:
        await press_until(pilot, lambda: "Tracing the model" in screen_text(pilot.app), "m")
        await press_to(pilot, "", "escape")
        await press_until(pilot, lambda: "Tracing the model" in screen_text(pilot.app), "m")
        go_on.set()
        await until(pilot, lambda: "by module" in screen_text(pilot.app))


async def test_without_a_gpu_the_memory_of_python_is_extra() -> None:
    box = FakeBox()
    backend = box.backend(memory_parts=lambda asked: parts_of(asked)._replace(context="Python with torch"))
    async with on_screen(box, backend=backend, size=(120, 40)) as pilot:
        await press_until(pilot, lambda: "Python with torch and allocator overhead" in screen_text(pilot.app), "m")


async def test_memory_that_cannot_be_traced_is_explained() -> None:
    def refuse(request: EstimateRequest) -> PeakMemory:
        raise BackendError("The command does not name its model.")

    box = FakeBox()
    async with on_screen(box, backend=box.backend(memory_parts=refuse)) as pilot:
        await press_until(pilot, lambda: "does not name its model" in notes(pilot), "m")
        assert dialog(pilot) == ""


async def test_a_larger_effective_batch_is_asked_for_before_it_is_taken() -> None:
    box = FakeBox(opened=opened(per_device_train_batch_size=8, gradient_accumulation_steps=1))
    async with on_screen(box) as pilot:
        await until(pilot, lambda: app_of(pilot).main.outlook is not None)
        await press_to(pilot, "Fit batch", "f")
        assert "is the whole effective batch already" in screen_text(pilot.app)
        assert "so that an epoch still has" in screen_text(pilot.app)
        await press_to(pilot, "", "escape")
        assert value(pilot, BATCH) == 8
        await press_to(pilot, "Fit batch", "f")
        await press_until(pilot, lambda: value(pilot, BATCH) > 8, "enter")
        assert re.search(r"effective batch [\d,]+ → [\d,]+", notes(pilot))


async def test_what_an_opened_file_lacks_here_is_a_finding_until_the_command_is_another() -> None:
    lacking = file_findings((PreflightCheck("Program", "wrong", "pond was not found on PATH.", "pip install pond"),))
    async with on_screen(FakeBox(opened=opened("/srv/pond.yaml"), lacking=lacking)) as pilot:
        main, store = app_of(pilot).main, app_of(pilot).session._store
        await until(pilot, lambda: lacking[0] in main.findings)
        assert lacking[0].remedies[0].title == "pip install pond"
        store.update(store.state.with_job(CommandJob(command=("python", "x.py"))))
        assert lacking[0] not in main.findings


def test_a_file_is_checked_as_doctor_checks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "lf.yaml"
    path.write_text("model_name_or_path: gpt2\nstage: sft\nfinetuning_type: full\ndataset: pond\noutput_dir: out\n")
    config = Backend().load_preset(str(path))
    wrong = [finding.sentence for finding in Backend().file_findings(config, box(), INTERPRETER)]
    assert wrong == [
        "llamafactory-cli was not found on PATH.",
        "dataset_dir: the list of datasets data/dataset_info.json does not exist.",
    ]
    assert Backend().file_findings(replace(config, as_it_ran=True), box(), INTERPRETER) == ()
    assert Backend().file_findings(opened(), box(), INTERPRETER) == ()
