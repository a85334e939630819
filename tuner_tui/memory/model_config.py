"""Finds the configuration of a model: on this machine, or by the name of a well-known one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from tuner_tui import __file__ as package
from tuner_tui.core.files import read_data_file, read_json

FILE = Path(__file__).with_name("models.yaml")
BUILT_IN_FILE = Path(package).parent / "trainer" / "built_in.yaml"
SIZE = re.compile(r"(?:(?<![a-z0-9._])([01]_\d)|(?<![a-z0-9.])(?<!\d_)(?:(\d+)x)?(\d+(?:\.\d+)?))([bm])(?![a-z0-9])")
"""A number of parameters in a model's name: `7b`, `1.5b`, `1_8b`, `135m`, `8x7b`. Not the 3 billion that compute in
`30b-a3b`, and not `2_7b`, which may be version 2."""
SHARED_SHARE = 0.22
"""What the experts of an `8x7b` share of each 7 billion: Mixtral's 8x7B and 8x22B are 46.7 and 140.6 billion."""
ROUNDED_NAMES: Mapping[str, float] = {"1b": 1.25e9, "2b": 2.4e9}
"""Names are rounded down: the models of `models.yaml` called 1b have 1.0 to 1.7 billion, those called 2b 2.2 to 2.7."""
LEAST_PARAMETERS = 100e6
"""A smaller number may leave out the embeddings (Prompt-Guard-86M has 279 million) or be a context: `1m` tokens."""
TIMM = re.compile(r"(?:vit|deit|beit|swin|convnext)_|resnet\d")
"""How names of timm begin that has a model of Transformers as well."""


def read_config(model: str) -> Mapping[str, Any] | None:
    """The configuration of a model, of its `config.json` or, without one, by its name; None where there is neither."""
    if (built_in := read_data_file(BUILT_IN_FILE).get(model)) is not None:
        config: Mapping[str, Any] = next(iter(built_in.values()))
        return config
    path = config_path(model)
    if path is None:
        return known_config(without_quantization(model)[0])
    try:
        return _read_json(path, path.stat().st_mtime_ns)
    except OSError:
        return None


def without_quantization(model: str) -> tuple[str, float | None]:
    """The name without its suffix for quantized weights, and the bytes per weight that the suffix means, or None."""
    name = model.replace("___", ".")  # as ModelScope writes it in the paths of its cache
    sizes = set()
    for word, size in read_data_file(FILE)["quantized"].items():
        shorter = re.sub(rf"(?i)[-_.]{word}(?=[-_.]|$)", "", name)
        if shorter != name:
            sizes.add(size)
        name = shorter
    return name, max(sizes, default=None)


def known_config(model: str) -> Mapping[str, Any] | None:
    """The configuration of a well-known model, such as `Qwen/Qwen2.5-7B-Instruct`; `size` is its only key for some.

    None for others.
    """
    name = model.rstrip("/").rpartition("/")[2].lower()
    if TIMM.match(name):  # `vit_base_patch16_224.augreg_in21k`, `resnet50`
        name = re.sub(r"^resnet(?=\d)", "resnet-", name.partition(".")[0].replace("_", "-"))
    parts = re.split(r"(?<=[a-z0-9])(?=[-_])", name)
    for count in range(len(parts), 0, -1):
        config = known_configs().get("".join(parts[:count]))
        rest = "".join(parts[count:])
        if config is not None:
            resized = set(re.split("[-_]", rest)) & set(read_data_file(FILE)["other-sizes"])
            return None if resized or sizes_in(rest) else config
    return None


@cache
def known_configs() -> Mapping[str, Mapping[str, Any]]:
    """The configurations of well-known models by their names; `size` alone where there is no closed form."""
    data = read_data_file(FILE)
    configs = {
        names: {**group.get("defaults", {}), **dict(zip(group["columns"], row, strict=False))}
        for group in data["shapes"]
        for names, row in group["models"].items()
    }
    sizes = {names: {"size": size} for group in data["sizes"] for names, size in group["models"].items()}
    return {name: config for names, config in (configs | sizes).items() for name in names.split()}


def sizes_in(name: str) -> set[float]:
    sizes = set()
    for match in SIZE.finditer(name):
        decimal, experts, number, unit = match.groups()
        count = float((decimal or number).replace("_", ".")) * (1e9 if unit == "b" else 1e6)
        copies = SHARED_SHARE + (1 - SHARED_SHARE) * int(experts) if experts else 1
        sizes.add(ROUNDED_NAMES.get(match[0], copies * count))
    return {size for size in sizes if size >= LEAST_PARAMETERS}


def config_path(model: str) -> Path | None:
    """The model's `config.json`: in its folder, else the newest one in the Hub's cache; None without one."""
    local = Path(model).expanduser() / "config.json"
    if local.is_file():
        return local
    snapshots = hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots"
    configs = sorted(snapshots.glob("*/config.json"), key=lambda path: path.stat().st_mtime_ns)
    return configs[-1] if configs else None


def hub_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder in which huggingface_hub caches downloads."""
    if environment.get("HF_HUB_CACHE"):
        return Path(environment["HF_HUB_CACHE"])
    home = environment.get("HF_HOME") or Path(environment.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"


@lru_cache(maxsize=32)
def _read_json(path: Path, stamp: int) -> Mapping[str, Any] | None:
    return read_json(path, follow_links=True) or None
