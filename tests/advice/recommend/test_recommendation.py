"""The rules of the field notes as a table, with their errors put right, and machines that the notes never saw."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.inventories import OLD_NAMES, box, card, python
from tuner_tui.advice.recommend.batch_and_learning_rate import largest_batch
from tuner_tui.advice.recommend.recommendation import DEFAULT_JOB, Recommendation, recommend
from tuner_tui.advice.recommend.target import RecommendationDraft, target_of
from tuner_tui.advice.recommend.workload import workload_of
from tuner_tui.hardware.inventory import MigSlice
from tuner_tui.settings.job import BuiltinJob, CommandJob, modelled_job

T4, V100, K80 = card("T4", gib=15.0), card("V100", gib=15.8), card("K80", gib=11.2)
A10, RTX3090, RTX4060 = card("A10", gib=22.5), card("RTX 3090"), card("RTX 4060")
A100_40, A100_80, H100, H200 = card("A100", gib=40), card("A100", gib=80), card("H100", gib=79.6), card("H200")
GB10, P40 = card("GB10"), card("P40")
GPT2 = BuiltinJob(task="causal-lm", model="gpt2")
LLAMA = BuiltinJob(task="causal-lm", model="meta-llama/Llama-3.2-1B")
RANDOM_LLAMA = BuiltinJob(task="causal-lm", model="llama-1b")
QWEN_7B = BuiltinJob(task="causal-lm", model="Qwen/Qwen2.5-7B")
COMMAND = CommandJob(command=("python", "train.py"))
BNB = python(bitsandbytes="0.49.0")


def reason(found: Recommendation, name: str) -> str:
    return found.reasons[name]


def left(found: Recommendation, name: str, value: Any) -> str:
    """Why a value was not recommended."""
    return next(one.reason for one in found.rejected if (one.name, one.value) == (name, value))


@pytest.mark.parametrize(
    ("gpu", "batch", "accumulation"),
    [
        (K80, 16, 2), (RTX4060, 48, 2), (T4, 32, 1), (V100, 32, 1), (A10, 48, 1), (RTX3090, 48, 1),
        (card("RTX 4090"), 48, 1), (A100_40, 64, 1), (card("L40S", gib=45.0), 64, 1), (A100_80, 128, 1),
        (H100, 128, 1), (H200, 128, 1), (card("B200"), 128, 1), (GB10, 8, 4),
    ],
)  # fmt: skip
def test_batch_by_memory(gpu, batch, accumulation):
    found = recommend(box(gpu), python())
    assert found.settings.per_device_train_batch_size == batch
    assert found.settings.gradient_accumulation_steps == accumulation
    assert found.settings.per_device_eval_batch_size == 2 * batch
    assert found.effective_batch == batch * accumulation
    assert "starting point" in reason(found, "per_device_train_batch_size")


@pytest.mark.parametrize(
    ("gpu", "job", "tokens", "batch", "accumulation"),
    [
        (T4, DEFAULT_JOB, 192, 16, 2),
        (T4, GPT2, 1024, 4, 8),
        (RTX3090, GPT2, 1024, 12, 4),
        (H200, GPT2, 1024, 64, 2),
        (V100, BuiltinJob(model="bert-large"), 512, 8, 4),
        (RTX3090, LLAMA, 1024, 4, 12),
        (card("T4", gib=4.0), DEFAULT_JOB, 128, 8, 4),
        (RTX3090, BuiltinJob(task="causal-lm", model="org/unheard-of"), 1024, 6, 8),
    ],
)
def test_the_batch_is_scaled_to_the_job(gpu, job, tokens, batch, accumulation):
    settings = recommend(box(gpu), python(), job, {"max_length": tokens}).settings
    assert (settings.per_device_train_batch_size, settings.gradient_accumulation_steps) == (batch, accumulation)


@pytest.mark.parametrize(
    ("gpu", "precision", "tf32"),
    [
        (K80, "fp32", None), (P40, "fp32", None), (card("P100", gib=16), "fp32", None), (V100, "fp16", None),
        (T4, "fp16", None), (A100_40, "bf16", True), (A10, "bf16", True), (card("RTX 3070"), "bf16", True),
        (RTX3090, "bf16", True), (card("RTX 4090"), "bf16", True), (H100, "bf16", True), (card("B200"), "bf16", True),
        (GB10, "bf16", True), (card("T4", capability=None), "fp32", None),
    ],
)  # fmt: skip
def test_precision_by_capability(gpu, precision, tf32):
    settings = recommend(box(gpu), python()).settings
    assert (settings.precision, settings.tf32) == (precision, tf32)


def test_what_torch_says_of_bf16_before_ampere_is_not_believed():
    found = recommend(box(V100), python())
    assert "emulates bf16" in left(found, "precision", "bf16")
    assert "Ampere" in left(found, "tf32", True)


def test_flash_attention_is_left_with_the_reason():
    assert "capability 8.0" in left(recommend(box(T4), python()), "attn_implementation", "flash_attention_2")
    assert "flash-attn is not installed" in left(
        recommend(box(A10), python()), "attn_implementation", "flash_attention_2"
    )
    found = recommend(box(A10), python(flash_attn="2.8"))
    assert "not every model" in left(found, "attn_implementation", "flash_attention_2")
    assert found.settings.attn_implementation == "auto"


def test_compilation_is_off_by_default():
    assert "slow first epoch" in left(recommend(box(A10), python()), "torch_compile", True)
    assert "7.0" in left(recommend(box(P40), python()), "torch_compile", True)


@pytest.mark.parametrize(
    ("gpu", "interpreter", "job", "optim"),
    [
        (T4, python(), DEFAULT_JOB, "adamw_torch_fused"),
        (T4, python("2.4.0"), DEFAULT_JOB, "adamw_torch_fused"),
        (T4, python("1.13.1", "11.7"), DEFAULT_JOB, "adamw_torch"),
        (K80, python(), DEFAULT_JOB, "adamw_torch"),
        (T4, None, DEFAULT_JOB, "adamw_torch"),
        (RTX3090, BNB, LLAMA, "adamw_bnb_8bit"),
        (RTX3090, BNB, DEFAULT_JOB, "adamw_torch_fused"),
        (P40, BNB, LLAMA, "adamw_torch_fused"),
    ],
)
def test_optimizer(gpu, interpreter, job, optim):
    assert recommend(box(gpu), interpreter, job).settings.optim == optim


def test_without_bitsandbytes_its_install_line_is_named():
    tight = BuiltinJob(task="causal-lm", model="org/model-700m")
    found = recommend(box(RTX3090), python(), tight)
    assert "pip install bitsandbytes" in left(found, "optim", "adamw_bnb_8bit")


def test_what_cannot_fit_in_full_gets_adapters_and_their_learning_rate():
    found = recommend(box(T4), python(), LLAMA)
    assert (found.settings.peft_method, found.settings.learning_rate) == ("lora", 2e-4)
    bare = replace(python(), packages={"torch": "2.13.0"})
    lacking = recommend(box(T4), bare, LLAMA)
    assert lacking.settings.peft_method == "none"
    assert "pip install peft" in left(lacking, "peft_method", "lora")


def test_adapters_are_not_recommended_on_random_weights():
    found = recommend(box(T4), python(), RANDOM_LLAMA)
    assert found.settings.peft_method == "none"
    assert "starts from random weights" in left(found, "peft_method", "lora")


def test_lora_is_not_recommended_where_it_is_on():
    found = recommend(box(T4), BNB, LLAMA, {"peft_method": "lora"})
    assert "peft_method" not in {*found.values, *(one.name for one in found.rejected)}


@pytest.mark.parametrize(("gpu", "quantization"), [(RTX3090, "nf4"), (T4, "nf4"), (A100_40, "none"), (A100_80, "none")])
def test_a_7b_model_is_quantized_where_its_weights_take_more_than_half_of_the_card(gpu, quantization):
    """7.62 billion weights of 2 bytes are 14.2 GiB: more than half of 24 GiB, less than half of 40."""
    found = recommend(box(gpu), BNB, QWEN_7B)
    assert (found.settings.peft_method, found.settings.quantization) == ("lora", quantization)
    assert found.settings.bnb_4bit_use_double_quant is (quantization == "nf4")


def test_a_command_of_a_known_model_gets_adapters_on_4_bits_and_how_to_make_them():
    known = CommandJob(command=("python", "sft.py", "--model_name_or_path", "Qwen/Qwen2.5-7B"))
    found = recommend(box(RTX3090), BNB, known)
    assert (found.settings.peft_method, found.settings.quantization) == ("lora", "nf4")
    assert any("--use_peft --load_in_4bit" in note for note in found.notes)
    unknown = recommend(box(RTX3090), BNB, COMMAND)
    assert unknown.settings.peft_method == "none"
    assert not any("--use_peft" in note for note in unknown.notes)


def test_quantization_without_bitsandbytes_names_its_install_line():
    found = recommend(box(RTX3090), python(), QWEN_7B)
    assert found.settings.quantization == "none"
    assert "pip install bitsandbytes" in left(found, "quantization", "nf4")


@pytest.mark.parametrize("model", ["google/gemma-3-1b-it", "google/flan-t5-large", "/models/mt5-small"])
@pytest.mark.parametrize(("gpu", "precision"), [(T4, "fp32"), (V100, "fp32"), (A10, "bf16")])
def test_fp16_is_not_recommended_for_models_that_overflow_in_it(model, gpu, precision):
    found = recommend(box(gpu), BNB, BuiltinJob(task="causal-lm", model=model))
    assert found.settings.precision == precision


@pytest.mark.parametrize("model", ["bert-base", "bert-large"])
def test_longer_samples_leave_room_for_fewer(model):
    """The estimate itself is held against measurements in tests/memory."""
    draft = RecommendationDraft(target_of(box(T4), python(), BuiltinJob()), {"precision": "fp32"})
    fits = [largest_batch(draft, workload_of(BuiltinJob(model=model), tokens)) or 0 for tokens in (64, 128, 256, 512)]
    assert fits == sorted(fits, reverse=True)
    assert fits[0] >= 7 * fits[-1] > 0


def test_checkpointing_only_where_memory_is_short():
    assert "20 %" in left(recommend(box(A10), python()), "gradient_checkpointing", True)
    found = recommend(box(T4), python(), LLAMA, {"max_length": 2048})
    assert found.settings.gradient_checkpointing is True
    assert "40 % less" in reason(found, "gradient_checkpointing")


@pytest.mark.parametrize(
    ("inventory", "workers", "prefetch", "said"),
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
def test_loader(inventory, workers, prefetch, said):
    found = recommend(inventory, python())
    settings = found.settings
    assert (settings.dataloader_num_workers, settings.dataloader_prefetch_factor) == (workers, prefetch)
    assert settings.dataloader_persistent_workers is (workers > 0)
    assert said in reason(found, "dataloader_num_workers")
    assert settings.dataloader_pin_memory is bool(inventory.gpus)


def test_a_command_of_unknown_batches_gets_no_workers_where_shared_memory_is_small():
    assert recommend(box(T4, shm_mib=64), python(), COMMAND).settings.dataloader_num_workers == 0


def test_heavy_preprocessing_may_take_more_workers():
    assert "expensive" in left(recommend(box(T4, cores=32), python()), "dataloader_num_workers", 16)


def test_processes_share_the_cores():
    job = CommandJob(command=("python", "train.py"), launcher="torchrun", processes=8)
    found = recommend(box(*(card("H100", i, 79.6) for i in range(8)), cores=48), python(), job)
    assert found.settings.dataloader_num_workers == 4
    assert found.effective_batch == 256


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
    found = recommend(box(*gpus), python(), given=given)
    assert found.settings.learning_rate == pytest.approx(rate)
    beyond = given.get("gradient_accumulation_steps") == 4
    assert ("not scaled beyond 128" in reason(found, "learning_rate")) == beyond
    name = "linear scaling (SGD)" if given.get("optim") == "sgd" else "square-root scaling (Adam)"
    assert name in reason(found, "learning_rate")


def test_a_large_language_model_trained_in_full_gets_the_usual_rate():
    found = recommend(box(H100), python(), LLAMA)
    assert (found.settings.peft_method, found.settings.learning_rate) == ("none", 2e-5)
    assert "all weights of a large language model" in reason(found, "learning_rate")


def test_no_learning_rate_where_the_notes_have_none():
    assert "language model" in left(recommend(box(T4), python(), GPT2), "learning_rate", 2e-5)
    assert "random weights" in left(recommend(box(T4), python(), BuiltinJob()), "learning_rate", 2e-5)


def test_warmup_and_sampling():
    found = recommend(box(T4), python())
    assert found.settings.warmup_steps == 0.06
    assert found.settings.train_sampling_strategy == "group_by_length"
    assert "warmup_steps" not in recommend(box(T4), python(), given={"lr_scheduler_type": "constant"}).values
    assert "train_sampling_strategy" not in recommend(box(T4), python(), GPT2).values


def test_without_a_gpu():
    found = recommend(box(cores=2), python("2.13.0+cpu", None))
    settings = found.settings
    assert (settings.precision, settings.tf32, settings.optim) == ("fp32", None, "adamw_torch")
    assert (settings.per_device_train_batch_size, settings.gradient_accumulation_steps) == (8, 4)


def test_a_torch_for_the_cpu_leaves_the_card_alone_and_says_so():
    found = recommend(box(A100_80), python("2.13.0+cpu", None))
    assert found.settings.precision == "fp32"
    assert any("CPU-only" in note for note in found.notes)


def test_a_card_that_torch_has_no_code_for_is_said():
    assert any("no kernels for NVIDIA V100" in note for note in recommend(box(V100), python()).notes)
    k80 = recommend(box(K80), python("2.7.0", "12.6"))
    assert any("CUDA 12 and all current torch wheels dropped it" in note for note in k80.notes)


def test_of_different_cards_the_built_in_job_takes_the_best_alone_and_says_why():
    found = recommend(box(card("T4", 0, 15.0), card("A100", 1, gib=80)), python())
    assert (found.settings.precision, found.settings.per_device_train_batch_size) == ("bf16", 128)
    (note,) = (note for note in found.notes if "differ" in note)
    assert "uses GPU 1 (A100) alone" in note
    assert "15 GiB of GPU 0 (T4) would limit every batch" in note


def test_a_command_on_different_cards_gets_values_for_the_weakest_and_the_way_to_the_best():
    found = recommend(box(A100_80, card("T4", 1, 15.0)), python(), COMMAND)
    assert (found.settings.precision, found.settings.per_device_train_batch_size) == ("fp16", 32)
    assert any("CUDA_VISIBLE_DEVICES=0" in note and "fit all of them" in note for note in found.notes)
    assert not any("torchrun" in note for note in found.notes)


def test_two_equal_cards_get_the_flags_of_a_launcher():
    pair = box(RTX3090, card("RTX 3090", 1))
    assert any("--launcher torchrun --processes 2" in note for note in recommend(pair, python()).notes)
    assert any("torchrun --nproc_per_node 2" in note for note in recommend(pair, python(), COMMAND).notes)
    launched = recommend(pair, python(), BuiltinJob(launcher="torchrun", processes=2))
    assert not any("--launcher" in note for note in launched.notes)


@pytest.mark.parametrize("name", ["GeForce GTX 1660 Ti", "GeForce GTX 1650", "GeForce MX450", "T1000"])
def test_turing_without_tensor_cores_is_not_sent_to_fp16(name):
    found = recommend(box(replace(card("T4", gib=6.0), name=f"NVIDIA {name}")), python())
    assert found.settings.precision == "fp32"
    assert "without tensor cores" in left(found, "precision", "fp16")


def test_8_gb_with_an_8_bit_optimizer_take_64_times_2():
    found = recommend(box(card("RTX 3070")), BNB, DEFAULT_JOB, {"optim": "adamw_bnb_8bit"})
    assert (found.settings.per_device_train_batch_size, found.settings.gradient_accumulation_steps) == (64, 2)


def test_the_batch_names_what_fits_by_estimate_and_who_measures():
    words = reason(recommend(box(RTX3090), python()), "per_device_train_batch_size")
    assert words.startswith("24 GB and more: 48; estimate: 379 fit for bert-base-uncased")
    assert words.endswith("`tuner-tui tune` measures")


def test_the_batch_of_a_language_model_rests_on_the_estimate_alone():
    found = recommend(box(RTX3090), python(), LLAMA)
    batch = next(one for one in found.advised if one.name == "per_device_train_batch_size")
    assert re.match(r"estimate: \d+ samples of 128 tokens fit for llama-3.2-1b of 1,236 M parameters", batch.reason)
    assert batch.source == "estimate"
    by_notes = next(one for one in recommend(box(RTX3090), python()).advised if one.name == batch.name)
    assert by_notes.source.endswith("for 128-token classification")


def test_a_slice_of_a_card_is_a_card_of_its_own():
    """3g.20gb of an A100 with 40 GB has 19,968 MiB: the notes' rung of 16 GB."""
    slices = (MigSlice("NVIDIA A100 MIG 3g.20gb", "MIG-a", 19_968 * 2**20, 0),
              MigSlice("NVIDIA A100 MIG 1g.5gb", "MIG-b", 4_864 * 2**20, 0))  # fmt: skip
    sliced = card("A100", gib=39.4, mig=True, slices=slices)
    found = recommend(box(sliced), python())
    assert found.cards == ("NVIDIA A100 MIG 3g.20gb",)
    assert (found.settings.precision, found.settings.per_device_train_batch_size) == ("bf16", 32)
    assert any("CUDA_VISIBLE_DEVICES=MIG-a" in note for note in found.notes)
    small = recommend(box(sliced, cuda_visible_devices="MIG-b"), python())
    assert small.cards == ("NVIDIA A100 MIG 1g.5gb",)
    assert small.settings.per_device_train_batch_size < 16


