"""What a training's file needs and the machine does not have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from tests.fakes.inventories import box, make_gpu, python
from tests.memory.shapes import GPT2
from tuner_tui.advice.file_checks import (
    FileSystem,
    NamedPath,
    TrainingFile,
    call_checks,
    checkpoint_bytes,
    file_checks,
    listed_files,
    named_paths,
    program_checks,
    required_packages,
)
from tuner_tui.advice.preflight import PreflightCheck
from tuner_tui.core.units import GIB
from tuner_tui.memory.training_code import TrainingCode
from tuner_tui.settings.dialects.dialect import dialects
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Origin, OriginKind, Resolved, Settings

EXAMPLES = yaml.load(Path(__file__).with_name("file_checks.yaml").read_text("utf-8"), yaml.CSafeLoader)
JOB = CommandJob(command=("axolotl", "train", "/srv/my.yml"), apply="yaml", model="gpt2", task="causal-lm")


def resolved(**values: Any) -> Resolved:
    return Resolved(Settings(**values), dict.fromkeys(values, Origin(OriginKind.PRESET)))


def checks(
    values: dict[str, Any], parsed: Resolved, there: tuple[str, ...] = (), free_gib: float = 100, **changes: Any
) -> dict[str, PreflightCheck]:
    files = FileSystem(
        exists=lambda name: name in there,
        read=lambda name: '{"frogs": {"file_name": "held/frogs.json"}}' if name in there else "",
        free_bytes=lambda name: int(free_gib * GIB),
        find_program=lambda name: None if name == "axolotl" and "axolotl" not in there else f"/bin/{name}",
        missing_modules=lambda names: [name for name in names if name not in there],
    )
    tool = changes.pop("tool", None)
    file = TrainingFile(Path("/srv/my.yml"), values, parsed, JOB, tool and dialects()[tool])
    interpreter = changes.pop("interpreter", python(accelerate="1.15.0"))
    inventory = replace(box(), **changes)
    all_checks = file_checks(file, inventory, interpreter, files)
    return {check.name: check for check in all_checks if check.state != "good"}


def test_a_file_that_needs_nothing_more(tmp_path: Path) -> None:
    assert checks({"datasets": [{"path": "acme/chat"}]}, resolved(max_length=512), ("axolotl",)) == {}


@pytest.mark.parametrize(
    ("values", "there", "name", "advice"),
    EXAMPLES["missing"],
)
def test_what_is_missing_names_the_remedy(values: dict[str, Any], there: list[str], name: str, advice: str) -> None:
    check = checks(values, resolved(), tuple(there))[name]
    assert check.state == "wrong"
    assert advice in check.advice


@pytest.mark.parametrize(
    ("tool", "needs_peft"), [("trl", True), ("axolotl", True), ("hydra", False), ("litgpt", False)]
)
def test_a_tool_with_a_lora_of_its_own_needs_no_peft(tool: str, needs_peft: bool) -> None:
    bare = replace(python(), packages={"torch": "2.13.0"})
    asked = checks({"lora": {"r": 8}}, resolved(peft_method="lora"), ("axolotl",), tool=tool, interpreter=bare)
    assert ("Packages" in asked) == needs_peft


def test_the_model_the_disk_and_the_machine() -> None:
    long = checks({}, resolved(max_length=2048))["Length"]
    assert (long.state, long.advice) == ("wrong", "--set max_length=1024")  # GPT-2 has 1,024 positions
    full = checks({"output_dir": "out"}, resolved(save_total_limit=3), free_gib=2)["Checkpoints"]
    assert full.advice == "Choose another output folder."  # the next is written before the oldest goes
    # 5 GiB hold three of 1.4 GiB, one of which is written before the oldest is deleted.
    several = checks({}, resolved(save_total_limit=3, save_strategy="steps"), free_gib=5)["Checkpoints"]
    assert several.advice.startswith("--set save_total_limit=2,")
    assert (several.state, several.sentence[:18]) == ("warning", "Up to 4 checkpoint")
    assert (
        "4 checkpoints of about 1.4 GiB"
        in checks({}, resolved(save_total_limit=3, save_strategy="steps"), free_gib=2)["Checkpoints"].sentence
    )
    ends = checks({}, resolved(), logout_warning="systemd ends it. To keep it: `loginctl enable-linger me`.")["Logout"]
    assert ends.advice == "To keep it: `loginctl enable-linger me`."


def test_the_size_of_a_checkpoint() -> None:
    """GPT-2 has 124,439,808 parameters (its model card): 4 bytes each, and Adam's two moments of 4 bytes."""
    assert checkpoint_bytes(GPT2, Settings()) == pytest.approx(124_439_808 * 12, rel=0.01)
    assert checkpoint_bytes(GPT2, Settings(peft_method="lora", lora_r=8)) < 40e6
    whole = checkpoint_bytes(GPT2, Settings(peft_method="lora", lora_r=8), TrainingCode(whole_layers=1))
    assert whole > 50_257 * 768 * 12
    assert checkpoint_bytes(GPT2, Settings(optim="sgd")) == pytest.approx(124_439_808 * 4, rel=0.01)
    assert checkpoint_bytes(GPT2, Settings(weights_dtype="bf16")) == pytest.approx(124_439_808 * 6, rel=0.01)


