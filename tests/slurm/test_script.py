"""The sbatch script: its options, their quoting, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_tui.runs.slurm import SlurmError, SlurmOptions, parse_options, render_script

ARGV = ("/venv/bin/python", "-P", "-m", "module", "/home/a b/runs/r001")


def test_a_script() -> None:
    options = parse_options({"partition": "gpu", "gres": "gpu:a100:2", "time": "4:00:00", "nodes": None}, ["exclusive"])
    assert render_script(options, Path("/runs/r001"), ARGV) == (
        "#!/bin/sh\n"
        "#SBATCH --job-name=r001\n"
        "#SBATCH --output=/runs/r001/slurm.log\n"
        "#SBATCH --open-mode=append\n"
        "#SBATCH --signal=B:USR2@120\n"
        "#SBATCH --requeue\n"
        "#SBATCH --partition=gpu\n"
        "#SBATCH --gres=gpu:a100:2\n"
        "#SBATCH --time=4:00:00\n"
        "#SBATCH --exclusive\n"
        "exec /venv/bin/python -P -m module '/home/a b/runs/r001'\n"
    )


def test_no_requeue_replaces_the_default() -> None:
    script = render_script(parse_options({}, ["no-requeue"]), Path("/runs/r001"), ARGV)
    assert "#SBATCH --no-requeue\n" in script
    assert "#SBATCH --requeue\n" not in script


@pytest.mark.parametrize(
    "word",
    [
        "output=/tmp/x", "signal=B:TERM@60", "array=1-9", "wrap=sh", "Account=x", "-p=x", "comment=a\nb", "=x",
        "comment=hf_abcdefghijklmnopqrstuvwxyz0123456789", "export=ALL,WANDB_API_KEY=0123456789abcdef0123",
    ],
)  # fmt: skip
def test_what_is_refused(word: str) -> None:
    with pytest.raises(SlurmError):
        parse_options({}, [word])


@pytest.mark.parametrize(("nodes", "count"), [("2", 2), ("2-4", 2), ("x", 1), ("0", 1)])
def test_nodes(nodes: str, count: int) -> None:
    assert SlurmOptions({"nodes": nodes}).nodes == count
