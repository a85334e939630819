"""Names of the built-in models and data, which need no download, and whether the Hugging Face Hub can be reached."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from .errors import first_line

SHAPES = ("tiny", "bert-base", "bert-large", "gpt2", "llama-1b")
STDLIB = "stdlib"
HUB = "https://huggingface.co"
CONNECT_TIMEOUT_S = 5.0
OFFLINE = "HF_HUB_OFFLINE"


def needs_hub(values: Mapping[str, Any]) -> bool:
    """Whether the model or the data may have to be downloaded: neither built in nor a local path."""
    names = (str(values.get("model", "tiny")), str(values.get("data", STDLIB)))
    return any(name not in (*SHAPES, STDLIB) and not Path(name).exists() for name in names)


def go_offline_if_unreachable() -> None:
    """Set `HF_HUB_OFFLINE` if the Hub cannot be reached, so that cached models and data load without retries.

    Must run before `huggingface_hub` is imported. Behind a proxy nothing is tested.
    """
    if OFFLINE in os.environ or "https" in getproxies() or "all" in getproxies():
        return
    hub = urlsplit(os.environ.get("HF_ENDPOINT", HUB))
    try:
        address = (hub.hostname or "", hub.port or (80 if hub.scheme == "http" else 443))
        socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
    except OSError:
        print(f"{hub.hostname} cannot be reached: only cached files can be used")
        os.environ[OFFLINE] = "1"


def find_config_problem(model: str) -> str | None:
    """Why the configuration of `model` cannot be read from the Hub or its cache; asked before torch is imported."""
    from huggingface_hub import hf_hub_download

    try:
        hf_hub_download(model, "config.json")
    except FileNotFoundError:  # of which huggingface_hub's LocalEntryNotFoundError is one in every version
        return f"the configuration of {model} was not downloaded before, and the Hub cannot be reached"
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {first_line(error)}"
    return None
