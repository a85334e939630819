"""Secrets stay out of the record."""

from __future__ import annotations

import pytest

from tuner_tui.core.redaction import HIDDEN, is_secret_name, redact_argv, redact_env, redact_text

HF = "hf_" + "aB3" * 11


@pytest.mark.parametrize(
    ("argv", "hidden"),
    [
        (("train.py", "--hub_token", "abc"), ("train.py", "--hub_token", HIDDEN)),
        (("--hub-token=abc",), (f"--hub-token={HIDDEN}",)),
        (("--api-key", "abc", "--lr", "1"), ("--api-key", HIDDEN, "--lr", "1")),
        (("+wandb.api_key=abc",), (f"+wandb.api_key={HIDDEN}",)),
        (("--password=",), ("--password=",)),
        (("--use_auth_token", "--bf16"), ("--use_auth_token", "--bf16")),
        ((f"login {HF}",), (f"login {HIDDEN}",)),
        (("https://me:secret@host/repo.git",), (f"https://{HIDDEN}@host/repo.git",)),
        (("https://me:p@ss@host/repo.git",), (f"https://{HIDDEN}@host/repo.git",)),
        (("git+https://host/me/repo@v1",), ("git+https://host/me/repo@v1",)),
        (("https://host/x?a=1&token=abc&b=2",), (f"https://host/x?a=1&token={HIDDEN}&b=2",)),
        (("s3://bucket/data",), ("s3://bucket/data",)),
        (("--model", "me/mask-rcnn-resnet50-fpn-coco"), ("--model", "me/mask-rcnn-resnet50-fpn-coco")),
        (
            ("sh", "-c", "A=1 HF_TOKEN=abc python t.py --lr 1 --token=def --hub-token ghi --bf16"),
            ("sh", "-c", f"A=1 HF_TOKEN={HIDDEN} python t.py --lr 1 --token={HIDDEN} --hub-token {HIDDEN} --bf16"),
        ),
        (("export HF_TOKEN='abc'; python t.py",), (f"export HF_TOKEN='{HIDDEN}'; python t.py",)),
        (("Authorization: Bearer abc",), (f"Authorization: Bearer {HIDDEN}",)),
        (('{"hub_token": "abc", "lr": 1}',), (f'{{"hub_token": "{HIDDEN}", "lr": 1}}',)),
        (("print(sorted(x, key=len), 'token', tokens=3)",), ("print(sorted(x, key=len), 'token', tokens=3)",)),
        (("--max_tokens", "128"), ("--max_tokens", "128")),
        (("--pad_token", "<pad>", "--tokenizer", "gpt2"), ("--pad_token", "<pad>", "--tokenizer", "gpt2")),
        (("--label_key", "y", "--learning_rate=1e-5"), ("--label_key", "y", "--learning_rate=1e-5")),
    ],
)
def test_commands(argv: tuple[str, ...], hidden: tuple[str, ...]) -> None:
    assert redact_argv(argv) == hidden


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


@pytest.mark.parametrize(
    "name",
    [
        "MYSQL_PWD",
        "dbPassword",
        "clientSecret",
        "GITHUB_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "key",
        "LABEL_STUDIO_API_KEY",
        "NEW_RELIC_LICENSE_KEY",
        "SLACK_WEBHOOK_URL",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["PWD", "TOKENIZERS_PARALLELISM", "max_new_tokens", "num_tokens", "keyboard", "eos_token"]
)
def test_names_that_only_sound_like_it(name: str) -> None:
    assert not is_secret_name(name)


def test_a_revision_is_no_secret() -> None:
    words = ("--revision", "0123456789abcdef" * 2 + "01234567")
    assert redact_argv(words) == words


def test_shapes_of_secrets_in_text() -> None:
    for secret in (HF, "sk-" + "a" * 24, "ghp_" + "b" * 36, "AKIA" + "C" * 16):
        assert redact_text(f"key {secret} end") == f"key {HIDDEN} end"


def test_what_was_hidden_stays_as_it_is() -> None:
    once = redact_argv(("--token=abc", "sh -c 'HF_TOKEN=abc x --token def'", "https://u:p@h", "Authorization: abc"))
    assert redact_argv(once) == once


def test_a_word_of_a_million_characters_takes_no_time() -> None:
    for word in ("a" * 1_000_000, "a-" * 500_000, "--a " * 250_000, "http://" * 150_000, "token" * 200_000):
        assert redact_argv((word,)) == (word,)
