"""No command prints NaN or Infinity, which are not JSON, whatever figures are in the files that it reads."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from msgspec.structs import replace
from typer.core import TyperGroup

from tests.cli.commands.test_run import Shell, shell
from tests.fakes.tuning_views import at_its_end
from tests.runs.builders import counters, record
from tuner_tui.cli.options import build_app
from tuner_tui.core.procfs import ProcessId, this_machine
from tuner_tui.runs.events import types as ev
from tuner_tui.runs.store.codec import encode_event
from tuner_tui.runs.store.folder import SupervisorState, create_folder, runs_dir, write_supervisor_state
from tuner_tui.runs.store.record import write_record
from tuner_tui.tuning.trial_log import TrialCompleted, TuningEnded, encode_entry

__all__ = ["shell"]

NAN, INF = math.nan, math.inf
EVENTS = (
    ev.Metrics(t=1.0, rank=0, step=1, loss=2.0),
    ev.Metrics(t=1.0, rank=0, step=50, loss=NAN, learning_rate=INF, grad_norm=-INF, epoch=NAN),
    ev.Evaluated(t=2.0, rank=0, step=50, metrics={"eval_loss": NAN, "eval_accuracy": INF, "eval_f1": 0.5}, seconds=INF),
    ev.InEffect(t=2.0, rank=0, values={"dropout": NAN, "nested": {"scale": [INF]}, "learning_rate": -INF}),
    ev.Injected(t=2.0, rank=0, values={"learning_rate": NAN}),
    ev.Plan(t=2.0, rank=0, total_steps=100, epochs=INF),
    counters(50, 8, INF, data_wait_s=NAN, eval_s=NAN, save_s=INF),
)
RAW = b'{"v":1,"kind":"metrics","t":NaN,"rank":0,"step":60,"loss":Infinity,"grad_norm":1e999}\n'
PRESET = "version: 1\nname: {}\nsettings: {{learning_rate: {}, weight_decay: {}}}\n"
FILE = "model_name_or_path: gpt2\noutput_dir: out\nper_device_train_batch_size: 4\n"
TOOL_FILES = {
    "tool.yaml": f"{FILE}made_up: [.inf, .nan]\nmore: {{a: .nan}}\n",
    "bad-tool.yaml": f"{FILE}warmup_steps: .nan\n",
}
JOB = ("--apply", "none", "--", sys.executable, "train.py")
BARE = ("--interpreter", "./bare-python")
"""With a Python that has no torch: by formula, where a trace would take seconds."""
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "ps": (("ps",),),
    "queue": (("queue",),),
    "stop": (("stop", "r001"),),
    "logs": (("logs", "r001"), ("logs", "--events", "r001"), ("logs", "-f", "--events", "r001")),
    "diagnose": (("diagnose", "r001"), ("diagnose", "r002"), ("diagnose", "r003")),
    "stacks": (("stacks", "r001"),),
    "batches": (("batches", "r001"), ("batches", "r001", "--step", "50")),
    "profile": (("profile", "r001"), ("profile", "r001", "--memory")),
    "replay": (("replay", "r001"),),
    "diff": (("diff", "r001", "r002"), ("diff", "r001", "r003")),
    "watch": (("watch", "--once"),),
    "doctor": (("doctor",), ("doctor", "tool.yaml"), ("doctor", "--hardware")),
    "recommend": (("recommend",), ("recommend", "tool.yaml"), ("recommend", "--set", "weight_decay=inf")),
    "estimate": (
        ("estimate", "demo"), ("estimate", "tool.yaml", *BARE), ("estimate", "demo", "--gpu", "T4", *BARE),
        ("estimate", "demo", "--by", "kind"), ("estimate", "--", sys.executable, "train.py", "--lr", "nan"),
    ),
    "presets list": (("presets", "list"),),
    "presets show": (("presets", "show", "bad"), ("presets", "show", "tool.yaml")),
    "presets save": (
        ("presets", "save", "mine", "--set", "learning_rate=nan"), ("presets", "save", "p2", "--from", "tool.yaml"),
    ),
    "presets import": (("presets", "import", "tool.yaml"),),
    "presets export": (
        ("presets", "export", "tool.yaml", "--to", "hf"), ("presets", "export", "bad", "--to", "axolotl"),
    ),
    "run": (("run", *JOB),),
    "slurm submit": (("slurm", "submit", "--gres", "nan", *JOB),),
    "tune": (("tune", "--most-minutes", "inf", *JOB), ("tune", "--resume", "t001")),
}  # fmt: skip


def commands_with_json(command: Any, name: str = "") -> Iterator[str]:
    """The names of all commands with the option `--json`."""
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for inner in command.list_commands(context):
            yield from commands_with_json(command.get_command(context, inner), f"{name} {inner}".strip())
    elif any("--json" in parameter.opts for parameter in command.params):
        yield name


def test_every_command_that_prints_json_is_called_here() -> None:
    assert set(commands_with_json(typer.main.get_command(build_app()))) == set(COMMANDS)


@pytest.fixture
def folders(shell: Shell) -> Shell:
    """Runs, a tuning, presets and a tool's file with figures that are not finite."""
    (shell.home / "config" / "tuner-tui" / "presets").mkdir(parents=True, mode=0o700)
    shell.environ |= {"XDG_CONFIG_HOME": str(shell.home / "config")}
    presets = shell.home / "config" / "tuner-tui" / "presets"
    presets.joinpath("bad.yaml").write_text(PRESET.format("bad", ".nan", ".inf"))
    presets.joinpath("worse.yaml").write_text(PRESET.format("worse", "1.0e+999", "-.inf"))
    for name, text in TOOL_FILES.items():
        shell.home.joinpath(name).write_text(text)
    shell.script("print('loss: nan', flush=True)\n")
    bare = shell.home / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    for outcome in ("completed", "failed", None):
        folder = create_folder(runs_dir(shell.environ))
        write_record(folder, record(id=folder.id))
        text = folder.record.read_text()
        folder.record.write_text(re.sub(r'"(created_t|learning_rate|weight_decay)": [\d.e-]+', r'"\1": NaN', text))
        last = ev.Finished(t=NAN, outcome=outcome or "", sentence="It ended.", step=50, loss=NAN)
        ended = () if outcome is None else (last,)
        folder.events.write_bytes(b"".join(map(encode_event, (*EVENTS, *ended))) + RAW)
        folder.output_log.write_text("{'loss': nan, 'grad_norm': inf}\nRuntimeError: Function returned nan values\n")
        gpu = '{"index":0,"name":"A","power_w":Infinity}'
        folder.samples.write_text(f'{{"v":1,"time_s":NaN,"gpus":[{gpu}],"host":{{"cpu_pct":NaN}}}}\n')
        step = '{"step":50,"losses":["nan"],"rows":[[1,2]]}\n{"step":51,"losses":[NaN]}\n'
        folder.path.joinpath("batches-rank0.jsonl").write_text(step)
        supervisor = ProcessId(999_999, 1)
        supervision = SupervisorState(this_machine(), supervisor, NAN, ended_t=INF, exit_code=1, outcome="failed")
        write_supervisor_state(folder.state, supervision)
    return shell


def refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def documents(text: str) -> list[Any]:
    """The JSON document in `text`, or that of each line."""
    try:
        return [json.loads(text, parse_constant=refuse)] if text else []
    except json.JSONDecodeError:
        return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


@pytest.mark.parametrize("words", [words for calls in COMMANDS.values() for words in calls], ids=" ".join)
def test_what_a_command_prints_is_strict_json(folders: Shell, words: tuple[str, ...]) -> None:
    at = words.index("--") if "--" in words else len(words)
    done = folders(*words[:at], "--json", *words[at:])
    documents(done.stdout)
    assert done.stdout or done.returncode, done.stderr
    assert "Traceback" not in done.stderr
    if words[0] in ("ps", "logs", "diagnose", "diff"):
        assert folders(*words).stdout


def test_the_entries_of_a_tuning_are_strict_json() -> None:
    view = at_its_end()
    first = view.tried[0]
    figures: dict[str, Any] = {"seconds": NAN, "samples_s": INF, "tokens_s": -INF, "spread": NAN, "step_time_s": INF}
    tried = replace(first, measurement=replace(first.measurement, **figures))
    assert view.verdict is not None
    verdict = replace(view.verdict, ratio=NAN, ratio_low=-INF, start=tried.measurement)
    for entry in (TrialCompleted(t=NAN, tried=tried), TuningEnded(t=INF, status="finished", verdict=verdict)):
        assert documents(encode_entry(entry).decode())
