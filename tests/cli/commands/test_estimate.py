"""`tuner-tui estimate`: what it prints, from which way of estimating, and its exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace
from typer.testing import Result

from tests.cli.invoke import invoke
from tests.fakes.inventories import box, make_gpu, python
from tests.runs.read.test_measured_memory import run
from tests.runs.store.test_record import record
from tuner_tui.cli.machine import LocalMachine
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.memory.device import CONTEXT_BYTES, RESERVED_BYTES, Device
from tuner_tui.memory.trace import trace_cache_entry, trace_request
from tuner_tui.runs.events.types import InEffect, Steps
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.record import write_record
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Resolved, Settings

Call = Callable[..., Result]
A10 = box(make_gpu("A10", gib=22.5), cores=8)
MIB = 2**20
GPT2 = ("--model", "gpt2", "--task", "causal-lm", "--set", "precision=bf16", "--set", "max_length=512")


def caller(inventory: Inventory, interpreter: Interpreter) -> Call:
    return partial(invoke, "estimate", machine=lambda path: LocalMachine(inventory, interpreter))


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """On a GPU, with a Python that is not there: nothing can be traced."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return caller(A10, python())


def remember(settings: dict[str, Any], tmp_path: Path) -> None:
    """Puts a trace into the cache, as if it had been made before."""
    job, device = BuiltinJob(task="causal-lm", model="gpt2"), Device(on_gpu=True)
    question = trace_request(job, convert(settings, Settings), device)
    entry = trace_cache_entry(python(), question)
    peaks = [{"batch": batch, "total": (1500 + 100 * batch) * MIB, "gradients": 0, "copies": 0} for batch in (2, 8, 32)]
    entry.write({
        "parameters": 124_439_808, "trainable": 124_439_808, "weight_bytes": 500 * MIB, "gradient_bytes": 500 * MIB,
        "state_bytes": 1000 * MIB, "step_bytes": 2000 * MIB, "train": peaks, "evaluation": peaks[:2],
    })  # fmt: skip


def values(call: Call) -> dict[str, Any]:
    """The settings of a first, untraced estimate: what is recommended here is filled in."""
    document: dict[str, Any] = json.loads(call(*GPT2, "--json").stdout)["settings"]
    return document


def test_parts_bar_verdict_and_largest_batch(call: Call) -> None:
    result = call(*GPT2)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0].startswith("For causal-lm with gpt2 · micro batch ")
    names = ("weights", "gradients", "optimizer states", "activations", "CUDA context", "allocator overhead", "peak")
    for name in names:
        assert any(line.startswith(f"  {name} ") for line in lines), name
    assert any(re.match(r"peak memory ━+.* GiB", line) for line in lines)
    assert any(line.startswith("fits · largest micro batch ") for line in lines)
    assert "Basis: by formula. CUDA context and allocator overhead are assumed" in " ".join(lines)
    assert "Less exact, not traced" in result.stderr
    assert all(len(line) <= 120 for line in lines)


def test_json_is_one_document(call: Call) -> None:
    document = json.loads(call(*GPT2, "--json").stdout)
    assert document["total_bytes"] == pytest.approx(sum(document["parts"].values()), abs=4)
    assert document["low_bytes"] < document["total_bytes"] < document["high_bytes"]
    assert set(document["device"]) == {"on_gpu", "capability", "capacity_bytes", "limited", "started", "gpu_count"}
    assert "cannot be started" in document["not_traced"]
    assert document["settings"]["max_length"] == 512


def test_a_trace_goes_before_the_closed_form(call: Call, tmp_path: Path) -> None:
    settings = values(call)
    remember(settings, tmp_path)
    document = json.loads(call(*GPT2, "--json").stdout)
    assert (document["rests_on"], document["not_traced"]) == ("traced", None)
    assert document["parts"]["weights"] == 500 * MIB
    assert document["model"]["slope_bytes"] == pytest.approx(103 * MIB)


