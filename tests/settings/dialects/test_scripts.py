"""Notebooks and scripts that bring no job, and what in them is no training; `files.yaml` has the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner_tui.settings.dialects.file_changes import file_changes
from tuner_tui.settings.dialects.file_formats import parse_file, patch_file
from tuner_tui.settings.errors import PresetError
from tuner_tui.settings.job import CommandJob
from tuner_tui.settings.model import Settings, Value
from tuner_tui.settings.presets import load_preset
from tuner_tui.settings.tool_choice import tool_of_file

UNSLOTH = """from unsloth import FastLanguageModel
from trl import SFTTrainer, SFTConfig
model, tokenizer = FastLanguageModel.from_pretrained(model_name="acme/llama", max_seq_length=2048, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=16, lora_alpha=16, use_gradient_checkpointing="unsloth")
trainer = SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=2, max_steps=60, seed=3407))
"""


def opened(folder: Path, name: str, text: str) -> tuple[dict[str, Value], CommandJob | None]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    preset = load_preset(path).preset
    assert preset.job is None or isinstance(preset.job, CommandJob)
    return preset.settings, preset.job


def patched(path: Path, settings: Settings, *names: str) -> str:
    text = path.read_text()
    file = parse_file(text, path)
    changes = file_changes(tool_of_file(file, path), file.values, settings, names)
    return patch_file(text, changes.values, path)


def notebook(*sources: str) -> str:
    cells: list[dict[str, object]] = [
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": source_text.splitlines(True),
        }
        for source_text in sources
    ]
    cells.insert(1, {"cell_type": "markdown", "metadata": {}, "source": ["TrainingArguments(seed=9)"]})
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def test_a_notebook_is_read_and_changed_in_its_cells(tmp_path: Path) -> None:
    text = notebook("%%bash\npip install x", "!pip install unsloth\n%matplotlib inline\n" + UNSLOTH)
    settings, job = opened(tmp_path, "train.ipynb", text)
    assert (settings["max_steps"], job) == (60, None)
    written = patched(tmp_path / "train.ipynb", Settings(max_steps=61, lora_r=16), "max_steps", "lora_r")
    assert written == text.replace("max_steps=60", "max_steps=61")


def test_keys_that_are_numbers_are_no_names_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from transformers import HfArgumentParser, TrainingArguments\n")
    with pytest.raises(PresetError, match="neither a preset"):
        opened(tmp_path, "data.yaml", "train: images/train\nnames: {0: box}\n")


def test_a_notebook_that_starts_a_script(tmp_path: Path) -> None:
    text = notebook(
        "!pip install x --quiet",
        "n = pick()\nsteps = 7\n!deepspeed train.py \\\n  --model_id $n --max_steps {steps} --seed 3",
    )
    assert opened(tmp_path, "train.ipynb", text) == ({"max_steps": 7, "seed": 3}, None)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", "def f(:\n", "a.py:1: is not valid Python"),
        ("a.ipynb", "{}", "is not a notebook"),
        ("a.ipynb", "[" * 5000, "is not a notebook"),
        ("a.sh", "echo hello\n", "in which no training command was found"),
        ("a.py", "(" * 5000, "is not valid Python"),
        (
            "a.py",
            "model = AutoModel.from_pretrained('acme', attn_implementation='sdpa')\nmodel(1)\n",
            "no training was found in",
        ),
        (
            "a.ipynb",
            notebook(
                "model = AutoModel.from_pretrained('acme')\nDataLoader(rows, batch_size=8)\ndef train():\n    pass\n"
            ),
            "no training was found in this notebook",
        ),
        ("tokenizer_train.sh", "python tokenizers/train.py --all\n", "in which no training command was found"),
        (
            "run.sh",
            "python run_glue.py --do_eval --learning_rate 1\n",
            "in which no training command was found",
        ),
        ("ci.sh", "docker build -t a-train .\ndocker push x/a-train\nrun_train 5\n", "no training command was found"),
        ("ci.sh", "python -m py_compile train_it.py other.py\n", "in which no training command was found"),
        (".env", "BATCH_SIZE=8\nLR=0.1\n", "file of variables in which no training command was found"),
        ("README.md", "# A\n```sh\npip install a\npython eval.py --lr 1\n```\n", "no training command was found"),
        (
            "ci.yaml",
            "'on': push\njobs: {a: {steps: [{run: swift -h}, {run: swift build}, {run: composer install}]}}\n",
            "is a GitHub workflow in which no training command was found",
        ),
        ("a.yaml", "batch_size: 1000\nnum_workers: 8\nseed: 1\n", "are not training settings"),
        ("a.json", '{"lr": 0.1, "epochs": 3, "metrics": {"val_loss": 0.3}}', "is a record of a training"),
        ("a.json", '{"architectures": ["A"], "model_type": "a", "torch_dtype": "bfloat16"}', "a model's configuration"),
    ],
)
def test_what_is_no_training_ends_in_a_sentence(tmp_path: Path, name: str, text: str, expected: str) -> None:
    with pytest.raises(PresetError, match=expected):
        opened(tmp_path, name, text)


def test_variables_of_a_notebook(tmp_path: Path) -> None:
    code = "LR = 2e-4\nMODEL = f'acme/{7}b'\nfor size in (1, 2): fit(size)\nbatch_size = size\n"
    call = "model = AutoModel.from_pretrained(MODEL)\noptimizer = SGD(p, lr=LR)\nloss.backward()\n"
    loaded_settings, job = opened(tmp_path, "train.ipynb", notebook(code, call))
    assert (loaded_settings, job) == ({"learning_rate": 2e-4, "optim": "sgd"}, None)


def test_a_program_names_what_its_configuration_lacks(tmp_path: Path) -> None:
    opened_file = "experiment: {seed: 3}\ntrainer: {lr: 0.1, epochs: 2}\n"
    (tmp_path / "train.py").write_text(
        "class Experiment:\n    seed: int\n    name: str = MISSING\nclass Config:\n    experiment: Experiment\n"
        "@hydra.main(config_path='conf', config_name='config')\ndef main(config): loss.backward()\n"
    )
    opened(tmp_path, "conf/config.yaml", opened_file)
    (note,) = (note for note in load_preset(tmp_path / "conf/config.yaml").notes if "not complete" in note)
    assert "it needs experiment.name; give it in the command" in note


def test_a_variable_that_doubles_on_each_line_is_not_put_in(tmp_path: Path) -> None:
    settings, _ = opened(tmp_path, "job.sh", "A=1\n" + "A=$A$A\n" * 50 + "python train.py --seed 7 --run_name $A\n")
    assert settings == {"seed": 7}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("python a.py \\\n --seed 3 \\\n # --lr 1 \\\n --epochs 2\n", "it ends before the options in the next lines"),
        ("python a.py --seed 3 --model_name $1\n", "it needs $1"),
        ("python a.py --seed 3 --text '<image>' --out runs/<name>\n", "it needs <name>"),
        ("source conf.sh\npython a.py --seed 3\n", "conf.sh is sourced before it"),
        (
            "ARGS=(--seed 3)\nif x; then\n  ARGS+=(--bf16)\nfi\npython a.py ${ARGS[@]}\n",
            "ARGS is extended under a condition",
        ),
        (': "${DATA:?give it}"\npython a.py --seed 3\n', "it needs $DATA"),
        ('if [ -z "$OUT" ]; then\n  echo "no OUT"\n  exit 1\nfi\npython a.py --seed 3\n', "it needs $OUT"),
        ('[[ -z "${KEY:-}" ]] && exit 2\npython a.py --seed 3\n', "it needs $KEY"),
        ('test -z "$RUN" && exit 1\nRUN=x\nexec python a.py --seed 3\n', "it needs $RUN"),
        ("if x; then\n  N=1\nelse\n  N=2\nfi\npython a.py --seed $N\n", "N has several values"),
        ("python a.py --seed 3\npython b.py --seed 4\n", "it has 2 training commands"),
        ("python a.py -m x.y=1 x.z=2 x.w=3\npython a.py x.y=3\n", "it has 2 training commands"),
        ("DATA=$1\npython a.py --seed 3 --data $DATA --out $PWD/$(date)\n", "it needs $1 (DATA); the script"),
        ("for S in 1 2; do\n  python a.py --seed $S\ndone\n", "it runs once for each $S"),
        ("python a.py --seed 3 --data $D --out ${HOSTNAME}_$LOGNAME\n", "it needs $D; the script"),
        ("cd $WORK\npython a.py --seed 3\n", "it needs $WORK"),
        ("cd /path/to/acme\npython a.py --seed 3 --out $1\n", "placeholders to fill in: /path/to/acme"),
    ],
)
def test_a_command_that_is_not_complete_is_said_to_be(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "run.sh").write_text(text)
    loaded = load_preset(tmp_path / "run.sh")
    assert isinstance(loaded.preset.job, CommandJob)
    assert loaded.preset.job.command == ("bash", str(tmp_path / "run.sh"))
    (note,) = (note for note in loaded.notes if "not complete" in note)
    assert reason in note


@pytest.mark.parametrize("call", ["typer.run(main)", "fire.Fire(main)", "main()"])
def test_a_command_without_arguments_that_its_script_must_have(tmp_path: Path, call: str) -> None:
    (tmp_path / "fit.py").write_text(f"def main(name: str, data_dir: str, seed: int = 3): fit()\nif x:\n    {call}\n")
    (tmp_path / "run.sh").write_text("accelerate launch fit.py --data-dir d\n")
    assert [note for note in load_preset(tmp_path / "run.sh").notes if "it needs --name; give it" in note]


def test_a_container_that_trains_nothing_is_named_and_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "compose.yaml").write_text("version: '3.8'\nservices: {web: {image: nginx, command: nginx -g x}}\n")
    with pytest.raises(PresetError, match="is a Compose file in which no training command was found"):
        load_preset(tmp_path / "compose.yaml")


def test_a_tilde_in_a_script_is_the_home_folder(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("python train.py --lr 0.1 --output_dir ~/out --name '~'")
    job = load_preset(tmp_path / "run.sh").preset.job
    assert isinstance(job, CommandJob)
    assert job.command[4:] == ("--output_dir", str(Path.home() / "out"), "--name", "~")