def test_hiding_cards_is_respected():
    hidden = recommend(box(A100_80, card("T4", 1, 15.0), cuda_visible_devices="0"), python())
    assert hidden.settings.precision == "bf16"
    assert recommend(box(A100_80, cuda_visible_devices=""), python()).settings.precision == "fp32"


def test_memory_that_others_hold_is_not_counted():
    found = recommend(box(card("RTX 3090", memory_used_bytes=10 * 2**30)), python())
    assert found.settings.per_device_train_batch_size == 16
    assert any("Close other notebooks" in note for note in found.notes)


def test_a_slice_of_a_card_has_unknown_memory():
    found = recommend(box(card("H100", gib=79.6, mig=True), cuda_visible_devices="MIG-1234"), python())
    assert found.settings.per_device_train_batch_size == 8
    assert found.settings.precision == "bf16"
    assert any("MIG" in note for note in found.notes)


def test_few_samples_keep_the_effective_batch_small():
    assert recommend(box(A100_80), python(), DEFAULT_JOB.model_copy(update={"max_samples": 800})).effective_batch == 16


@pytest.mark.parametrize(("samples", "said"), [(800, True), (100_000, False)])
def test_where_samples_limit_the_batch_it_says_so(samples, said):
    """800 samples in at least 50 steps are 16 each."""
    found = recommend(box(T4), python(), DEFAULT_JOB.model_copy(update={"max_samples": samples}))
    assert found.settings.per_device_train_batch_size == (16 if said else 32)
    assert ("keep the effective batch reasonable" in reason(found, "per_device_train_batch_size")) == said