def test_a_run_that_was_measured_corrects_it_and_is_named(call: Call, tmp_path: Path) -> None:
    settings = values(call)
    peak = Steps(t=1.0, step=9, own_steps=9, allocated_peak_bytes=4000 * MIB, reserved_peak_bytes=4400 * MIB)
    folder = run(tmp_path / "state" / "runs", peak, job=BuiltinJob(task="causal-lm", model="gpt2"))
    stored = json.loads(folder.record.read_text())
    folder.record.write_text(json.dumps({**stored, "settings": settings}))
    document = json.loads(call(*GPT2, "--json").stdout)
    assert document["rests_on"].startswith("by formula, corrected by run r001: ×")
    assert document["parts"]["slack"] == pytest.approx(400 * MIB, abs=2)
    assert "assumed" not in call(*GPT2).stdout


def test_a_command_names_no_model(call: Call, tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("version: 1\nname: mine\njob: {kind: command, command: [python, train.py]}\nsettings: {}\n")
    result = call("--preset", str(preset))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Cannot tell which model `python train.py` trains" in result.stderr
    named = call("--preset", str(preset), "--model", "gpt2", "--task", "causal-lm")
    assert (named.exit_code, "No micro batch is given: 8 is assumed." in named.stderr) == (0, True)
    preset.write_text(preset.read_text().replace("{}", "{per_device_train_batch_size: 2}"))
    assert "micro batch is named" not in call("--preset", str(preset), "--model", "gpt2").stderr


def test_a_command_takes_what_its_runs_and_trials_took(call: Call, tmp_path: Path) -> None:
    """1 GiB for each sample on top of 2 GiB, and the context of the GPU."""
    text = "version: 1\nname: mine\njob: {kind: command, command: [python, train.py], apply: inject}\nsettings: "
    preset = tmp_path / "mine.yaml"
    job, root = CommandJob(command=("python", "train.py"), apply="inject"), tmp_path / "state" / "runs"
    for micro in (2, 4, 8):
        peak = (2 + micro) << 30
        steps = Steps(t=1.0, step=9, own_steps=9, allocated_peak_bytes=peak, reserved_peak_bytes=peak)
        folder = run(root, steps, job=job)
        write_record(folder, replace(record(id=folder.id, job=job, tuning="t001"), resolved=Resolved(Settings())))
        events = (InEffect(t=0.5, values={"per_device_train_batch_size": micro}), steps)
        folder.events.write_bytes(b"".join(map(encode_event, events)))
    preset.write_text(text + "{per_device_train_batch_size: 6}\n")
    document = json.loads(call("--preset", str(preset), "--json").stdout)
    assert document["batch"] == 6
    assert document["total_bytes"] == pytest.approx(8 * 2**30 + CONTEXT_BYTES, rel=0.02)
    assert document["rests_on"] == "fitted to 3 measured sizes, the newest from run r003"
    assert document["largest_batch"] is not None
    preset.write_text(text + "{per_device_train_batch_size: 8}\n")
    shown = call("--preset", str(preset)).stdout
    assert shown.startswith("For python train.py · micro batch 8")
    assert "Basis: measured by run r003." in shown
    for name in ("r001", "r002"):
        (root / name / "events.jsonl").unlink()
    preset.write_text(text + "{per_device_train_batch_size: 6}\n")
    alone = call("--preset", str(preset))
    assert (alone.exit_code, alone.stdout) == (2, "")
    assert "was measured at micro batch 8: 10" in alone.stderr


def test_a_model_known_by_its_name_alone_is_estimated_with_more_doubt(call: Call) -> None:
    document = json.loads(call("--model", "org/some-7b", "--task", "causal-lm", "--json").stdout)
    assert document["rests_on"] == "formula for a model of 7 billion parameters"
    assert document["high_bytes"] == pytest.approx(1.3 * document["total_bytes"])
    # LoRA is recommended for it, on frozen weights in 16 bit.
    assert document["parts"]["weights"] == pytest.approx(2 * 7e9, rel=0.15)


def test_a_preset_without_a_job_needs_a_model(call: Call) -> None:
    assert call("--preset", "cpu", "--model", "bert-base").exit_code == 0


def test_without_a_gpu_it_is_the_processors_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path / "state"))
    result = caller(box(cores=8), python())("--model", "tiny")
    assert result.exit_code == 0
    assert "Python with torch" in result.stdout
    assert "assumed" not in result.stdout