@pytest.mark.parametrize(
    ("values", "packages"),
    EXAMPLES["packages"],
)
def test_the_packages_that_values_ask_for(values: dict[str, Any], packages: list[str]) -> None:
    assert list(required_packages(values)) == packages


def test_a_variable_of_a_shell_is_no_value_of_the_reader() -> None:
    values = {"train_file": "${POND_DIR}/a.txt", "output_dir": "${names[${SLURM_ARRAY_TASK_ID}]}"}
    assert checks(values, resolved(), ("axolotl", "${POND_DIR}/a.txt")) == {}
    assert "{POND_DIR}/a.txt" in checks({"train_file": "{POND_DIR}/a.txt"}, resolved(), ("axolotl",))["Files"].sentence


def test_the_files_that_values_name() -> None:
    values = {
        "base_model": "acme/llama", "model_name_or_path": "/models/llama", "dataset": ["acme/chat#500", "my.jsonl#20"],
        "train_file": "data/a.csv", "deepspeed": "ds.json", "output_dir": "./out", "path": "https://x/y.json",
        "resume_from_checkpoint": None,
    }  # fmt: skip
    assert [name.path for name in named_paths(values)] == ["/models/llama", "my.jsonl", "data/a.csv", "ds.json"]
    of_command = {"model_name_or_path": "/models/a", "checkpoint_dir": "/out/a", "data_path": "$DATA_DIR/a"}
    assert [name.path for name in named_paths(of_command, dialects()["hf-args"])] == ["/models/a"]
    names = named_paths({"stage": "sft", "dataset": "identity,mine"})
    assert [name.path for name in names] == ["data/dataset_info.json"]
    assert named_paths({"stage": "sft", "dataset": "identity", "dataset_dir": "ONLINE"}) == ()


def test_the_files_of_a_list_of_datasets() -> None:
    values, listing = {"stage": "sft", "dataset": "frogs"}, "data/dataset_info.json"
    missing = checks(values, resolved(), (listing,), tool="llama-factory")["Files"]
    assert missing.sentence == "dataset: the data data/held/frogs.json does not exist."
    there = (listing, "data/held/frogs.json")
    assert "Files" not in checks(values, resolved(), there, tool="llama-factory")


@pytest.mark.parametrize("text", ["[1]", "{", "7", '{"frogs": [], "toads": {"file_name": 3}}', "[" * 100_000])
def test_a_damaged_list_of_datasets_names_no_file(tmp_path: Path, text: str) -> None:
    files = FileSystem(lambda name: True, lambda name: text, lambda name: None, lambda name: None, lambda names: ())
    values = {"dataset": "frogs,toads"}
    file = TrainingFile(tmp_path / "sft.yaml", values, resolved(), CommandJob(command=("x",)), dialects()["hf-args"])
    assert not list(listed_files(NamedPath("dataset_dir", "data/dataset_info.json", "data"), file, files))