def test_what_is_given_stays_and_the_rest_fits_it():
    found = recommend(box(T4), python(), given={"dataloader_num_workers": 0, "per_device_train_batch_size": 8})
    assert found.settings.dataloader_prefetch_factor is None
    assert found.settings.dataloader_persistent_workers is False
    assert found.settings.gradient_accumulation_steps == 4
    assert found.settings.per_device_eval_batch_size == 16


def test_an_older_transformers_is_recommended_only_what_it_takes():
    found = recommend(box(T4), python(names=OLD_NAMES))
    assert found.settings.train_sampling_strategy == "group_by_length"
    bare = recommend(box(T4), python(names=("fp16",)))
    assert "no such argument" in left(bare, "dataloader_num_workers", 8)


def test_a_command_with_two_cards_counts_one_and_says_so() -> None:
    command = CommandJob(command=("python", "train.py"))
    found = recommend(box(T4, T4), python(), command)
    assert found.replicas == 1
    assert any("uses a Trainer" in note for note in found.notes)
    assert recommend(box(T4, T4), python(), command.model_copy(update={"apply": "hf-args"})).replicas == 2


@pytest.mark.parametrize(
    ("words", "model", "said"),
    [
        (("run_clm.py", "--model_name_or_path", "Qwen/Qwen2.5-0.5B"), "Qwen/Qwen2.5-0.5B", True),
        (("run_glue.py", "--model-name-or-path=bert-base-uncased"), "bert-base-uncased", False),
        (("train.py", "--model"), None, False),
        (("train.py", "--model", "--bf16"), None, False),
    ],
)
def test_a_command_is_told_that_the_scaler_takes_no_16_bit_weights(words, model, said):
    """Qwen2.5 is saved in bf16, BERT in fp32."""
    job = CommandJob(command=("python", *words))
    modelled = modelled_job(job)
    assert (None if modelled is None else modelled.model) == model
    assert any("saved in 16 bit" in note for note in recommend(box(T4), python(), job).notes) is said
    assert not any("saved in 16 bit" in note for note in recommend(box(A10), python(), job).notes)


