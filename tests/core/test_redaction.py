"""Secrets stay out of the record."""

from __future__ import annotations

import ast
import random
import re
import shlex
import string
from pathlib import Path
from typing import Any

import pytest

from tuner_tui.core import redaction
from tuner_tui.core.files import read_data_file
from tuner_tui.core.redaction import HIDDEN, redact_argv, redact_env, redact_text

EXAMPLES = read_data_file(Path(__file__).with_name("redaction.yaml"))
RULES = read_data_file(Path(redaction.FILE))
KINDS = ("shape", "context", "sure", "likely", "vague", "harmless")
ALPHABETS = {
    "": string.ascii_letters + string.digits,
    "h": string.digits + "abcdef",
    "d": string.digits,
    "A": string.ascii_uppercase + "234567",
}
HF = "hf_" + "aB3" * 11
SECRETS = ("SECRET1x", "q7Wd2kPz9LmX4vTb", "aZ3kQ9xW1mB7vR5tY2nL8pC4sD6f", "0123456789abcdef" * 2 + "01234567")
"""A secret that no shape gives away, a random word, and a key in hexadecimal digits."""


def hides(shown: str) -> bool:
    return not any(secret in shown for secret in SECRETS)


def rules(*kinds: str) -> list[Any]:
    """The rows of these kinds as parameters of a test."""
    rows = [(kind, row) for row in RULES for kind in kinds if kind in row]
    return [pytest.param(row, id=f"{kind}-{texts(row, 'example')[0]}") for kind, row in rows]


def texts(row: dict[str, Any], key: str) -> list[str]:
    value = row.get(key, [])
    return [value] if isinstance(value, str) else value


def expanded(shape: str) -> str:
    """`shape` with random characters instead of `<20>` and `<20h>`."""
    chance = random.Random(shape)
    return re.sub(r"<(\d+)([hdA]?)>", lambda m: "".join(chance.choices(ALPHABETS[m[2]], k=int(m[1]))), shape)


def test_rules_are_complete_and_read_alike_without_a_yaml_reader() -> None:
    lines = Path(redaction.FILE).read_text()
    for row in RULES:
        (kind,) = set(row) & set(KINDS)
        assert set(row) <= {kind, "example", "counter_example", "source"}
        assert texts(row, "example"), row
        assert all(isinstance(text, str) for key in ("example", "counter_example") for text in texts(row, key)), row
        assert f"\n- {kind}: '{row[kind].replace(chr(39), chr(39) * 2)}'\n" in lines, row


def hides_value_of(name: str) -> bool:
    return redact_env({name: "/home/me" if name == "PWD" else "Qz7wLm"})[name] == HIDDEN


@pytest.mark.parametrize("row", rules("shape"))
def test_shapes(row: dict[str, Any]) -> None:
    for example in map(expanded, texts(row, "example")):
        shown = redact_text(f"see {example} and more")
        assert shown == f"see {HIDDEN} and more" or (example.startswith("https://") and HIDDEN in shown)
    for example in texts(row, "counter_example"):
        assert redact_text(f"see {example} and more") == f"see {example} and more"


@pytest.mark.parametrize("row", rules("context"))
def test_places(row: dict[str, Any]) -> None:
    for example in texts(row, "example"):
        assert hides(redact_text(example))
        assert hides("\0".join(redact_argv(("sh", "-c", example))))
    for example in texts(row, "counter_example"):
        assert redact_text(example) == example


@pytest.mark.parametrize("row", rules("sure", "likely", "vague", "harmless"))
def test_names(row: dict[str, Any]) -> None:
    harmless = "harmless" in row
    for key, secret in (("example", not harmless), ("counter_example", harmless)):
        assert [name for name in texts(row, key) if hides_value_of(name) is not secret] == []


@pytest.mark.parametrize("example", EXAMPLES["commands"], ids=lambda example: example["given"][0])
def test_commands(example: dict[str, list[str]]) -> None:
    assert redact_argv(example["given"]) == tuple(example.get("shown", example["given"]))


def test_environments() -> None:
    env = {
        "HF_TOKEN": "x",
        "WANDB_API_KEY": "y",
        "AWS_SECRET_ACCESS_KEY": "z",
        "PATH": "/bin",
        "PROXY": "http://u:p@h:1",
        "EXTRA_ARGS": "--lr 1 --token abc",
    }
    assert redact_env(env) == {
        "HF_TOKEN": HIDDEN,
        "WANDB_API_KEY": HIDDEN,
        "AWS_SECRET_ACCESS_KEY": HIDDEN,
        "PATH": "/bin",
        "PROXY": f"http://{HIDDEN}@h:1",
        "EXTRA_ARGS": f"--lr 1 --token {HIDDEN}",
    }


@pytest.mark.parametrize(("names", "secret"), [("secret_names", True), ("other_names", False)])
def test_names_of_secrets(names: str, secret: bool) -> None:
    assert [name for name in EXAMPLES[names] if hides_value_of(name) is not secret] == []


def test_a_revision_is_no_secret() -> None:
    words = ("--revision", "0123456789abcdef" * 2 + "01234567")
    assert redact_argv(words) == words


def test_shapes_of_secrets_in_text() -> None:
    for secret in (HF, "sk-" + "a" * 24, "ghp_" + "b" * 36, "AKIA" + "C" * 16):
        assert redact_text(f"key {secret} end") == f"key {HIDDEN} end"


def test_what_was_hidden_stays_as_it_is() -> None:
    once = redact_argv(("--token=abc", "sh -c 'HF_TOKEN=abc x --token def'", "https://u:p@h", "Authorization: abc"))
    assert redact_argv(once) == once


def test_a_word_of_200000_characters_takes_no_time() -> None:
    for word in ("a" * 200_000, "a-" * 100_000, "--a " * 50_000, "http://" * 30_000, "token" * 40_000):
        assert redact_argv((word,)) == (word,)
    for part in (
        "--token ",
        "token: a b c d ",
        "password='",
        "api key ",
        "echo a ",
        "auth=('",
        "a:b@",
        "eyJ",
        "set key ",
        "\\",
    ):
        redact_text(part * (100_000 // len(part)))


@pytest.mark.parametrize("argv", EXAMPLES["secret_commands"], ids=" ".join)
def test_ways_of_passing_a_secret(argv: list[str]) -> None:
    shown = redact_argv(argv)
    assert hides("\0".join(shown))
    assert redact_argv(shown) == shown
    assert len(shown) == len(argv)


@pytest.mark.parametrize(("name", "value"), EXAMPLES["secret_variables"])
def test_ways_of_holding_a_secret_in_the_environment(name: str, value: str) -> None:
    assert hides(redact_env({name: value})[name])


@pytest.mark.parametrize("line", EXAMPLES["ordinary_commands"])
def test_ordinary_commands_stay_as_they_are(line: str) -> None:
    assert redact_text(line) == line
    assert redact_argv(shlex.split(line)) == tuple(shlex.split(line))


@pytest.mark.parametrize("line", EXAMPLES["ordinary_messages"])
def test_ordinary_messages_stay_as_they_are(line: str) -> None:
    assert redact_text(line) == line


@pytest.mark.parametrize("message", EXAMPLES["secret_messages"])
def test_messages_of_exceptions(message: str) -> None:
    assert hides(redact_text(message))


def test_the_observer_can_load_it_in_old_interpreters() -> None:
    ast.parse(Path(redaction.__file__).read_text(), feature_version=(3, 8))