@pytest.mark.parametrize(("mode", "is_missing"), [("w", False), ("r", True)])
def test_a_file_that_the_script_writes_is_not_missing(tmp_path: Path, mode: str, is_missing: bool) -> None:
    fit = f'path = str(folder / "frogs.toml")\nwith open(path, "{mode}") as file: pass\n'
    all_checks = opened(tmp_path, "python fit.py", values={"data_path": "/srv/frogs.toml"}, fit=fit)
    assert [check.state for check in all_checks if check.name == "Files"] == ["wrong" if is_missing else "good"]


def test_a_program_of_the_checkout_is_installed_from_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project.scripts]\nfrog-train = 'frog.train:main'\n")
    files = FileSystem(lambda name: True, lambda name: "", lambda name: None, lambda name: None, lambda names: ())
    jobs = [CommandJob(command=(name, "x"), apply="none", cwd=str(tmp_path)) for name in ("frog-train", "pond-train")]
    advice = [check.advice for job in jobs for check in program_checks(job, files)]
    assert advice == ["pip install -e .", "Add the folder of pond-train to PATH."]


def opened(
    folder: Path,
    command: str,
    text: str = "",
    notes: tuple[str, ...] = (),
    env: Mapping[str, str] = MappingProxyType({}),
    values: Mapping[str, Any] = MappingProxyType({}),
    **sources: str,
) -> list[PreflightCheck]:
    """The checks of a shell script with a command, next to scripts with `sources`, on a machine with two GPUs."""
    for name, source in {"LICENSE": "", **{f"{name}.py": source for name, source in sources.items()}}.items():
        (folder / name).write_text(source)
    path = folder / "go.sh"
    path.write_text(f"{text}\n{command}\n")
    job = CommandJob(command=tuple(command.split()), apply="hf-args", dialect="hf-args", cwd=str(folder), env=dict(env))
    files = FileSystem(
        exists=lambda name: name != "/srv/frogs.toml",
        read=lambda name: "",
        free_bytes=lambda name: None,
        find_program=lambda name: name,
        missing_modules=lambda names: [name for name in names if name not in ("torch", "os")],
    )
    file = TrainingFile(path, values, resolved(), job, dialects()["hf-args"], notes)
    return [*file_checks(file, box(make_gpu("T4"), make_gpu("T4")), python(), files)]


@pytest.mark.parametrize(
    ("command", "text", "asked"),
    [
        ("torchrun --nproc_per_node 8 fit.py", "", 8),
        ("accelerate launch --num_processes 4 fit.py", "", 4),
        ("torchrun --nproc_per_node 2 fit.py", "", None),
        ("torchrun --nproc_per_node 8 fit.py", "#SBATCH --gres=gpu:8", None),
        ("torchrun --nnodes 4 --nproc_per_node 2 fit.py", "", None),
    ],
)
def test_more_gpus_than_the_machine_has(tmp_path: Path, command: str, text: str, asked: int | None) -> None:
    sentences = [check.sentence for check in opened(tmp_path, command, text) if check.name == "GPUs"]
    assert sentences == ([] if asked is None else [f"The training asks for {asked} GPUs, and 2 are visible here."])


def test_what_a_program_imports_is_installed(tmp_path: Path) -> None:
    tried = "try:\n    import apex\nexcept ImportError:\n    pass\n"
    (tmp_path / "src" / "pond").mkdir(parents=True)
    fit = f"import os, cv2, pond, utils\nfrom parts import Net\n{tried}def f():\n    import late\n"
    parts = "import torch, einops as e\nif True:\n    import triton\n"
    (check,) = [c for c in opened(tmp_path, "python fit.py", fit=fit, parts=parts) if c.name == "Imports"]
    assert check.sentence == "fit.py imports cv2, einops, which /env/bin/python does not have."
    assert check.advice == "/env/bin/python -m pip install opencv-python einops"
    assert check.state == "wrong"
    assert "Imports" not in {c.name for c in opened(tmp_path, "python fit.py", "pip install -r r.txt", fit=fit)}
    of_cluster = opened(tmp_path, "python fit.py", "#SBATCH --gres=gpu:8", fit=fit)
    assert [c.state for c in of_cluster if c.name == "Imports"] == ["warning"]


