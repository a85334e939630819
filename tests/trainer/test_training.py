"""Real trainings of a few steps: each task and adapter, resuming, stopping, what is left on disk."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import tuner_tui
from tests.late_module import late_module, skip_without
from tests.trainer.test_dataset import write_csv
from tuner_tui.trainer.job_file import JobError, parse_config
from tuner_tui.trainer.main import main

skip_without("peft")
torch, transformers = late_module("torch"), late_module("transformers")
training = late_module("tuner_tui.trainer.training")

pytestmark = [
    pytest.mark.train,
    # What libraries say about their own future is not about this job.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

TRAINER = Path(tuner_tui.__file__).parent / "trainer"
SMALL = {
    "max_samples": 128,
    "max_length": 32,
    "per_device_train_batch_size": 16,
    "per_device_eval_batch_size": 32,
    "max_steps": 6,
    "logging_steps": 2,
    "eval_strategy": "no",
    "save_strategy": "no",
    "disable_tqdm": True,
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """So little work is done fastest by one thread, above all while other tests run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def argument_names() -> set[str]:
    return {field.name for field in dataclasses.fields(transformers.TrainingArguments)}


def train(output: Path, **values: Any) -> dict[str, Any]:
    """Train in this process, save at the end, and return the state that the last checkpoint holds."""
    job, arguments = parse_config(
        {**SMALL, "save_strategy": "steps", "save_steps": 3, "output_dir": str(output), **values}
    )
    assert training.run_job(job, arguments) == 0
    return state(output / f"checkpoint-{arguments.max_steps}")


def state(checkpoint: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((checkpoint / "trainer_state.json").read_text())
    return loaded


def losses(of: dict[str, Any]) -> list[tuple[int, float]]:
    return [(entry["step"], entry["loss"]) for entry in of["log_history"] if "loss" in entry]


def evaluation(of: dict[str, Any]) -> dict[str, float]:
    return next(entry for entry in reversed(of["log_history"]) if "eval_loss" in entry)


def config_file(folder: Path, **values: Any) -> Path:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({**SMALL, "output_dir": str(folder / "out"), **values}))
    return path


def start(config: Path, *launcher: str, script: Path = TRAINER) -> subprocess.Popen[str]:
    """The job as tuner-tui starts it: a script with a configuration file, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-P", *launcher, str(script), str(config)],
        start_new_session=True,
        cwd=config.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_accuracy_is_the_share_of_right_classes() -> None:
    prediction = SimpleNamespace(predictions=[[0], [0], [1], [1], [2]], label_ids=[0, 0, 0, 1, 2])
    assert training.classification_metrics(prediction) == {"accuracy": 0.8}


def test_predicted_class_is_the_highest_score() -> None:
    scores = torch.tensor([[0.1, 0.9], [2.0, -1.0]])
    assert training.predicted_class(scores, None).tolist() == [1, 0]
    assert training.predicted_class((scores, "hidden states"), None).tolist() == [1, 0]


def test_classification_of_a_file_as_a_script(tmp_path: Path) -> None:
    rows = [(f"{word} number {n}", word) for n in range(60) for word in ("apple", "pear")]
    write_csv(tmp_path / "train.csv", rows)
    config = config_file(
        tmp_path, data="train.csv", learning_rate=2e-3, max_steps=20, eval_strategy="steps", eval_steps=10,
        save_strategy="steps",
    )  # fmt: skip
    out, err = start(config).communicate(timeout=400)
    assert "data train.csv: 108 samples to train, 12 to evaluate, 2 classes" in out, err
    assert "'eval_accuracy': '1'" in out or "'eval_accuracy': 1.0" in out
    final = tmp_path / "out" / "final"
    assert json.loads((final / "config.json").read_text())["id2label"] == {"0": "apple", "1": "pear"}
    assert (final / "tokenizer.json").is_file()


def test_bad_input_is_one_line_and_exit_code_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(config_file(tmp_path, data="absent.csv"))]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "error: data absent.csv: no such file"


LONG = {"max_steps": 100_000, "logging_steps": 1, "save_strategy": "steps", "save_steps": 100_000}


@pytest.mark.full
def test_sigterm_to_all_saves_a_checkpoint_from_which_training_goes_on(tmp_path: Path) -> None:
    """Loader workers get the signal too, as from a cluster's scheduler."""
    process = start(config_file(tmp_path, **LONG, dataloader_num_workers=1))
    assert process.stdout is not None
    assert next(line for line in process.stdout if "'loss'" in line)
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 128 + signal.SIGTERM, err
    (checkpoint,) = (tmp_path / "out").glob("checkpoint-*")
    step = state(checkpoint)["global_step"]
    assert f"stopped by SIGTERM after step {step}" in out
    resumed = train(tmp_path / "out", max_steps=step + 1, logging_steps=1, resume_from_checkpoint=str(checkpoint))
    assert resumed["global_step"] == step + 1


