"""The rules of the field notes as a table, with their errors put right, and machines that the notes never saw."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs
from msgspec.structs import replace

from tests.fakes.inventories import GIB, OLD_NAMES, box, make_gpu, python
from tuner_tui.advice.recommend.batch_and_learning_rate import largest_batch
from tuner_tui.advice.recommend.duration_estimate import EarlierRun
from tuner_tui.advice.recommend.recommendation import DEFAULT_JOB, Recommendation, recommend
from tuner_tui.advice.recommend.target import RecommendationDraft, TrainingTarget, target_of
from tuner_tui.advice.recommend.workload import Trace, workload_of
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Inventory, MigSlice
from tuner_tui.memory.closed_form import MemoryPhase
from tuner_tui.memory.estimate import MemoryEstimate, estimate_from_phases
from tuner_tui.memory.job_task import modelled_job, usual_task
from tuner_tui.memory.trace import TraceError
from tuner_tui.settings.job import BuiltinJob, CommandJob, Job
from tuner_tui.settings.model import Settings

T4, V100, K80 = make_gpu("T4", gib=15.0), make_gpu("V100", gib=15.8), make_gpu("K80", gib=11.2)
A10, RTX3090, RTX4060 = make_gpu("A10", gib=22.5), make_gpu("RTX 3090"), make_gpu("RTX 4060")
A100_40, A100_80, H100, H200 = (
    make_gpu("A100", gib=40),
    make_gpu("A100", gib=80),
    make_gpu("H100", gib=79.6),
    make_gpu("H200"),
)
GB10, P40 = make_gpu("GB10"), make_gpu("P40")
LLAMA = BuiltinJob(task="causal-lm", model="meta-llama/Llama-3.2-1B")
COMMAND = CommandJob(command=("python", "train.py"), model="bert-base-uncased", task="classification")
TABLE = yaml.load(Path(__file__).with_name("recommendations.yaml").read_text("utf-8"), yaml.CSafeLoader)
ROWS = [pytest.param(row, id=rule) for rule, rows in TABLE.items() if rule != "anchors" for row in rows]


def reason(advice: Recommendation, name: str) -> str:
    return next(value.reason for value in advice.advised if value.name == name)


def left(advice: Recommendation, name: str, value: Any) -> str:
    """Why a value was not recommended."""
    return next(rejection.reason for rejection in advice.rejected if (rejection.name, rejection.value) == (name, value))


def machine(names: list[str], **changes: Any) -> Inventory:
    """A machine with GPUs named as in `recommendations.yaml`."""
    gpus = [name.partition("@") for name in names]
    return box(*(make_gpu(name, n, float(gib) if gib else None) for n, (name, _, gib) in enumerate(gpus)), **changes)


def interpreter_of(row: dict[str, Any]) -> Interpreter | None:
    packages = row.get("python", {})
    if packages is None:
        return None
    made = python(**{name: version for name, version in packages.items() if name != "peft"})
    return replace(made, packages={"torch": made.packages["torch"]}) if "peft" in packages else made


def job_of(row: dict[str, Any]) -> Job:
    if "job" not in row:
        return structs.replace(DEFAULT_JOB, max_samples=row.get("samples"))
    return CommandJob(**row["job"]) if "command" in row["job"] else BuiltinJob(**row["job"])


@pytest.mark.parametrize("row", ROWS)
def test_each_row_of_the_table(row):
    inventory = machine(row["gpus"], **row.get("box", {}))
    recommended = recommend(inventory, interpreter_of(row), job_of(row), row.get("given", {}))
    values = row.get("values", {})
    assert {name: getattr(recommended.settings, name) for name in values} == values
    for name, words in row.get("reasons", {}).items():
        assert words in reason(recommended, name)
    for name, (value, words) in row.get("left", {}).items():
        assert words in left(recommended, name, value)
    notes = "\n".join(recommended.notes)
    assert [words for words in row.get("notes", ()) if words not in notes] == []
    assert [words for words in row.get("unsaid", ()) if words in notes] == []
    assert not {*row.get("absent", ())} & recommended.values.keys()
    assert not {*row.get("not_left", ())} & {advice.name for advice in recommended.rejected}
    for name in {"effective_batch", "replicas"} & row.keys():
        assert getattr(recommended, name) == row[name]


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (("run_clm.py", "--model_name_or_path", "Qwen/Qwen2.5-0.5B"), "Qwen/Qwen2.5-0.5B"),
        (("run_glue.py", "--model-name-or-path=bert-base-uncased"), "bert-base-uncased"),
        (("train.py", "--model"), None),
        (("train.py", "--model", "--bf16"), None),
    ],
)
def test_a_command_may_name_its_model(words, model):
    modelled = modelled_job(CommandJob(command=("python", *words)))
    assert (None if modelled is None else modelled.model) == model


@pytest.mark.parametrize(
    ("gpu", "batch", "accumulation"),
    [
        (K80, 16, 2), (RTX4060, 48, 2), (T4, 32, 1), (V100, 32, 1), (A10, 48, 1), (RTX3090, 48, 1),
        (make_gpu("RTX 4090"), 48, 1), (A100_40, 64, 1), (make_gpu("L40S", gib=45.0), 64, 1), (A100_80, 128, 1),
        (H100, 128, 1), (H200, 128, 1), (make_gpu("B200"), 128, 1), (GB10, 8, 4),
    ],
)  # fmt: skip
def test_batch_by_memory(gpu, batch, accumulation):
    recommended = recommend(box(gpu), python())
    assert recommended.settings.per_device_train_batch_size == batch
    assert recommended.settings.gradient_accumulation_steps == accumulation
    assert recommended.settings.per_device_eval_batch_size == 2 * batch
    assert recommended.effective_batch == batch * accumulation
    assert "starting point" in reason(recommended, "per_device_train_batch_size")


@pytest.mark.parametrize(
    "job",
    [
        BuiltinJob(model="google/vit-base-patch16-224"),
        CommandJob(command=("python", "train.py", "--model", "openai/whisper-small")),
        CommandJob(command=("python", "train.py"), task="other"),
    ],
)
def test_what_is_no_text_gets_nothing_that_rests_on_texts(job):
    recommended = recommend(box(RTX3090), python(), job)
    assert any("measures them" in note for note in recommended.notes)
    of_texts = {
        "per_device_train_batch_size",
        "learning_rate",
        "train_sampling_strategy",
        "warmup_steps",
        "peft_method",
    }
    assert not of_texts & recommended.values.keys()
    assert recommended.values["precision"] == "bf16"


def traced(each_bytes: float) -> Trace:
    """A trace of a model of 1 GiB, whose samples take `each_bytes`, half of them with checkpointing."""

    def trace(target: TrainingTarget, asked: Settings) -> MemoryEstimate:
        sample = each_bytes / (2 if asked.gradient_checkpointing else 1)
        line = MemoryPhase("forward and backward", 2**30, 0, 0, 0, sample)
        return estimate_from_phases((line,), asked, target.device, 0.05, "traced")

    return trace


@pytest.mark.parametrize(
    ("model", "gpu", "each_gib", "batch", "checkpointing"),
    [
        ("google/vit-base-patch16-224", RTX3090, 0.1, (32, 1), False),
        ("google/vit-base-patch16-224", make_gpu("H100", gib=80), 0.1, (80, 1), False),
        ("openai/whisper-small", RTX3090, 1.5, (8, 4), False),
        ("google-t5/t5-large", RTX3090, 7.0, (4, 8), True),
        ("google-t5/t5-large", RTX3090, 90.0, (1, 32), True),
    ],
)
def test_what_is_no_text_gets_the_batch_that_a_trace_leaves_room_for(model, gpu, each_gib, batch, checkpointing):
    job = BuiltinJob(model=model, task=usual_task(model) or "classification")
    recommended = recommend(box(gpu), python(), job, {"max_length": 512}, trace=traced(each_gib * GIB))
    chosen = recommended.settings
    assert (chosen.per_device_train_batch_size, chosen.gradient_accumulation_steps) == batch
    assert chosen.gradient_checkpointing is checkpointing
    assert reason(recommended, "per_device_train_batch_size").startswith("trace: ")
    assert "learning_rate" not in recommended.values
    assert any("not even one sample" in note for note in recommended.notes) is (each_gib > 80)


def test_what_cannot_be_traced_gets_no_batch_and_says_why() -> None:
    def trace(target: TrainingTarget, asked: Settings) -> MemoryEstimate:
        raise TraceError("The model cannot be traced: its code does not run.")

    recommended = recommend(
        box(RTX3090), python(), BuiltinJob(model="microsoft/swin-tiny", task="image-classification"), trace=trace
    )
    assert "per_device_train_batch_size" not in recommended.values
    assert "its code does not run" in " ".join(recommended.notes)
    assert "`tuner-tui tune -- COMMAND` measures them" in " ".join(recommended.notes)


@pytest.mark.parametrize("task", ["causal-lm", "classification"])
def test_nothing_rests_on_the_memory_of_a_model_of_unknown_size(task):
    recommended = recommend(box(RTX4060), python(), BuiltinJob(task=task, model="nobody/checkpoint-base"))
    assert any("The size of nobody/checkpoint-base is unknown" in note for note in recommended.notes)
    texts = [*recommended.notes, *(value.reason for value in (*recommended.advised, *recommended.rejected))]
    assert not [text for text in texts if "parameters" in text or "estimate:" in text or "GB" in text.split("8 GB")[0]]
    assert not {"peft_method", "quantization", "gradient_checkpointing"} & recommended.values.keys()
    if task == "causal-lm":
        assert recommended.settings.per_device_train_batch_size == 1


@pytest.mark.parametrize(
    ("gpu", "precision", "tf32"),
    [
        (K80, "fp32", None), (P40, "fp32", None), (make_gpu("P100", gib=16), "fp32", None), (V100, "fp16", None),
        (T4, "fp16", None), (A100_40, "bf16", True), (A10, "bf16", True), (make_gpu("RTX 3070"), "bf16", True),
        (RTX3090, "bf16", True), (make_gpu("RTX 4090"), "bf16", True), (H100, "bf16", True),
        (make_gpu("B200"), "bf16", True), (GB10, "bf16", True), (make_gpu("T4", capability=None), "fp32", None),
    ],
)  # fmt: skip
def test_precision_by_capability(gpu, precision, tf32):
    settings = recommend(box(gpu), python()).settings
    assert (settings.precision, settings.tf32) == (precision, tf32)


@pytest.mark.parametrize("model", ["bert-base", "bert-large"])
def test_longer_samples_leave_room_for_fewer(model):
    """The estimate itself is held against measurements in tests/memory."""
    draft = RecommendationDraft(target_of(box(T4), python(), BuiltinJob()), {"precision": "fp32"})
    fits = [largest_batch(draft, workload_of(BuiltinJob(model=model), tokens)) or 0 for tokens in (64, 128, 256, 512)]
    assert fits == sorted(fits, reverse=True)
    assert fits[0] >= 7 * fits[-1] > 0


@pytest.mark.parametrize(
    ("inventory", "workers", "prefetch", "expected"),
    [
        (box(T4, cores=16), 8, 4, "16 usable cores"),
        (box(T4, cores=128), 8, 4, "128 usable cores"),
        (box(T4, cores=6), 4, 4, "two left"),
        (box(T4, cores=64, quota=2.0), 1, 4, "2 usable cores"),
        (box(T4, cores=64, quota=1.5), 0, None, "1 usable core"),
        (box(T4, ram_gib=3), 3, 2, "GiB of memory"),
        (box(T4, ram_gib=6), 6, 2, "GiB of memory"),
        (box(T4, shm_mib=64), 2, 2, "only 64 MiB are free in /dev/shm"),
        (box(T4, shm_mib=0), 0, None, "/dev/shm"),
        # 32 samples of 128 tokens in three tensors of 8 bytes: a quarter of 1 MiB holds two batches of one worker.
        (box(T4, shm_mib=1), 1, 2, "2 × 0.09 MiB a worker"),
        (box(cores=64), 0, None, "on the CPU"),
    ],
)
def test_loader(inventory, workers, prefetch, expected):
    recommended = recommend(inventory, python())
    settings = recommended.settings
    assert (settings.dataloader_num_workers, settings.dataloader_prefetch_factor) == (workers, prefetch)
    assert settings.dataloader_persistent_workers is (workers > 0)
    assert expected in reason(recommended, "dataloader_num_workers")
    assert settings.dataloader_pin_memory is bool(inventory.gpus)


def timed(workers: int, samples_s: float, name: str = "r001", **changes: Any) -> EarlierRun:
    """A run of the default job with `workers`, at ± 5 %."""
    settings = Settings(dataloader_num_workers=workers)
    return replace(EarlierRun(name, DEFAULT_JOB, settings, samples_s * 0.95, samples_s * 1.05), **changes)


@pytest.mark.parametrize(
    ("inventory", "earlier", "workers"),
    [
        (box(cores=4), (timed(0, 100), timed(4, 150, "r002")), 4),
        (box(cores=4), (timed(0, 100), timed(2, 200, "r002"), timed(4, 150, "r003")), 2),
        (box(T4, cores=16), (timed(8, 100), timed(2, 150, "r002")), 2),
        (box(T4, shm_mib=0), (timed(0, 100), timed(2, 150, "r002")), 2),
        # Within the spread, of other settings, compared with nothing, ended by an error: the rule stays.
        (box(cores=4), (timed(0, 100), timed(4, 108, "r002")), 0),
        (box(cores=4), (timed(0, 100), timed(4, 150, settings=Settings(dataloader_num_workers=4, max_length=64))), 0),
        (box(cores=4), (timed(2, 100), timed(4, 150, "r002")), 0),
        (box(cores=4), (timed(0, 100), timed(4, 150, "r002", failed=True)), 0),
    ],
)
def test_what_runs_here_measured_of_workers_outranks_the_rule(inventory, earlier, workers):
    recommended = recommend(inventory, python(), earlier=earlier)
    assert recommended.settings.dataloader_num_workers == workers
    assert recommended.settings.dataloader_persistent_workers is (workers > 0)
    measured = "measured here: r002 trained at least" in reason(recommended, "dataloader_num_workers")
    assert measured is any(run.id == "r002" and run.settings.dataloader_num_workers == workers for run in earlier)


def test_a_faster_run_with_the_same_workers_says_nothing_of_them():
    recommended = recommend(box(cores=4), python(), earlier=(timed(0, 100), timed(0, 150, "r002")))
    assert "measured here" not in reason(recommended, "dataloader_num_workers")


def test_processes_share_the_cores():
    job = structs.replace(COMMAND, launcher="torchrun", processes=8)
    recommended = recommend(box(*(make_gpu("H100", i, 79.6) for i in range(8)), cores=48), python(), job)
    assert recommended.settings.dataloader_num_workers == 4
    assert recommended.effective_batch == 256


@pytest.mark.parametrize(
    ("gpus", "given", "rate"),
    [
        ((), {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}, 2e-5),
        ((T4,), {}, 4e-5),
        ((T4,), {"optim": "sgd"}, 8e-5),
        ((A100_80,), {}, 8e-5),
        ((A100_80,), {"gradient_accumulation_steps": 4}, 8e-5),
    ],
)
def test_learning_rate_by_the_right_name(gpus, given, rate):
    recommended = recommend(box(*gpus), python(), given=given)
    assert recommended.settings.learning_rate == pytest.approx(rate)
    beyond = given.get("gradient_accumulation_steps") == 4
    assert ("not scaled beyond 128" in reason(recommended, "learning_rate")) == beyond
    name = "linear scaling (SGD)" if given.get("optim") == "sgd" else "square-root scaling (Adam)"
    assert name in reason(recommended, "learning_rate")


@pytest.mark.parametrize("name", ["GeForce GTX 1660 Ti", "GeForce GTX 1650", "GeForce MX450", "T1000"])
def test_turing_without_tensor_cores_is_not_sent_to_fp16(name):
    recommended = recommend(box(replace(make_gpu("T4", gib=6.0), name=f"NVIDIA {name}")), python())
    assert recommended.settings.precision == "fp32"
    assert "without tensor cores" in left(recommended, "precision", "fp16")


def test_the_batch_of_a_language_model_rests_on_the_estimate_alone():
    recommended = recommend(box(RTX3090), python(), LLAMA)
    batch = next(outcome for outcome in recommended.advised if outcome.name == "per_device_train_batch_size")
    assert re.match(r"estimate: \d+ samples of 128 tokens fit for llama-3.2-1b of 1,236 M parameters", batch.reason)
    assert batch.source == "estimate"
    by_notes = next(advice for advice in recommend(box(RTX3090), python()).advised if advice.name == batch.name)
    assert by_notes.source.endswith("for 128-token classification")


def test_a_slice_of_a_gpu_is_a_gpu_of_its_own():
    """3g.20gb of an A100 with 40 GB has 19,968 MiB, too little for the batch of 40 GB, 64."""
    slices = (MigSlice("NVIDIA A100 MIG 3g.20gb", "MIG-a", 19_968 * 2**20, 0),
              MigSlice("NVIDIA A100 MIG 1g.5gb", "MIG-b", 4_864 * 2**20, 0))  # fmt: skip
    sliced = make_gpu("A100", gib=39.4, mig=True, slices=slices)
    recommended = recommend(box(sliced), python())
    assert recommended.gpus == ("NVIDIA A100 MIG 3g.20gb",)
    assert (recommended.settings.precision, recommended.settings.per_device_train_batch_size) == ("bf16", 48)
    assert any("CUDA_VISIBLE_DEVICES=MIG-a" in note for note in recommended.notes)
    small = recommend(box(sliced, cuda_visible_devices="MIG-b"), python())
    assert small.gpus == ("NVIDIA A100 MIG 1g.5gb",)
    assert small.settings.per_device_train_batch_size < 16


def test_memory_that_others_hold_is_not_counted():
    recommended = recommend(box(make_gpu("RTX 3090", memory_used_bytes=18 * 2**30)), python())
    assert recommended.settings.per_device_train_batch_size == 8
    assert any("Other programs use 18.0 of 24.0 GiB of GPU 0" in note for note in recommended.notes)


def test_a_slice_of_a_gpu_has_unknown_memory():
    recommended = recommend(box(make_gpu("H100", gib=79.6, mig=True), cuda_visible_devices="MIG-1234"), python())
    assert recommended.settings.per_device_train_batch_size == 8
    assert recommended.settings.precision == "bf16"
    assert any("MIG" in note for note in recommended.notes)


def test_an_older_transformers_is_recommended_only_what_it_takes():
    recommended = recommend(box(T4), python(names=OLD_NAMES))
    assert recommended.settings.train_sampling_strategy == "group_by_length"
    bare = recommend(box(T4), python(names=("fp16",)))
    assert "no such argument" in left(bare, "dataloader_num_workers", 8)


def test_a_script_that_is_not_transformers_gets_no_training_arguments() -> None:
    job = CommandJob(command=("python", "train.py", "--config", "c.yaml"), apply="yaml", dialect="own-script")
    recommended = recommend(box(A10), python(), job, {"per_device_train_batch_size": 32, "learning_rate": 0.1})
    assert set(recommended.values) <= {
        "precision",
        "tf32",
        "dataloader_num_workers",
        "dataloader_prefetch_factor",
        "dataloader_pin_memory",
        "dataloader_persistent_workers",
    }
    assert recommended.values["precision"] == "bf16"
    assert {outcome.name for outcome in recommended.rejected} <= {"torch_compile", "dataloader_num_workers"}


@pytest.mark.parametrize(
    ("ram_gib", "model", "method"),
    [(16, "Qwen/Qwen2.5-1.5B", "lora"), (64, "Qwen/Qwen2.5-1.5B", "none"), (64, "meta-llama/Llama-2-7b-hf", "lora")],
)
def test_a_cpu_gets_adapters_before_a_smaller_model(ram_gib: float, model: str, method: str) -> None:
    job = BuiltinJob(model=model, task="causal-lm")
    recommended = recommend(box(ram_gib=ram_gib), python(cuda=None), job)
    assert recommended.settings.peft_method == method
    assert not any("smaller model" in note for note in recommended.notes)
    bare = Interpreter("/env/bin/python", packages={"torch": "2.13.0", "transformers": "5.23.0"})
    without = " ".join(recommend(box(ram_gib=ram_gib), bare, job).notes)
    assert ("pip install peft" in without) is (method == "lora")
    assert "smaller model" not in without


@pytest.mark.parametrize(("weights_dtype", "precision"), [("auto", "fp16"), ("bf16", "fp32")])
def test_bf16_weights_that_are_given_get_no_loss_scaler(weights_dtype, precision):
    recommended = recommend(box(T4), python(), given={"weights_dtype": weights_dtype})
    assert recommended.settings.precision == precision