def test_a_command_that_trains_gemma_is_not_sent_to_fp16():
    job = CommandJob(command=("python", "sft.py", "--model", "google/gemma-3-1b-it"))
    assert recommend(box(T4), python(), job).settings.precision == "fp32"


def test_a_command_keeps_the_effective_batch_that_its_learning_rate_belongs_to() -> None:
    found = recommend(box(A10), python(), COMMAND, {"per_device_train_batch_size": 5, "learning_rate": 1e-3})
    assert found.effective_batch == 5
    assert "gradient_accumulation_steps" not in found.values
    assert not any("learning rate" in note for note in found.notes)
    assert any("learning rate" in note for note in recommend(box(A10), python(), COMMAND).notes)


def test_a_script_that_is_not_transformers_gets_no_training_arguments() -> None:
    job = CommandJob(command=("python", "train.py", "--config", "c.yaml"), apply="yaml", dialect="own-script")
    found = recommend(box(A10), python(), job, {"per_device_train_batch_size": 32, "learning_rate": 0.1})
    assert set(found.values) <= {
        "precision",
        "tf32",
        "dataloader_num_workers",
        "dataloader_prefetch_factor",
        "dataloader_pin_memory",
        "dataloader_persistent_workers",
    }
    assert found.values["precision"] == "bf16"
    assert {one.name for one in found.rejected} <= {"torch_compile", "dataloader_num_workers"}
