"""Compares Trainer defaults, the field notes' preset and tuned settings on one model and its data.

Run: `python -m tests.gpu.compare_settings [--device cuda|cpu] [--minutes M] [--rounds N] [--only WORD] [--out FILE]`.
Each is a trial as in the tuner, alternating with the others, `--rounds` times; memory is limited to 8, 16 and 24 GB as
on the GPUs of the notes. The result is `tests/gpu/results/side-by-side/<hardware>.json` and a table. Needs the core
packages of this program except textual, and those of the extra `train`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tuner_tui.core.units import GIB
from tuner_tui.runs.launch.prepare import LaunchRequest
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Origin, OriginKind, Resolved, Settings
from tuner_tui.settings.presets import find_preset
from tuner_tui.tuning.trial import Measurement, Trial, TrialProtocol
from tuner_tui.tuning.trial_runner import TrialCallbacks, TrialRunner

HERE = Path(__file__).parents[2]
MAIN = "from tuner_tui.cli.main import main; main()"
TRAINER_DEFAULTS: Mapping[str, Any] = {"optim": "adamw_torch_fused"}
"""Where Transformers' defaults differ from `Settings`: the fused optimizer since torch 2.8."""
LONGER = TrialProtocol(spread=0.01, least_s=5.0, most_s=30.0)
"""Published figures are measured for longer than the trials of a search."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A model with its data under a memory limit, and the notes' preset for a GPU of that size."""

    name: str
    preset: str
    cap_bytes: int | None
    job: BuiltinJob
    max_length: int = 128

    @property
    def noted(self) -> Settings:
        """The notes' settings, with the common sequence length."""
        values = find_preset(self.preset).preset.settings
        return Settings.model_validate({**values, "max_length": self.max_length})

    @property
    def default(self) -> Settings:
        """Trainer defaults, with the common sequence length."""
        return Settings.model_validate({**TRAINER_DEFAULTS, "max_length": self.max_length})


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: the median of its rounds. `change` is the difference to the Trainer's defaults."""

    scenario: str
    who: str
    outcome: str
    throughput: float | None
    unit: str
    peak_gib: float | None
    ratio: float | None
    rounds: tuple[float, ...]
    change: dict[str, Any]
    sentence: str = ""


BERT = BuiltinJob(task="classification", model="bert-base", data="stdlib", max_samples=20_000)
ON_CARD = (
    Scenario("8 GB", "rtx3070-8gb", 8 * 10**9, BERT),
    Scenario("16 GB", "t4-16gb", 16 * 10**9, BERT),
    Scenario("24 GB", "rtx3090-24gb", 24 * 10**9, BERT),
    Scenario("whole card", "a100-80gb", None, BERT),
)
TINY = BuiltinJob(task="classification", model="tiny", data="stdlib", max_samples=400)
ON_CPU = (Scenario("3 GiB", "demo", 3 * GIB, TINY, max_length=64),)

Tune = Callable[[Scenario, Path, float], Settings]


