"""Secrets are kept out of what is written down: tokens, keys, passwords, addresses with credentials."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

HIDDEN = "[hidden]"

_NAME = re.compile(
    r"(?:^|[^a-z])(?:token|auth|secret|secrets|passw(?:or)?d|passphrase|pwd|credentials?|api_?key|access_?key"
    r"(?:_?id)?|private_?key|secret_?key|key)$"
)
_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|AKIA[0-9A-Z]{16}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|glpat-[\w-]{16,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
)
_CREDENTIALS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/@\s]+@", re.IGNORECASE)
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def redact_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with every secret value hidden; names stay."""
    return {name: HIDDEN if is_secret_name(name) else redact_text(value) for name, value in env.items()}


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The command with secrets hidden, whether written `--token X`, `--token=X`, `token=X` or `https://user:X@host`."""
    hidden: list[str] = []
    expects_secret = False
    for word in argv:
        hidden.append(HIDDEN if expects_secret and not word.startswith("-") else _redact_word(word))
        expects_secret = word.startswith("-") and "=" not in word and is_secret_name(word)
    return tuple(hidden)


def redact_text(text: str) -> str:
    """Free text with what looks like a secret hidden: known token shapes and credentials in addresses."""
    return _CREDENTIALS.sub(rf"\g<scheme>{HIDDEN}@", _VALUE.sub(HIDDEN, text))


def is_secret_name(name: str) -> bool:
    """Whether a variable or an option of this name holds a secret. `max_tokens` and `tokenizer` do not."""
    flat = _WORDS.sub("_", name.strip("-")).lower().replace("-", "_").rsplit(".", 1)[-1]
    if re.search(r"(?:^|_)(?:max|min|num|new|pad|eos|bos|unk|sep|cls|mask|per|special|sort|label|text|map)_", flat):
        return False
    return flat != "pwd" and _NAME.search(flat) is not None  # the shell's own PWD is the folder


def _redact_word(word: str) -> str:
    name, equals, value = word.partition("=")
    if equals and value and is_secret_name(name.lstrip("+~")):
        return f"{name}={HIDDEN}"
    return redact_text(word)
