"""Resuming scripts that have a way of their own, and no Trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.sandbox import Sandbox, wait_ended
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.launch.command import LaunchError
from tuner_tui.runs.launch.prepare import LaunchRequest, NoCheckpointError, launch_summary, prepare
from tuner_tui.runs.launch.restart import plan_restart, restart
from tuner_tui.runs.launch.resume import find_own_resume
from tuner_tui.runs.store.record import read_record
from tuner_tui.settings.job import BuiltinJob, CommandJob

HERE = Path("/out/ckpt.pt")


def resumed(command: str, cwd: Path, state: RunState | None = None) -> str | None:
    """The command that resumes; None where no way is found."""
    words = command.split()
    resume = find_own_resume(CommandJob(command=tuple(words)), cwd, state or RunState(), HERE)
    return None if resume is None else " ".join(resume.applied_to(words))


@pytest.mark.parametrize(
    ("source", "command", "expected"),
    [
        # pytorch/examples imagenet: a path, in place of the one that was given
        ("p.add_argument('--resume', metavar='PATH')", "train.py DIR", f"train.py DIR --resume {HERE}"),
        ("p.add_argument('--resume')", "train.py --resume old.pt DIR", f"train.py DIR --resume {HERE}"),
        ("p.add_argument('--resume')", "train.py --resume=old.pt DIR", f"train.py DIR --resume {HERE}"),
        # kuangliu/pytorch-cifar: a switch
        ("p.add_argument('--resume', '-r', action='store_true')", "train.py -r x", "train.py x --resume"),
        # accelerate's examples
        ("p.add_argument('--resume_from_checkpoint')", "accelerate launch train.py --cpu",
         f"accelerate launch train.py --cpu --resume_from_checkpoint {HERE}"),
        ("p.add_argument('--resume', action='store_true'); p.add_argument('--resume-path')", "train.py",
         f"train.py --resume-path {HERE}"),
        # nanoGPT
        ("init_from = 'scratch'\nexec(open('configurator.py').read())", "train.py --init_from=gpt2",
         "train.py --init_from=resume"),
        # pytorch/examples ddp-tutorial-series: no option, the script looks for its file
        ("if os.path.exists(path):\n    load_snapshot(path)", "torchrun train.py 5 1", "torchrun train.py 5 1"),
        ("p.add_argument('--resume_epoch', type=int)", "train.py", None),
        ("p.add_argument('--no-resume-opt', action='store_true')", "train.py", None),
    ],
)  # fmt: skip
def test_the_command_that_resumes(tmp_path: Path, source: str, command: str, expected: str | None) -> None:
    (tmp_path / "train.py").write_text(source)
    assert resumed(command, tmp_path) == expected


def test_options_seen_in_the_process_where_there_is_no_source(tmp_path: Path) -> None:
    state = RunState(options=("-b --batch-size", "--restore-from"), switches=("--resume --no-resume",))
    assert resumed("some-trainer x", tmp_path, state) == "some-trainer x --resume"
    assert resumed("some-trainer x", tmp_path, RunState(options=("--restore-from",))) == (
        f"some-trainer x --restore-from {HERE}"
    )
    assert find_own_resume(BuiltinJob(), tmp_path, state, HERE) is None


LOOP = """
    import argparse, torch
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", default="")
    parser.add_argument("--weights-only", action="store_true")
    args = parser.parse_args()
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start = 0
    if args.resume:
        state = torch.load(args.resume)
        start = state["step"]
        model.load_state_dict(state["model"])
    for step in range(start, start + 6):
        optimizer.zero_grad()
        model(torch.randn(4, 2)).mean().backward()
        optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
    torch.save(model.state_dict() if args.weights_only else state, "last.pt")
    print("trained from", start)
"""


@pytest.mark.full
@pytest.mark.train
def test_a_plain_loop_goes_on_from_what_it_saved(box: Sandbox) -> None:
    folder = box.launch(LOOP)
    assert wait_ended(folder).outcome == "completed", folder.output_log.read_text()
    plan = plan_restart(folder)
    path = box.root / "last.pt"
    assert plan.checkpoint is not None
    assert (plan.checkpoint.path, plan.checkpoint.step) == (path, 6)
    assert ("Resumes", f"{path}, through the script's own --resume {path}") in launch_summary(plan.prepared)
    again = restart(plan)
    box.folders.append(again)
    assert wait_ended(again).outcome == "completed"
    assert "trained from 6" in again.output_log.read_text()
    assert read_record(again).argv[-2:] == ("--resume", str(path))
    path.unlink()
    with pytest.raises(NoCheckpointError):
        plan_restart(folder)


@pytest.mark.full
@pytest.mark.train
def test_weights_alone_are_a_checkpoint_only_for_the_scripts_own_option(box: Sandbox) -> None:
    folder = box.launch(LOOP, "--weights-only")
    assert wait_ended(folder).outcome == "completed"
    prepared = prepare(LaunchRequest.resume(folder, read_record(folder)))
    assert prepared.own_resume is not None
    without = LOOP.replace('"--resume"', '"--begin"').replace("args.resume", "args.begin")
    weights_launch = box.launch(without, "--weights-only")
    assert wait_ended(weights_launch).outcome == "completed"
    with pytest.raises(LaunchError, match=r"last\.pt holds weights only"):
        prepare(LaunchRequest.resume(weights_launch, read_record(weights_launch)))
    with pytest.raises(NoCheckpointError):
        plan_restart(weights_launch)
    whole = box.launch(without)
    assert wait_ended(whole).outcome == "completed"
    with pytest.raises(LaunchError, match="its script has no known option to resume"):
        prepare(LaunchRequest.resume(whole, read_record(whole)))
