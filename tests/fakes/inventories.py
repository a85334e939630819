"""Inventories, GPUs and interpreters for tests, and hypothesis strategies for them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Cpu, Gpu, HostMemory, Inventory, Space
from tuner_tui.hardware.known_gpus import known_gpus
from tuner_tui.settings.dialects.hf import to_hf
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.settings.model import Settings

GIB = 2**30
NEWEST_NAMES = tuple(to_hf(Settings()).values)
OLD_NAMES = tuple(
    {"warmup_ratio", "evaluation_strategy", "group_by_length", "gradient_checkpointing", *NEWEST_NAMES}
    - {"eval_strategy", "train_sampling_strategy", "activation_checkpointing"}
)

BARE_NAMES = tuple(name for name in OLD_NAMES if name not in ("tf32", "dataloader_prefetch_factor", "torch_compile"))


def make_gpu(name: str, index: int = 0, gib: float | None = None, **changes: Any) -> Gpu:
    """The GPU of that name as its driver describes it; `gib` what it reports, where that matters."""
    gpu = next(gpu for gpu in known_gpus() if gpu.name == name)
    memory = gpu.memory_bytes if gib is None else int(gib * GIB)
    figures = {"capability": gpu.capability, "architecture": gpu.architecture, "memory_total_bytes": memory}
    return Gpu(index, f"NVIDIA {name}", **{**figures, **changes})


def box(
    *gpus: Gpu, cores: int = 16, quota: float | None = None, ram_gib: float = 64, shm_mib: int = 32_768, **changes: Any
) -> Inventory:
    """A machine with these GPUs."""
    shm = Space("/dev/shm", shm_mib * 2**20, shm_mib * 2**20)
    cpu = Cpu("cpu", cores // 2 or 1, cores, cores, quota)
    return Inventory("box", gpus, cpu, HostMemory(int(ram_gib * GIB)), shm=shm, **changes)


def python(
    torch: str = "2.13.0", cuda: str | None = "13.0", *, names: Any = NEWEST_NAMES, **packages: str
) -> Interpreter:
    """A Python with torch, transformers and peft, and what is named besides."""
    versions = {"torch": torch, "transformers": "5.23.0", "peft": "0.21.2"}
    given = {name.replace("_", "-"): version for name, version in packages.items()}
    fields = None if names is None else dict.fromkeys(names)
    return Interpreter("/env/bin/python", "3.11.7", {**versions, **given}, cuda, training_arguments=fields)


gpus = st.builds(
    Gpu,
    index=st.just(0),
    name=st.sampled_from([gpu.name for gpu in known_gpus()]),
    capability=st.none() | st.sampled_from(sorted({gpu.capability for gpu in known_gpus()})),
    memory_total_bytes=st.none() | st.integers(2 * GIB, 200 * GIB),
    memory_used_bytes=st.none() | st.integers(0, 300 * GIB),
    mig=st.none() | st.booleans(),
)
spaces = st.builds(Space, st.just("/dev/shm"), st.just(64 * GIB), st.integers(0, 64 * GIB))
cpus = st.builds(Cpu, st.just("cpu"), st.just(64), st.just(128), st.integers(1, 128), st.none() | st.floats(0.1, 200.0))
memories = st.builds(HostMemory, st.integers(GIB // 2, 2048 * GIB))
inventories = st.builds(
    Inventory,
    st.just("box"),
    st.lists(gpus, max_size=9).map(
        lambda ratios: tuple(
            Gpu(i, c.name, None, None, c.capability, c.memory_total_bytes, None, c.memory_used_bytes, mig=c.mig)
            for i, c in enumerate(ratios)
        )
    ),
    cpus,
    memories,
    shm=st.none() | spaces,
    cuda_version=st.sampled_from([None, "11.8", "12.4", "13.0"]),
    cuda_visible_devices=st.sampled_from([None, "", "0", "1,0", "7", "MIG-abc", "-1"]),
)
interpreters = st.none() | st.builds(
    lambda torch, cuda, names, more, version, archs: Interpreter(
        "/env/bin/python", version, {**({"torch": torch} if torch else {}), **more}, cuda, archs, names
    ),
    st.sampled_from([None, "1.13.1", "2.0.1", "2.3.0", "2.4.0", "2.8.0+cu126", "2.13.0", "2.9.0+rocm6.4"]),
    st.sampled_from([None, "11.8", "12.6", "13.0"]),
    st.sampled_from([None, dict.fromkeys(NEWEST_NAMES), dict.fromkeys(OLD_NAMES), dict.fromkeys(BARE_NAMES)]),
    st.dictionaries(
        st.sampled_from(["transformers", "peft", "bitsandbytes", "flash-attn", "accelerate"]), st.just("1.0")
    ),
    st.sampled_from(["3.10.1", "3.11.7", "3.12.3", "3.14.0"]),
    st.sampled_from([(), ("sm_75", "sm_80", "sm_90", "compute_90"), ("sm_100", "sm_120")]),
)
models = st.sampled_from(
    ["tiny", "gpt2", "llama-1b", "bert-large", "bert-base-uncased", "Qwen/Qwen2.5-7B", "mixtral-8x7b", "/my/model", ""]
)
jobs = st.builds(
    BuiltinJob,
    task=st.sampled_from(["classification", "causal-lm"]),
    model=models,
    max_samples=st.none() | st.integers(1, 10**6),
) | st.builds(
    CommandJob,
    command=st.just(("python", "train.py")),
    launcher=st.sampled_from(["plain", "torchrun"]),
    processes=st.integers(1, 64),
)