def test_a_call_needs_a_module_that_no_script_imports(tmp_path: Path) -> None:
    fit = "from lightning.pytorch.cli import LightningCLI\nLightningCLI().trainer.fit(model)\n"
    (check,) = [c for c in opened(tmp_path, "python fit.py", fit=fit) if c.name == "Packages"]
    assert "LightningCLI needs jsonargparse, which is not installed" in check.sentence
    assert check.advice == "/env/bin/python -m pip install 'jsonargparse[signatures]'"
    plain = "from lightning import Trainer\nTrainer().fit(model)\n"
    assert "Packages" not in {c.name for c in opened(tmp_path, "python fit.py", fit=plain)}


def test_weights_that_a_switch_leaves_as_they_are_need_no_package() -> None:
    section = {"is_quantized": False, "quantization_config": {"load_in_4bit": True}}
    assert "Packages" not in checks(section, resolved(quantization="none"))
    assert "Packages" in checks(section, resolved())


def test_an_argument_that_the_installed_release_has_not(tmp_path: Path) -> None:
    note = "evaluation_strategy is read as eval_strategy steps: removed by transformers 4.51"
    (check,) = [c for c in opened(tmp_path, "python fit.py", notes=(note,), fit="") if c.name == "Arguments"]
    assert check.advice == "Write eval_strategy in its place."
    pinned = opened(tmp_path, "python fit.py", "pip install transformers==4.40", notes=(note,), fit="")
    assert "Arguments" not in {c.name for c in pinned}
    fit = "TrainingArguments('x', evaluation_strategy='steps', learning_rate=0.1)"
    (check,) = [c for c in opened(tmp_path, "python fit.py", "python fit.py", fit=fit) if c.name == "Arguments"]
    assert "has no argument evaluation_strategy" in check.sentence
    assert "Arguments" not in {c.name for c in opened(tmp_path, "python fit.py", "module load torch", fit=fit)}


def test_the_folder_that_a_section_saves_to() -> None:
    check = checks({"output": {"dir": "/big"}}, resolved(save_total_limit=3), free_gib=2)["Checkpoints"]
    assert "are free for /big" in check.sentence


def test_an_argument_that_the_installed_trainer_has_not() -> None:
    source = (
        "from {} import SFTTrainer, Trainer\nSFTTrainer(model, packing=True, tokenizer=t)\nTrainer(m, tokenizer=t)\n"
    )
    found = [*call_checks(source.format("trl"), python(trl="1.16.0", transformers="5.23.0"))]
    assert [check.sentence for check in found] == [
        f"SFTTrainer of trl 1.16.0 has no argument {name}: the call raises a TypeError."
        for name in ("packing", "tokenizer")
    ]
    assert found[1].advice == "Write processing_class in its place."
    (check,) = call_checks(source.format("transformers"), python(trl="1.16.0", transformers="5.23.0"))
    assert check.sentence.startswith("Trainer of transformers 5.23.0 has no argument tokenizer")
    for text, release in (
        (source.format("trl"), "0.9.6"),
        (f"import unsloth\n{source}", "1.16.0"),
        ("print 1", "1.16.0"),
    ):
        assert not [*call_checks(text.format("trl"), python(trl=release))]


@pytest.mark.parametrize(
    ("shown", "hides"), [("", True), ("all", True), ("0, 1", False), ("GPU-5f", False), ("$G", False)]
)
def test_a_command_that_hides_the_gpus(tmp_path: Path, shown: str, hides: bool) -> None:
    all_checks = opened(tmp_path, "python fit.py", fit="", env={"CUDA_VISIBLE_DEVICES": shown})
    assert any("which hides every GPU" in check.sentence for check in all_checks) is hides


def test_a_program_that_is_no_python(tmp_path: Path) -> None:
    note = "fit.py:1 is not valid Python 3.11 and not read: Missing parentheses in call to 'print'"
    (check,) = [c for c in opened(tmp_path, "python fit.py", notes=(note,), fit="print 1") if c.name == "Program"]
    assert (check.state, check.sentence) == ("wrong", f"{note}.")
