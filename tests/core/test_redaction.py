"""Secrets stay out of the record."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

import pytest

from tuner_tui.core import redaction
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


S = "q7Wd2kPz9LmX4vTb"
"""A secret that no shape gives away."""
HEX = "0123456789abcdef" * 2 + "01234567"
RANDOM = "aZ3kQ9xW1mB7vR5tY2nL8pC4sD6f"


@pytest.mark.parametrize(
    "argv",
    [
        ("t.py", "--db_pass", S),
        ("t.py", f"--db-pass={S}"),
        ("t.py", "--hftoken", S),
        ("t.py", "--authtoken", S),
        ("t.py", "--bearer", S),
        ("t.py", "--jwt", S),
        ("t.py", "--dbPassword", S),
        ("t.py", "--mysql-pwd", S),
        ("t.py", "--wandb.apiKey", S),
        ("t.py", f"++wandb.api_key={S}"),
        ("t.py", "--token_prod", S),
        ("t.py", "--token", f"-{S}"),
        ("t.py", f"--password=-{S}"),
        ("t.py", "--password", f"a b {S}"),
        ("env", f"PGPASSWORD={S}", "python", "t.py"),
        ("env", f"DB_PW=a b {S}", "python", "t.py"),
        ("sshpass", "-p", S, "ssh", "host"),
        ("sh", "-c", f"SSHPASS={S} sshpass -e ssh host"),
        ("sh", "-c", f"sshpass -p{S} ssh host"),
        ("wandb", "login", HEX),
        ("wandb", "login", "--relogin", HEX),
        ("sh", "-c", f"wandb login --host https://w.example.org {HEX} && python t.py"),
        ("python", "-c", f"import wandb; wandb.login(key='{HEX}')"),
        ("python", "-c", f'login(token="{S}")'),
        ("curl", "-u", f"me:{S}", "https://host/x"),
        ("curl", f"--user=me:{S}", "https://host/x"),
        ("curl", "-H", f"Authorization: Basic {S}", "https://host/x"),
        ("curl", "-H", f"X-Api-Key: {S}", "https://host/x"),
        ("curl", "-H", f"Cookie: session={S}; theme=dark", "https://host/x"),
        ("curl", f"https://acct.blob.core.windows.net/c/f?sv=2024-01-01&sr=b&sig={S}%3D&sp=r"),
        ("curl", f"https://bucket.s3.amazonaws.com/k?X-Amz-Signature={S}&X-Amz-Date=20250101"),
        ("curl", f"https://host/x?access_token={S}"),
        ("curl", f"https://host/x?key={S}"),
        ("t.py", "--notify", f"https://hooks.slack.com/services/T000/B000/{S}"),
        ("t.py", "--notify", f"https://discord.com/api/webhooks/1234567890/{S}"),
        ("t.py", "--notify", f"https://x.webhook.office.com/webhookb2/{S}/IncomingWebhook/1"),
        ("t.py", "--notify", f"tgram://123456789:{S}/42"),
        ("t.py", "--dsn", f"postgresql://me:{S}@db/x"),
        ("t.py", "--redis", f"redis://:{S}@db:6379/0"),
        ("mysql", "-u", "me", f"-p{S}", "db"),
        ("redis-cli", "-h", "db", "-a", S, "ping"),
        ("docker", "login", "-u", "me", "-p", S, "registry"),
        ("aws", "configure", "set", "aws_secret_access_key", S),
        ("openssl", "enc", "-passin", f"pass:{S}"),
        ("sh", "-c", f"echo 'machine api.wandb.ai login user password {S}' > ~/.netrc"),
        ("t.py", f'{{"apiKey": "{S}", "lr": 1}}'),
        ("sh", "-c", f'curl -d "{{\\"api_key\\": \\"{S}\\"}}" https://host'),
        ("t.py", f"DefaultEndpointsProtocol=https;AccountName=me;AccountKey={S}==;EndpointSuffix=core"),
        ("t.py", "--flag", "-token", S),
        ("t.py", "--unknown", RANDOM),
        ("t.py", f"--unknown={RANDOM}"),
    ],
)
def test_ways_of_passing_a_secret(argv: tuple[str, ...]) -> None:
    shown = "\0".join(redact_argv(argv))
    assert S not in shown
    assert HEX not in shown
    assert RANDOM not in shown
    assert redact_argv(redact_argv(argv)) == redact_argv(argv)
    assert len(redact_argv(argv)) == len(argv)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DB_PASS", S),
        ("PGPASSWORD", S),
        ("SSHPASS", S),
        ("JWT", S),
        ("COOKIE", S),
        ("SESSION_COOKIE", S),
        ("HFTOKEN", S),
        ("WANDB_APIKEY", S),
        ("AZURE_DEVOPS_EXT_PAT", S),
        ("DJANGO_SECRET_KEY", S),
        ("SECRET_KEY_BASE", S),
        ("GITHUB_TOKEN_2", S),
        ("REDIS_PW", S),
        ("API_TOKENS", S),
        ("SENTRY_DSN", f"https://{S}@sentry.example.org/1"),
        ("NETRC", f"machine api.wandb.ai\n  login user\n  password {S}\n"),
        ("NOTES", f"machine api.wandb.ai\n  login user\n  password {S}\n"),
        ("STORAGE", f"AccountName=me;AccountKey={S}=="),
        ("DATABASE_URL", f"mysql://me:{S}@host/db"),
        ("AZURE_STORAGE_CONNECTION_STRING", f"AccountKey={S}=="),
        ("CURL_OPTIONS", f"-H 'Authorization: Bearer {S}'"),
        ("SERVICE_ACCOUNT", f"-----BEGIN PRIVATE KEY-----\n{S}\n-----END PRIVATE KEY-----\n"),
        ("MY_THING", RANDOM),
    ],
)
def test_ways_of_holding_a_secret_in_the_environment(name: str, value: str) -> None:
    shown = redact_env({name: value})[name]
    assert S not in shown
    assert RANDOM not in shown


ORDINARY = """
torchrun --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=localhost:29500 --rdzv_id=1234 train.py --seed 42
accelerate launch --config_file configs/fsdp.yaml --num_processes 4 run_clm.py --model meta-llama/Llama-3.1-8B
python run_glue.py --task_name mrpc --max_seq_length 128 --per_device_train_batch_size 32 --output_dir /tmp/mrpc/ --fp16
python sft.py --model Qwen/Qwen2.5-VL-7B-Instruct-GPTQ-Int4 --dataset trl-lib/Capybara --max_new_tokens 256
python run_translation.py --source_prefix "translate English to Romanian: " --forced_bos_token ro_RO --source_lang en
python train.py --pad_token <pad> --eos_token=</s> --image_token <image> --num_tokens 1000 --tokenizer_name gpt2
python train.py --caption_column text --image_key jpg --label_key y --prompt_key prompt --monitor_key val/loss
python run.py --use_auth_token True --token true --push_to_hub False --key 3
python run.py --use_auth_token --bf16 --gradient_checkpointing --learning_rate 1e-5 --warmup_steps 0.06
python run.py --revision 0123456789abcdef0123456789abcdef01234567 --data s3://bucket/prefix/part-00001.parquet
python run.py --model /root/.cache/huggingface/hub/models--gpt2/snapshots/11c5a3d5811f50298f278a704980280950aedb10
python train.py hydra.run.dir=outputs/2025-01-01/12-00-00 model=llama optim.lr=3e-4 tokenizer.path=t.model
python train.py --config LlamaForSequenceClassification2Labels --arch EfficientNetV2S21kFt1k --low_pass 5 --single_pass
srun --ntasks=16 --gpus-per-task=1 --cpus-per-task=8 bash -c "python -u train.py --master_port=29501"
docker run --gpus all -u 1000:1000 --shm-size=8g nvcr.io/nvidia/pytorch:24.01-py3 python train.py
CUDA_VISIBLE_DEVICES=GPU-8f3a4b5c-1234-5678-9abc-def012345678 NCCL_DEBUG=INFO python train.py
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:512 python -m torch.distributed.run train.py
python -m axolotl.cli.train examples/llama-3/lora-8b.yml --deepspeed deepspeed_configs/zero3_bf16.json
python -c "print(sorted(x, key=len)); tokenizer.pad_token = tokenizer.eos_token"
llamafactory-cli train examples/train_lora/llama3_lora_sft.yaml lora_rank=16 cutoff_len=2048
python train.py --wandb_project my-project --wandb_run_id 3kx9v2ab --run_name llama3-8b-lr2e-5-bs128-ep3-seed42
python train.py --compass x --keyboard qwerty --authors me --passes 2 --secretary bob --tokens_per_step 4096
ssh -i ~/.ssh/id_ed25519 me@host tmux attach
mpirun -np 8 -H a:4,b:4 -x NCCL_SOCKET_IFNAME=eth0 -x LD_LIBRARY_PATH python train.py
"""
MESSAGES = """
CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.25 GiB is free.
Error(s) in loading state_dict for GPT2LMHeadModel: Missing key(s) in state_dict: "transformer.h.0.attn.bias".
The size of tensor a (512) must match the size of tensor b (1024) at non-singleton dimension 1
Token indices sequence length is longer than the specified maximum sequence length for this model (1030 > 1024).
KeyError: 'input_ids' while reading shard-000123-of-000456.tar (offset 1048576)
"""


@pytest.mark.parametrize("line", ORDINARY.strip().splitlines())
def test_ordinary_commands_stay_as_they_are(line: str) -> None:
    assert redact_text(line) == line
    assert redact_argv(shlex.split(line)) == tuple(shlex.split(line))


@pytest.mark.parametrize("line", MESSAGES.strip().splitlines())
def test_ordinary_messages_stay_as_they_are(line: str) -> None:
    assert redact_text(line) == line


@pytest.mark.parametrize(
    "message",
    [
        f"401 Client Error: Invalid token: {S}",
        f"Incorrect API key provided: {S}.",
        f"Password '{S}' was rejected",
        f"{{'Authorization': 'Bearer {S}'}}",
        f"connecting to postgres://me:{S}@db failed",
        f"Request(url='https://x/?api_key={S}', timeout=3)",
        f"login failed for user=me password={S}",
        f"got {RANDOM} as token",
    ],
)
def test_messages_of_exceptions(message: str) -> None:
    assert S not in redact_text(message)
    assert RANDOM not in redact_text(message)


def test_the_observer_can_load_it_in_old_interpreters() -> None:
    ast.parse(Path(redaction.__file__).read_text(), feature_version=(3, 8))