def tuned(scenario: Scenario, root: Path, minutes: float) -> Settings:
    """The winner of `tuner-tui tune`, started from the notes' settings."""
    preset = root / "start.yaml"
    start = {"version": 1, "name": "start", "settings": scenario.noted.model_dump(), "job": scenario.job.model_dump()}
    preset.write_text(json.dumps(start))
    limit = [] if scenario.cap_bytes is None else ["--memory-limit", str(scenario.cap_bytes)]
    command = [sys.executable, "-c", MAIN, "tune", "--json", "--preset", str(preset), "--most-minutes", str(minutes)]
    done = subprocess.run([*command, *limit], env=environ(root), stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    if not lines:
        raise RuntimeError(f"The tuning did not begin (exit code {done.returncode}); what it said stands above.")
    ended = json.loads(lines[-1])
    if ended.get("verdict") is None:
        raise RuntimeError(f"The tuning came to nothing: {ended.get('sentence')}")
    return Settings.model_validate(ended["verdict"]["winner"])


def environ(root: Path) -> dict[str, str]:
    """This environment, with runs and presets in `root` and the package on the path."""
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    own = {"TUNER_STATE_DIR": str(root / "state"), "XDG_CONFIG_HOME": str(root / "config"), "PYTHONPATH": path}
    return {**os.environ, **own}


def compare(
    scenario: Scenario, rivals: Mapping[str, Settings], root: Path, rounds: int, terms: TrialProtocol
) -> list[Row]:
    """Rows of one scenario: each competitor `rounds` times, alternating."""
    request = LaunchRequest(
        job=scenario.job,
        resolved=Resolved(scenario.default, dict.fromkeys(Settings.model_fields, Origin(OriginKind.FLAG))),
        interpreter=sys.executable,
        memory_limit_bytes=scenario.cap_bytes,
        environ=environ(root),
    )
    runner = TrialRunner(request, terms)
    found: dict[str, list[Measurement]] = {who: [] for who in rivals}
    for number in range(rounds):
        for who, settings in rivals.items():
            trial = Trial(number=number + 1, purpose="confirm", settings=settings, reason=who)
            found[who].append(runner.run(trial, TrialCallbacks(launched=_say(who))).measurement)
    return rows_of(scenario, rivals, found)


def _say(who: str) -> Callable[[RunFolder], None]:
    return lambda folder: print(f"  {who}: {folder.id}", file=sys.stderr, flush=True)


def rows_of(
    scenario: Scenario, rivals: Mapping[str, Settings], found: Mapping[str, Iterable[Measurement]]
) -> list[Row]:
    """Medians, and each relative to the first competitor."""
    rows = [_row(scenario, who, settings, tuple(found[who])) for who, settings in rivals.items()]
    first = rows[0].throughput
    return [
        replace(row, ratio=None if first is None or row.throughput is None else row.throughput / first) for row in rows
    ]


def _row(scenario: Scenario, who: str, settings: Settings, measured: tuple[Measurement, ...]) -> Row:
    speeds = tuple(one.throughput for one in measured if one.outcome == "measured" and one.throughput is not None)
    peaks = [one.peak_bytes for one in measured if one.peak_bytes is not None]
    failed = next((one for one in measured if one.outcome != "measured"), None)
    default = scenario.default
    names = [name for name in Settings.model_fields if getattr(settings, name) != getattr(default, name)]
    return Row(
        scenario=scenario.name,
        who=who,
        outcome="measured" if failed is None else failed.outcome,
        throughput=statistics.median(speeds) if speeds and failed is None else None,
        unit=measured[0].unit,
        peak_gib=max(peaks) / GIB if peaks else None,
        ratio=None,
        rounds=speeds,
        change={name: getattr(settings, name) for name in names},
        sentence="" if failed is None else failed.sentence,
    )


def measure(
    scenario: Scenario, root: Path, minutes: float, rounds: int, tune: Tune = tuned, terms: TrialProtocol = LONGER
) -> list[Row]:
    """Run one scenario: tune first, then compare all three."""
    winner = tune(scenario, root, minutes)
    rivals = {"Trainer's defaults": scenario.default, f"notes: {scenario.preset}": scenario.noted, "tuned": winner}
    return compare(scenario, rivals, root, rounds, terms)


def table(rows: Iterable[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| memory | settings | throughput | peak GiB | ratio |", "|---|---|---|---|---|"]
    for row in rows:
        speed = row.outcome if row.throughput is None else f"{row.throughput:,.0f} {row.unit}"
        peak = "–" if row.peak_gib is None else f"{row.peak_gib:.2f}"
        ratio = "–" if row.ratio is None else f"{row.ratio:.2f}"
        lines.append(f"| {row.scenario} | {row.who} | {speed} | {peak} | {ratio} |")
    return "\n".join(lines)


def write(path: Path, device: str, rows: Iterable[Row]) -> None:
    """Write all rows with a description of the hardware."""
    import torch
    import transformers

    from tests.gpu.measure_memory import hardware

    document = {
        "hardware": hardware(device), "torch": torch.__version__, "transformers": transformers.__version__,
        "rows": [asdict(row) for row in rows],
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    """Measure every scenario of the device and print the table after each."""
    from tests.gpu.measure_memory import file_of

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    out = chosen.out or file_of(chosen.device, "side-by-side")
    rows: list[Row] = []
    for scenario in ON_CARD if chosen.device == "cuda" else ON_CPU:
        if chosen.only not in scenario.name:
            continue
        with tempfile.TemporaryDirectory() as root:
            rows += measure(scenario, Path(root), chosen.minutes, chosen.rounds)
        write(out, chosen.device, rows)
        print(table(rows), flush=True)


if __name__ == "__main__":
    main()
