"""Hides secrets in environments, command lines and text: tokens, keys, passwords, credentials in URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

HIDDEN = "[hidden]"

_CERTAIN = re.compile(
    r"(?:^|[^a-z])(?:secret|secrets|passw(?:or)?d|passphrase|credentials?|webhook(?:_url)?"
    r"|(?:api|access|private|secret|license)_?key(?:_?id)?)$"
)
_LIKELY = re.compile(r"(?:^|[^a-z])(?:token|auth|pwd|key)$")
_HARMLESS = re.compile(r"(?:^|_)(?:max|min|num|new|pad|eos|bos|unk|sep|cls|mask|per|special|sort|label|text|map)_")
_VALUE = re.compile(
    r"(?<![A-Za-z0-9_-])(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,}|glpat-[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_CREDENTIALS = re.compile(r"(?<![a-z0-9+.-])(?P<scheme>[a-z0-9][a-z0-9+.-]*://)[^/\s]+@", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"""(?<![\w.-])(?P<head>-{0,2}(?P<name>[A-Za-z_][\w.-]*)["']?\s?[:=]\s?["']?)[^\s"',;&|<>(){}\[\]]+"""
)
_OPTION = re.compile(r"""(?<![\w.-])(?P<head>--?(?P<name>[A-Za-z][\w.-]*)\s+["']?)[^\s"'\[-][^\s"']*""")
_HEADER = re.compile(r"(?P<head>authorization\s*:\s*(?:[a-z]+\s+)?)[^\s\"'\[]+", re.IGNORECASE)
_VAGUE = frozenset({"key", "auth"})
"""Names that are only secret as an option or variable: inside a script, `key=…` is a parameter of `sorted`."""
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def redact_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with the values of secrets hidden; names are kept."""
    return {name: HIDDEN if is_secret_name(name) else _redact_words(value) for name, value in env.items()}


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The command with secrets hidden, written as `--token X`, `--token=X`, `token=X` or `https://user:X@host`.

    A word may itself be a command with several: `bash -c 'HF_TOKEN=X python train.py --token Y'`.
    """
    hidden: list[str] = []
    expects_secret = False
    for word in argv:
        hidden.append(HIDDEN if expects_secret and not word.startswith("-") else _redact_word(word))
        expects_secret = word.startswith("-") and "=" not in word and is_secret_name(word)
    return tuple(hidden)


def redact_text(text: str) -> str:
    """Free text without known token formats and credentials in URLs."""
    return _CREDENTIALS.sub(rf"\g<scheme>{HIDDEN}@", _VALUE.sub(HIDDEN, text))


def is_secret_name(name: str) -> bool:
    """Whether a variable or option of this name holds a secret; `max_tokens` and `tokenizer` do not."""
    flat = _WORDS.sub("_", name.strip("-")).lower().replace("-", "_").rsplit(".", 1)[-1]
    if _CERTAIN.search(flat):
        return True
    return flat != "pwd" and not _HARMLESS.search(flat) and _LIKELY.search(flat) is not None  # PWD is a folder


def _redact_word(word: str) -> str:
    name, equals, value = word.partition("=")
    if equals and value and not any(map(str.isspace, name)) and is_secret_name(name.lstrip("+~")):
        return f"{name}={HIDDEN}"
    return _redact_words(word)


def _redact_words(text: str) -> str:
    """Hides secrets in a text that may be a command, including values that follow the name of a secret."""
    text = _HEADER.sub(rf"\g<head>{HIDDEN}", redact_text(text))
    for pattern in (_ASSIGNED, _OPTION):
        text = pattern.sub(_hidden_behind_name, text)
    return text


def _hidden_behind_name(found: re.Match[str]) -> str:
    name = found["name"]
    return f"{found['head']}{HIDDEN}" if name.lower() not in _VAGUE and is_secret_name(name) else found[0]