def test_without_a_gpu_a_limit_is_held_against_private_memory(call: Call) -> None:
    on_cpu = caller(box(cores=8), python())
    plain = json.loads(on_cpu(*GPT2, "--json").stdout)
    limited = json.loads(on_cpu(*GPT2, "--json", "--memory-limit", "3GiB").stdout)
    assert (plain["counts"], limited["counts"]) == ("resident", "private")
    assert limited["device"]["capacity_bytes"] == 3 * 1024 * MIB
    assert limited["total_bytes"] - plain["total_bytes"] == pytest.approx(RESERVED_BYTES, abs=4)
    words = " ".join(on_cpu(*GPT2, "--memory-limit", "3GiB").stdout.split())
    assert "This is private memory, as --memory-limit counts it; libraries reserve 1.04 GiB" in words
    assert "(assumed: this Python was not measured)" in words
    assert "A --memory-limit counts about 1 GiB more, which libraries reserve" in " ".join(on_cpu(*GPT2).stdout.split())


def test_a_limit_on_a_gpu_is_its_capacity(call: Call) -> None:
    document = json.loads(call(*GPT2, "--json", "--memory-limit", "8GiB").stdout)
    assert (document["counts"], document["device"]["capacity_bytes"]) == ("device", 8 * 1024 * MIB)


def test_gpus_that_are_not_here(call: Call) -> None:
    result = call(*GPT2, "--set", "per_device_train_batch_size=8", "--gpu", "T4,A100-80GB,cpu", "--json")
    assert result.exit_code == 0, result.output
    small, large, processor = json.loads(result.stdout)["gpus"]
    assert processor["estimate"]["device"]["on_gpu"] is False
    assert (small["gpu"], large["gpu"]) == ("T4 16.0 GiB", "A100 80.0 GiB")
    assert small["estimate"]["device"]["capacity_bytes"] == 16 * 2**30
    assert small["estimate"]["largest_batch"] < large["estimate"]["largest_batch"]
    assert large["to_fit"] == {}
    assert "Tracing gpt2 with 2 different settings on the CPU" in result.stderr


def test_what_would_make_it_fit_fits(call: Call) -> None:
    asked = (*GPT2, "--set", "per_device_train_batch_size=64", "--gpu", "T4", "--json")
    (gpu,) = json.loads(call(*asked).stdout)["gpus"]
    assert gpu["estimate"]["verdict"] == "too large"
    changes = [word for name, value in gpu["to_fit"].items() for word in ("--set", f"{name}={value}")]
    (again,) = json.loads(call(*asked[:-3], *changes, *asked[-3:]).stdout)["gpus"]
    assert again["estimate"]["verdict"] == "fits"
    settings = again["estimate"]["settings"]
    assert settings["per_device_train_batch_size"] * settings["gradient_accumulation_steps"] == 64


def test_a_gpu_too_old_for_bitsandbytes_is_offered_none_of_it(call: Call) -> None:
    (gpu,) = json.loads(call("--model", "meta-llama/Llama-3.1-8B", "--gpu", "K80", "--json").stdout)["gpus"]
    assert gpu["to_fit"] is None
    (gpu,) = json.loads(call("--model", "meta-llama/Llama-3.1-8B", "--gpu", "P40", "--json").stdout)["gpus"]
    assert gpu["to_fit"]["quantization"] == "nf4"