THEN_THREADS = """
import sys
from pathlib import Path
from tuner_tui.trainer.main import main

code = main(sys.argv[1:])
left = sorted({path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")})
print(f"left over: {left}\\n", end="")  # in one piece: both ranks write to one pipe
sys.exit(code)
"""


@pytest.mark.full
def test_two_ranks_stop_after_the_same_step_and_leave_no_thread_of_gloos(tmp_path: Path) -> None:
    """torchrun hands the signal on to each rank; here one has got it before, and only that one twice. A thread of
    gloo's could abort them as Python ends."""
    (tmp_path / "then_threads.py").write_text(THEN_THREADS)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    process = start(config_file(tmp_path, **LONG, use_cpu=True), *torchrun, script=tmp_path / "then_threads.py")
    assert process.stdout is not None
    assert next(line for line in process.stdout if "'loss'" in line)
    ranks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(ranks[-1]), signal.SIGTERM)
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=400)
    (checkpoint,) = (tmp_path / "out").glob("checkpoint-*")
    step = state(checkpoint)["global_step"]
    assert out.count(f"stopped by SIGTERM after step {step}") == 1, err
    assert "RuntimeError" not in err
    assert len(list(checkpoint.glob("rng_state_*.pth"))) == 2
    left = [line for line in out.splitlines() if line.startswith("left over:")]
    assert len(left) == 2, err
    assert not any("gloo" in line for line in left), left


@pytest.mark.full
def test_the_default_task_is_learnt(tmp_path: Path) -> None:
    result = train(
        tmp_path, max_samples=2000, max_length=64, max_steps=40, logging_steps=10, learning_rate=2e-3, warmup_steps=4,
        per_device_train_batch_size=32, eval_strategy="steps", eval_steps=40, save_steps=40,
    )  # fmt: skip
    assert evaluation(result)["eval_accuracy"] > 0.3  # chance is 0.05
    assert losses(result)[-1][1] < 0.75 * losses(result)[0][1]


def test_a_language_model_reports_perplexity(tmp_path: Path) -> None:
    result = train(tmp_path, task="causal-lm", learning_rate=1e-3, eval_strategy="steps", eval_steps=6)
    last = evaluation(result)
    assert last["eval_perplexity"] == pytest.approx(2.718281828459045 ** last["eval_loss"], rel=1e-6)
    assert losses(result)[-1][1] < losses(result)[0][1]


