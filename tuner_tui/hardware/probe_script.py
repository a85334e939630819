"""Runs inside the Python that trains, fed to it on standard input: says what it is, one marked JSON line a stage.

Standard library only and no newer than Python 3.8, whatever this program itself needs. Stage `versions` imports
nothing; stage `fields` imports transformers, and with it torch.
"""

from __future__ import annotations

import dataclasses
import enum
import gc
import json
import platform
import re
import sys
from importlib import import_module
from typing import Any

MARK = "tuner-tui-interpreter "
PACKAGES = (
    "torch", "transformers", "accelerate", "datasets", "peft", "bitsandbytes", "flash-attn", "trl", "lightning",
    "deepspeed", "liger-kernel", "flash-attn-3", "xformers", "unsloth", "vllm", "wandb", "tensorboard", "mlflow",
    "swanlab", "trackio",
)  # fmt: skip
OTHER_DISTRIBUTIONS = {
    "lightning": "pytorch-lightning", "liger-kernel": "liger-kernel-nightly", "flash-attn-3": "flash_attn_3",
    "tensorboard": "tensorboardX", "mlflow": "mlflow-skinny",
}  # fmt: skip
"""Under which a package is installed as well."""


def versions() -> dict[str, Any]:
    import sysconfig  # whoever reads `PACKAGES` does without

    installed = ((name, version_of(name) or version_of(OTHER_DISTRIBUTIONS.get(name, name))) for name in PACKAGES)
    return {
        "python_version": platform.python_version(),
        "packages": {name: version for name, version in installed if version},
        "torch_cuda": torch_cuda(),
        "site_folders": sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}),
    }


def version_of(distribution: str) -> str | None:
    from importlib import metadata  # it imports email and zipfile: 2 MB that whoever reads `PACKAGES` does without

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def torch_cuda() -> str | None:
    """The CUDA torch was built with, read from its version.py without importing it."""
    from importlib import metadata

    try:
        with open(str(metadata.distribution("torch").locate_file("torch/version.py")), encoding="utf-8") as file:  # noqa: PTH123
            match = re.search(r"^cuda\b[^=]*=\s*['\"]([^'\"]+)", file.read(), re.MULTILINE)
    except (OSError, metadata.PackageNotFoundError):
        return None
    return match.group(1) if match else None


def fields() -> dict[str, Any]:
    answer: dict[str, Any] = {"training_arguments": None, "torch_archs": [], "problem": None}
    gc.disable()  # looking through what is imported takes a quarter of the time
    # By name: this file is fed to another Python, and the package it lies in must never import these.
    try:
        torch = import_module("torch")
        # The list torch.cuda.get_arch_list() gives, which however stays empty without a GPU.
        flags = torch._C._cuda_getArchFlags() if hasattr(torch._C, "_cuda_getArchFlags") else None
        answer["torch_archs"] = (flags or "").split()
        arguments = import_module("transformers.training_args").TrainingArguments
    except Exception as error:  # noqa: BLE001  whatever a broken environment raises is the answer
        answer["problem"] = ": ".join((type(error).__name__, *str(error).strip().splitlines()[-1:]))
        return answer
    answer["training_arguments"] = defaults(arguments)
    return answer


def defaults(model: type) -> dict[str, Any]:
    return {
        field.name: to_json(field.default if field.default_factory is dataclasses.MISSING else field.default_factory())
        for field in dataclasses.fields(model)
    }


def to_json(value: Any) -> Any:
    """The value as JSON holds it; None for what has no such form."""
    if isinstance(value, enum.Enum):
        return to_json(value.value)
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    return value if isinstance(value, (str, int, float, bool)) else None


def main(stages: list[str]) -> None:
    for stage in stages:
        sys.stdout.write("\n" + MARK + json.dumps(versions() if stage == "versions" else fields()) + "\n")
        sys.stdout.flush()
    gc.freeze()  # so that it is not looked through at the exit either


if __name__ == "__main__":
    main(sys.argv[1:])