AXOLOTL = "base_model: llama-1b\ndatasets: [{path: acme/chat}]\nsequence_len: 1024\nbf16: true\n"


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ("deepspeed: zero3.json\n", "zero3.json"), ("deepspeed: conf/stage2.json\n", "conf/stage2.json"),
        ("fsdp: full_shard auto_wrap\n", "full_shard auto_wrap"), ("fsdp: no_shard\n", None), ("", None),
    ],
)  # fmt: skip
def test_a_training_that_splits_its_state_is_said_to(more: str, word: str | None, call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(f"{AXOLOTL}{more}")
    result = call("a.yml", "--json", "--set", "max_length=100000")
    assert ("Computed without sharding" in result.stderr) == (word is not None)
    assert word is None or f"{word} divides weights" in result.stderr
    assert json.loads(result.stdout)["verdict"] == ("too large" if word is None else "unknown")


def test_a_tools_file_is_estimated_as_it_is(call: Call, tmp_path: Path) -> None:
    """Without a micro batch axolotl takes 1; this program's own default is 8."""
    totals, weights = {}, {}
    for name, adapter in (
        ("full", ""),
        ("lora", "adapter: lora\n"),
        ("qlora", "adapter: qlora\nload_in_4bit: true\n"),
        ("batch", "micro_batch_size: 1\n"),
    ):
        (tmp_path / f"{name}.yml").write_text(AXOLOTL + adapter)
        result = call(f"{name}.yml", "--json")
        assert result.exit_code == 0, result.stderr
        document = json.loads(result.stdout)
        totals[name], weights[name] = document["total_bytes"], document["parts"]["weights"]
    assert totals["qlora"] < totals["lora"] < totals["full"] == totals["batch"]
    # The linear layers of LLaMA 1B have 973 million weights: 4 bytes each as saved and 2 as autocast copies them, about
    # half a byte in nf4.
    assert weights["lora"] - weights["qlora"] == pytest.approx(973e6 * 5.5, rel=0.05)


def test_an_evaluation_counts_only_where_somebody_asked_for_it(call: Call, tmp_path: Path) -> None:
    """axolotl evaluates with the micro batch, and only data that was held back."""
    phases, split = {}, "val_set_size: 0.1\n"
    for name, more in (("none", ""), ("split", split), ("asked", f"{split}eval_steps: 50\n")):
        (tmp_path / f"{name}.yml").write_text(AXOLOTL + more + "eval_batch_size: 512\n")
        phases[name] = json.loads(call(f"{name}.yml", "--json").stdout)["peak_at"]
    assert phases["asked"] == "evaluation, eval batch 512"
    assert "evaluation" not in phases["none"] + phases["split"]
    (tmp_path / "small.yml").write_text(AXOLOTL + "val_set_size: 0.1\neval_steps: 50\nmicro_batch_size: 3\n")
    assert json.loads(call("small.yml", "--json").stdout)["settings"]["per_device_eval_batch_size"] == 3


@pytest.mark.parametrize(
    ("words", "evaluates"), [("", False), ("--eval_strategy steps --eval_steps 9", True), ("--eval_strategy no", False)]
)
def test_a_command_evaluates_where_it_says_so(call: Call, words: str, evaluates: bool) -> None:
    large = ["--per_device_eval_batch_size", "512", "--model_name_or_path", "gpt2", "--bf16"]
    document = json.loads(call("--json", "--", "python", "train.py", *large, *words.split()).stdout)
    assert ("evaluation" in document["peak_at"]) is evaluates


def test_planned_gpus_are_estimated_for_the_code_of_the_command(call: Call) -> None:
    words = ("deepspeed", "train.py", "--model_name_or_path", "gpt2")
    (gpu,) = json.loads(call("--gpu", "T4", "--json", "--", *words).stdout)["gpus"]
    assert "not knowing the buffers of DeepSpeed" in gpu["estimate"]["rests_on"]


def test_a_command_is_estimated_by_its_own_arguments(call: Call) -> None:
    """With `--set` in place of the command's arguments the figures are the same, but for what is recommended."""
    arguments = (
        "--per_device_train_batch_size",
        "16",
        "--bf16",
        "--max_seq_length",
        "512",
        "--model_name_or_path",
        "gpt2",
    )
    result = call("--json", "--", "python", "train.py", *arguments)
    document = json.loads(result.stdout)
    assert document["job"]["model"] == "gpt2"
    assert (document["settings"]["per_device_train_batch_size"], document["settings"]["precision"]) == (16, "bf16")
    assert document["settings"]["max_length"] == 512
    given = {name: document["settings"][name] for name in ("precision", "max_length", "optim", "attn_implementation")}
    flags = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    same = ("--set", "per_device_train_batch_size=16", "--set", "gradient_accumulation_steps=1")
    second_estimate = json.loads(
        call(*GPT2[:4], *flags, *same, "--set", "per_device_eval_batch_size=8", "--json").stdout
    )
    assert document["parts"] == second_estimate["parts"]


def test_of_a_command_without_a_model_it_is_said_where_one_was_looked_for(call: Call) -> None:
    result = call("--", "python", "train.py", "--lr", "1e-4")
    assert result.exit_code == 2
    assert "`python train.py --lr 1e-4`" in result.output
    for where in ("--model_name_or_path", "from_pretrained", "--model ID", "run the command for a few steps"):
        assert where in " ".join(result.output.split())


def test_set_wins_over_the_commands_arguments(call: Call) -> None:
    words = ("--set", "per_device_train_batch_size=4", "--json", "--", "python", "x.py", "--model", "gpt2")
    document = json.loads(call(*words, "--per_device_train_batch_size", "16").stdout)
    assert document["settings"]["per_device_train_batch_size"] == 4


def test_the_expected_time_is_next_to_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """1,000 steps of 32 samples at 285 samples/s on a V100: 112 s, 10 % around it."""
    monkeypatch.setenv("TUNER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    v100 = caller(box(make_gpu("V100", gib=16)), python())
    given = {
        "per_device_train_batch_size": 32, "gradient_accumulation_steps": 1, "max_steps": 1000, "precision": "fp16",
        "max_length": 128, "gradient_checkpointing": "false",
    }  # fmt: skip
    words = ["--model", "bert-base", *(word for name, value in given.items() for word in ("--set", f"{name}={value}"))]
    expected = json.loads(v100(*words, "--json").stdout)["expected_time"]
    assert (expected["low_s"], expected["high_s"]) == pytest.approx((32_000 / (285 * 1.1), 32_000 / (285 * 0.9)))
    assert "time 1 min 40 s to 2 min + start-up · not measured here" in v100(*words).stdout


def test_where_the_memory_goes_and_what_removes_it(call: Call, tmp_path: Path) -> None:
    """GPT-2's 12 blocks of 12 heads of 512 × 512 scores, two samples: sdpa keeps none of them."""
    settings = {"precision": "bf16", "max_length": 512, "attn_implementation": "eager", "optim": "adamw_torch",
                "per_device_train_batch_size": 2, "per_device_eval_batch_size": 2, "gradient_accumulation_steps": 1,
                "gradient_checkpointing": False, "max_grad_norm": 1.0}  # fmt: skip
    chosen = convert(settings, Settings)
    job, device = BuiltinJob(task="causal-lm", model="gpt2"), Device(on_gpu=True)
    question = trace_request(job, chosen, device) | {"by_module": True, "batches": (2,), "eval_batches": (2,)}
    parts = [
        {"module": "transformer.h.*", "kind": "MLP", "dtype": "bf16", "size": 300 * MIB, "line": "modeling_gpt2.py:7"},
        {"module": "transformer.h.*", "kind": "attention probabilities", "dtype": "fp32", "size": 600 * MIB},
        {"module": "", "kind": "weights", "dtype": "fp32", "size": 100 * MIB},
    ]
    entry = trace_cache_entry(python(), question)
    entry.write({"phase": "batch", "parts": parts, "quantizable": {}})
    words = ["--model", "gpt2", "--task", "causal-lm", "--by", "module"]
    words += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    result = call(*words)
    assert result.exit_code == 0, result.stderr
    rows = [line.split("  ") for line in result.stdout.splitlines()]
    assert any("transformer.h.* · attention probabilities" in row for row in rows)
    assert "60 %" in result.stdout
    assert [row[1:] for row in map(str.split, result.stdout.splitlines()) if row[:1] == ["all"]] == [
        ["in", "fp32", "700.0", "MiB", "70", "%"], ["in", "bf16", "300.0", "MiB", "30", "%"],
        ["tensors", "1000.0", "MiB", "100", "%"],
    ]  # fmt: skip
    by_line = call(*(word.replace("module", "line") for word in words)).stdout
    assert "modeling_gpt2.py:7 · MLP" in by_line
    document = json.loads(call(*words, "--json").stdout)
    assert document["tensor_bytes"] == 1000 * MIB
    first = document["kinds"][0]
    assert (first["kind"], first["size"]) == ("attention probabilities", 600 * MIB)
    assert first["remedy"]["change"] == {"attn_implementation": "sdpa"}
    # At least the softmax in fp32 and its copy in 16 bit.
    assert first["remedy"]["saved_bytes"] >= 12 * 12 * 2 * 512 * 512 * 6


def test_how_the_weights_are_trained_is_the_first_thing_said(call: Call) -> None:
    result = call("--model", "meta-llama/Llama-3.1-8B", "--gpu", "3090,A100-80GB", "--set", "quantization=nf4")
    rows = [re.split(r"\s{2,}", line.strip()) for line in result.stdout.splitlines() if "GiB " in line]
    assert [row[:2] for row in rows] == [["RTX 3090 24.0 GiB", "QLoRA"], ["A100 80.0 GiB", "QLoRA"]]
    assert "perhaps" not in result.stdout


@pytest.mark.parametrize(
    ("model", "task", "tokens"),
    [
        ("meta-llama/Llama-3.1-8B", "causal-lm", 1024),
        ("bigscience/bloom-560m", "causal-lm", 1024),
        ("google-bert/bert-base-uncased", "classification", 128),
        ("microsoft/deberta-v3-base", "classification", 128),
    ],
)
def test_a_model_alone_is_planned_for_what_it_is_usually_trained_for(
    call: Call, model: str, task: str, tokens: int
) -> None:
    result = call("--model", model, "--gpu", "A100-80GB", "--json")
    (planned,) = json.loads(result.stdout)["gpus"]
    estimated = planned["estimate"]
    assert (estimated["job"]["task"], estimated["settings"]["max_length"]) == (task, tokens)
    assert ("1,024 tokens are assumed" in result.stderr) == (tokens == 1024)


def test_a_length_that_is_given_is_not_assumed(call: Call) -> None:
    result = call("--model", "meta-llama/Llama-3.1-8B", "--gpu", "A100-80GB", "--set", "max_length=256")
    assert "256 tokens" in result.stdout
    assert "assumed;" not in result.stderr


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("foo/unknown-thing", "Asking the Hub for the configuration of foo/unknown-thing"),
        ("TheBloke/Llama-2-7B-GPTQ", ""),
        ("meta-llama/Llama-3.1-8B", "Tracing meta-llama/Llama-3.1-8B once"),
    ],
)
def test_nothing_is_said_to_be_traced_that_cannot_be(call: Call, model: str, words: str) -> None:
    result = call("--model", model, "--task", "causal-lm", "--gpu", "A100-80GB")
    assert words in result.stderr
    assert ("Tracing" in result.stderr) is words.startswith("Tracing")
    assert result.exit_code == (0 if "lama" in model else 2)
