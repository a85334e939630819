"""Names of the built-in models and data, which need no download, and whether the Hugging Face Hub can be reached."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit
from urllib.request import getproxies

SHAPES = ("tiny", "bert-base", "bert-large", "gpt2", "llama-1b")
STDLIB = "stdlib"


HUB = "https://huggingface.co"
CONNECT_TIMEOUT_S = 5.0
OFFLINE = "HF_HUB_OFFLINE"


def go_offline_if_unreachable() -> None:
    """Where no connection to the Hub opens, set `HF_HUB_OFFLINE`: models and data in its cache then load at once.

    Must run before `huggingface_hub` is imported. Behind a proxy nothing is tried: only the proxy could tell.
    """
    if OFFLINE in os.environ or "https" in getproxies() or "all" in getproxies():
        return
    hub = urlsplit(os.environ.get("HF_ENDPOINT", HUB))
    if not is_reachable(hub.hostname or "", hub.port or (80 if hub.scheme == "http" else 443)):
        print(f"{hub.hostname} cannot be reached: only what is in the cache can be used")
        os.environ[OFFLINE] = "1"


def is_reachable(host: str, port: int) -> bool:
    """Whether a TCP connection to `host` opens within `CONNECT_TIMEOUT_S`."""
    try:
        with socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False
