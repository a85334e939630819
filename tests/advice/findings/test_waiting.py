"""The rank that the others wait for, from counters and in two real gloo ranks with a straggler of a known delay."""

from __future__ import annotations

import sys

import pytest
from msgspec.structs import replace

from tests.fakes.situations import NOW, PID, samples, situation, training
from tests.runs.sandbox import Sandbox, box, wait_ended
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.finding import Finding
from tuner_tui.advice.findings.run_metrics import training_pids
from tuner_tui.advice.findings.step_time import slow_rank
from tuner_tui.advice.situation import Situation, situation_of_run
from tuner_tui.runs.events.progress import rank_times, rates_of
from tuner_tui.runs.events.run_state import RankState
from tuner_tui.runs.events.types import Steps
from tuner_tui.settings.job import CommandJob

STEPS = 100


def test_the_processes_of_a_training_are_sampled_or_report_themselves() -> None:
    ranks = {0: RankState(0, 7), 1: RankState(1, None)}
    assert training_pids(situation(samples=(), state=training(pid=5, ranks=ranks))) == {5, 7}
    assert training_pids(situation(samples=(), state=training(pid=None, ranks={}))) == frozenset()
    assert training_pids(situation(state=training(pid=None, ranks={}))) == {PID + n for n in range(9)}


@pytest.mark.parametrize(("loads", "words"), [((1.0,) * 8, "1 %"), ((88.0, 91.5, 97.0), "88 % to 97 %")])
def test_the_loads_of_workers_are_given_once(loads: tuple[float, ...], words: str) -> None:
    waiting = situation(samples=samples(workers=loads), state=training(rates={"data_wait_share": 0.6}))
    evidence = [fact for finding in diagnose(waiting) for fact in finding.evidence if "workers at" in fact]
    assert evidence == [f"workers at {words} of a core"]


__all__ = ["box"]


def rank(number: int, data_wait_s: float, rank_wait_s: float | None, between_s: float = 0.0) -> RankState:
    """A rank after `STEPS` steps of 0.2 s; the arguments are seconds of one step."""
    first = Steps(t=NOW - 20, step=0, own_steps=0, between_s=0.0, rank_wait_s=None if rank_wait_s is None else 0.0)
    last = Steps(
        t=NOW,
        step=STEPS,
        own_steps=STEPS,
        micro_steps=STEPS,
        train_s=0.2 * STEPS,
        data_wait_s=data_wait_s * STEPS,
        between_s=between_s * STEPS,
        rank_wait_s=None if rank_wait_s is None else rank_wait_s * STEPS,
    )
    return RankState(number, 4242 + number, last, (first, last))


def of_ranks(*ranks: RankState) -> Situation:
    state = training(ranks={rank_times_of.rank: rank_times_of for rank_times_of in ranks})
    return situation(state=replace(state, rates=rates_of(ranks)), samples=())


def test_the_rank_that_computes_longer_is_named() -> None:
    # Ranks 0, 1 and 3 work 50 ms and wait 150; rank 2 works 170 and waits 30: they lose 120 of 200 ms by it.
    finding = slow_rank(of_ranks(rank(0, 0, 0.15), rank(1, 0, 0.15), rank(2, 0, 0.03), rank(3, 0, 0.15)))
    assert finding is not None
    assert (finding.cause, finding.where) == ("slow-rank", "rank 2")
    assert "Rank 2 is slow in its forward pass or optimizer" in finding.sentence
    assert "60 % of each step" in finding.sentence
    assert finding.remedies


def test_code_after_the_step_is_told_from_computation() -> None:
    finding = slow_rank(of_ranks(rank(0, 0, 0.15), rank(1, 0, 0.03, between_s=0.12)))
    assert finding is not None
    assert "after the optimizer step" in finding.sentence
    now = of_ranks(rank(0, 0, 0.15), rank(1, 0, 0.03, between_s=0.12))
    now = replace(now, state=replace(now.state, in_effect={"device": "cpu"}))
    assert now.state.rates.between_share is not None
    assert [each.cause for each in diagnose(now)] == ["slow-rank"], "one finding of one cause"


def test_a_rank_that_waits_for_data_is_named_as_such() -> None:
    now = of_ranks(rank(0, 0.14, 0.01), rank(1, 0.01, 0.14))
    [finding] = diagnose(now)
    assert finding.cause == "data-wait"
    assert finding.sentence.startswith(
        "Rank 0 waits for data for 70 % of each step, and the other ranks wait for rank 0"
    )
    assert finding.remedies[0].title == "check the data of rank 0"


def test_data_that_all_ranks_wait_for_is_no_rank_s() -> None:
    [finding] = diagnose(of_ranks(rank(0, 0.1, 0.05), rank(1, 0.1, 0.05)))
    assert finding.sentence.startswith("Training waits for data for 50 % of each step")


@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param([rank(0, 0, 0.05), rank(1, 0, 0.06)], id="the noise of a step"),
        pytest.param([rank(0, 0, None), rank(1, 0, None)], id="not measured, as on a GPU"),
        pytest.param([rank(0, 0, 0.0), rank(1, 0, 0.0, between_s=0.1)], id="nobody waits: they train apart"),
        pytest.param([rank(0, 0, 0.03)], id="a single process"),
    ],
)
def test_silence_where_no_rank_is_late(ranks: list[RankState]) -> None:
    assert slow_rank(of_ranks(*ranks)) is None


STRAGGLER = """
    import gc, sys, time
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    late = dist.get_rank() == 1

    def collate(batch):
        time.sleep(0.05 if late and sys.argv[1] == "input" else 0)
        return torch.stack([each[0] for each in batch])

    data = TensorDataset(torch.randn(640, 64))
    loader = DataLoader(data, 8, sampler=DistributedSampler(data), collate_fn=collate)
    net = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 1))
    model = net if sys.argv[2] == "by-hand" else DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        optimizer.zero_grad()
        if late and sys.argv[1] == "before":
            time.sleep(0.05)
        loss = model(batch).pow(2).mean()
        if late and sys.argv[1] == "compute":
            time.sleep(0.05)
        loss.backward()
        if sys.argv[2] == "by-hand":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
    del model, optimizer  # gloo's threads end with the last that holds the group; left alive they may abort the exit
    gc.collect()
    dist.destroy_process_group()
"""


@pytest.mark.full
@pytest.mark.train
@pytest.mark.parametrize(
    ("kind", "averages"),
    [("input", "ddp"), ("before", "ddp"), ("compute", "by-hand")],
)
def test_the_straggler_of_a_real_training_is_named(box: Sandbox, kind: str, averages: str) -> None:
    folder = box.launch(
        STRAGGLER,
        job=CommandJob(
            command=(sys.executable, str(box.root / "train.py"), kind, averages),
            launcher="torchrun",
            processes=2,
            env={"OMP_NUM_THREADS": "1"},
        ),
    )
    assert wait_ended(folder).outcome == "completed", folder.output_log.read_text()
    now = situation_of_run(folder)
    fast, late = sorted(rank_times(now.state.ranks.values()), key=lambda rank_times_of: rank_times_of.rank)
    slept_s = (late.data_wait_s if kind == "input" else late.own_s) - (
        fast.data_wait_s if kind == "input" else fast.own_s
    )
    assert slept_s >= 0.045
    assert fast.rank_wait_s - late.rank_wait_s >= 0.03
    named: list[Finding] = [finding for finding in diagnose(now) if "ank 1" in finding.sentence]
    assert [name.cause for name in named] == ["data-wait" if kind == "input" else "slow-rank"]