@pytest.mark.parametrize(
    ("method", "task"),
    [
        ("lora", "classification"),
        pytest.param("dora", "classification", marks=pytest.mark.full),
        pytest.param("dora", "causal-lm", marks=pytest.mark.full),
    ],
)
def test_adapters_train_few_weights_also_with_checkpointing(
    method: str, task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"peft_method": method, "lora_r": 4, "learning_rate": 1e-2, "max_steps": 3, "logging_steps": 1}
    new = "activation_checkpointing" in argument_names()
    checkpointing = {"activation_checkpointing" if new else "gradient_checkpointing": True}
    result = train(tmp_path, task=task, **values, **checkpointing)
    saved = json.loads((tmp_path / "final" / "adapter_config.json").read_text())
    assert (saved["r"], saved["use_dora"]) == (4, method == "dora")
    assert all(entry["grad_norm"] > 0 for entry in result["log_history"] if "grad_norm" in entry)
    share = float(capsys.readouterr().out.partition("trained (")[2].partition("%")[0])
    assert 0 < share < 20


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder and the state of a whole training of six steps."""
    folder = tmp_path_factory.mktemp("classifier")
    return folder, train(folder)


def test_a_trained_model_is_trained_on_for_other_classes(
    classifier: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    data = write_csv(tmp_path / "train.csv", [(f"{word} {n}", word) for n in range(30) for word in ("apple", "pear")])
    train(tmp_path, max_steps=3, model=str(classifier[0] / "final"), data=str(data))
    assert len(json.loads((tmp_path / "final" / "config.json").read_text())["id2label"]) == 2


def test_a_resumed_training_ends_as_an_uninterrupted_one(
    classifier: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, whole = classifier
    resumed = train(tmp_path, resume_from_checkpoint=str(folder / "checkpoint-3"))
    assert losses(resumed)[-1] == pytest.approx(losses(whole)[-1], rel=1e-6)


def test_a_resumed_training_reads_the_rows_of_its_epoch(tmp_path: Path) -> None:
    """The order by length of the second epoch of 8 steps is not that of the first."""
    new = "train_sampling_strategy" in argument_names()
    sampling = {"train_sampling_strategy": "group_by_length"} if new else {"group_by_length": True}
    length = {**sampling, "max_samples": 32, "per_device_train_batch_size": 4, "max_steps": 16, "save_steps": 11}
    job, arguments = parse_config({**SMALL, **length, "save_strategy": "steps", "output_dir": str(tmp_path)})
    data = SimpleNamespace(
        train=[{"input_ids": [row + 1] * (1 + row % 8), "labels": 0} for row in range(32)], evaluation=None
    )

    def rows(resume_from: Path | None) -> list[list[int]]:
        tokenizer = training.load_tokenizer(job)
        model = training.prepare_model(job, arguments, tokenizer, ["a", "b"])
        trainer = training.build_trainer(job, arguments, model, tokenizer, data, training.CheckpointOnSigterm())
        collate, batches = trainer.data_collator, []

        def recorded(samples: Any) -> Any:
            batches.append([sample["input_ids"][0] for sample in samples])
            return collate(samples)

        trainer.data_collator = recorded
        trainer.train(resume_from_checkpoint=resume_from and str(resume_from))
        return batches

    whole = rows(None)
    assert sorted(whole[:8]) != sorted(whole[8:16])
    assert rows(tmp_path / "checkpoint-11") == whole[11:]


@pytest.mark.full
def test_dropout_of_adapters_goes_on_as_well(tmp_path: Path) -> None:
    values = {"task": "causal-lm", "lora_dropout": 0.1, "peft_method": "lora"}
    whole = train(tmp_path, **values)
    resumed = train(tmp_path, **values, resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert losses(resumed)[-1] == pytest.approx(losses(whole)[-1], rel=1e-6)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"model": "bert-base", "max_length": 513}, "max_length 513 is more than the 512 tokens bert-base supports"),
        ({"model": "bert-base", "task": "causal-lm"}, "bert-base is an encoder"),
        ({"resume_from_checkpoint": "/"}, "is not a checkpoint"),
    ],
)
def test_what_cannot_train_is_refused_before_training(values: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=sentence):
        train(tmp_path, **values)


def test_too_little_data_trains_without_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "train.jsonl"
    data.write_text(json.dumps({"text": "one document " * 100}))
    train(tmp_path / "out", task="causal-lm", data=str(data), max_steps=1, save_steps=1, eval_strategy="epoch")
    assert "no evaluation" in capsys.readouterr().out


@pytest.mark.full
def test_samples_of_like_length_go_together_and_workers_prepare_them(tmp_path: Path) -> None:
    new = "train_sampling_strategy" in argument_names()
    sampling = {"train_sampling_strategy": "group_by_length"} if new else {"group_by_length": True}
    workers = {"dataloader_num_workers": 1, "dataloader_prefetch_factor": 2, "dataloader_persistent_workers": True}
    assert train(tmp_path, **sampling, **workers)["global_step"] == 6
