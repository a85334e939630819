"""Why a training does not move, on processes as they may be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.inspection.test_activity import process
from tuner_tui.inspection.hang import Hang, explain_hang
from tuner_tui.inspection.process_dump import ProcessDump, RecordedCollective, RecordedCollectives

NOW_S = 100.0
IN_BACKWARD = ("_engine_run_backward /v/site-packages/torch/autograd/graph.py", "main /home/u/train.py")
IN_LOADER = ("_try_get_data /v/site-packages/torch/utils/data/dataloader.py", "main /home/u/train.py")
IN_WORKER = (
    "fetch /v/site-packages/torch/utils/data/_utils/fetch.py",
    "_worker_loop /v/site-packages/torch/utils/data/_utils/worker.py",
)
IDLE_WORKER = ("get /usr/lib/python3.11/multiprocessing/queues.py", IN_WORKER[1])


def entry(
    number: int, operation: str = "all_reduce", *, sizes: str = "[[3]]", group: str = "0", done: bool = False
) -> RecordedCollective:
    return RecordedCollective(group, number, operation, sizes, "Float", NOW_S - 40 + number, done)


def rank(
    number: int, *calls: str, entries: Sequence[RecordedCollective] = (), cpu_share: float = 0.0, world: int = 2
) -> ProcessDump:
    groups = {"0": tuple(range(world)), "1": tuple(range(world))}
    record = RecordedCollectives(number, world, tuple(entries), groups)
    pid = 100 + number
    return replace(process(*calls, cpu_share=cpu_share), pid=pid, rank=number, collectives=record)


def worker(pid: int, parent: int, *calls: str, cpu_share: float = 0.0, kernel_wait: str = "") -> ProcessDump:
    dump = process(*calls, cpu_share=cpu_share)
    return replace(dump, pid=pid, parent=parent, name="pt_data_worker", kernel_wait=kernel_wait)


def explain(*processes: ProcessDump, **more: object) -> Hang:
    return explain_hang(processes, NOW_S, read_line=lambda frame: "", **more)  # type: ignore[arg-type]


WAITS = rank(0, *IN_BACKWARD, entries=[entry(8, done=True), entry(9)])


@pytest.mark.parametrize(
    ("calls", "cpu_share", "kind", "words"),
    [
        (("train /home/u/train.py",), 0.0, "rank-missing", "rank 1 waits in train"),
        (("forward /home/u/model.py",), 0.95, "computing", "rank 1 computes in forward"),
        (("cmdloop /usr/lib/python3.11/pdb.py", "main /home/u/train.py"), 0.0, "debugger", "prompt"),
        (("wait /usr/lib/python3.11/threading.py", "get /home/u/cache.py"), 0.0, "lock", "a lock in get"),
        (("forward /home/u/model.py", "evaluate /home/u/train.py"), 0.0, "rank-alone", "evaluates in forward"),
        (("write /home/u/io.py", "save_checkpoint /home/u/io.py"), 0.0, "rank-alone", "saves in write"),
    ],
)
def test_a_rank_that_never_came(calls: Sequence[str], cpu_share: float, kind: str, words: str) -> None:
    missing = rank(1, *calls, entries=[entry(8, done=True)], cpu_share=cpu_share)
    hang = explain(WAITS, missing)
    assert (hang.kind, hang.culprits) == (kind, (101,))
    assert hang.sentence.startswith("Rank 1 has not reached all_reduce no. 9, where the others have waited for 31 s")
    assert words in hang.sentence
    assert "called by main (/home/u/train.py:7)" in hang.evidence[0]


def test_a_missing_rank_that_waits_for_its_workers() -> None:
    missing = rank(1, *IN_LOADER, entries=[entry(8, done=True)])
    hang = explain(
        WAITS, missing, worker(7, 101, "__getitem__ /home/u/data.py", *IN_WORKER), worker(8, 101, *IDLE_WORKER)
    )
    assert (hang.kind, hang.culprits) == ("data-stuck", (7,))
    assert "1 of 2 loader workers have work; one waits in __getitem__ (/home/u/data.py:7)" in hang.sentence


def test_a_rank_that_died() -> None:
    hang = explain(WAITS, dead_ranks=[1])
    assert (hang.kind, hang.sentence) == ("rank-died", "Rank 1 died; the others wait for it in all_reduce no. 9.")


def test_a_rank_that_does_not_answer() -> None:
    silent = ProcessDump(101, 1, "python", "S", 0.0, rank=1, silence="it did not answer")
    hang = explain(WAITS, silent)
    assert (hang.kind, hang.culprits) == ("rank-missing", (101,))
    assert hang.sentence.endswith("where the others have waited for 31 s: it did not answer.")


@pytest.mark.parametrize(
    ("mismatched", "kind", "words"),
    [
        (entry(9, "broadcast"), "other-collective", "rank 0 in all_reduce; rank 1 in broadcast"),
        (entry(9, sizes="[[4]]"), "other-shape", "rank 0 gave [[3]]; rank 1 gave [[4]]"),
        (replace(entry(9), types="Half"), "other-shape", "rank 0 gave Float; rank 1 gave Half"),
        (entry(3, "barrier", group="1"), "other-group", "Rank 0 waits in all_reduce no. 9 of another process group"),
        (entry(9), "unknown", "All ranks are in all_reduce no. 9"),
    ],
)
def test_ranks_in_collectives_that_do_not_match(mismatched: RecordedCollective, kind: str, words: str) -> None:
    hang = explain(WAITS, rank(1, *IN_BACKWARD, entries=[entry(8, done=True), mismatched]))
    assert hang.kind == kind
    assert words in hang.sentence


def test_the_one_of_many_that_differs_is_the_culprit() -> None:
    ranks = [
        rank(n, *IN_BACKWARD, entries=[entry(9, "barrier" if n == 2 else "all_reduce")], world=4) for n in range(4)
    ]
    assert explain(*ranks).culprits == (102,)


def test_gathered_tensors_may_differ_in_size() -> None:
    ranks = [rank(n, *IN_BACKWARD, entries=[entry(9, "gather", sizes=f"[[{n}]]")]) for n in range(2)]
    assert explain(*ranks).kind == "unknown"


def test_loaders_of_different_length() -> None:
    hang = explain(WAITS, rank(1, "main /home/u/train.py", entries=[entry(8, done=True)]), epoch_batches={0: 13, 1: 12})
    assert hang.kind == "uneven-batches"
    assert "rank 1 has 12 batches, rank 0 13" in hang.sentence


def test_without_a_record_the_stacks_decide() -> None:
    waiting = replace(rank(0, "all_reduce /v/site-packages/torch/distributed/distributed_c10d.py"), collectives=None)
    missing = replace(rank(1, "main /home/u/train.py"), collectives=None)
    hang = explain(waiting, missing)
    assert (hang.kind, hang.sentence) == (
        "rank-missing",
        "Rank 0 waits for rank 1. Rank 1 waits in main (/home/u/train.py:7).",
    )


@pytest.mark.parametrize(
    ("workers", "kind", "words"),
    [
        ([worker(7, 100, "__getitem__ /home/u/data.py", *IN_WORKER)], "data-stuck", "one waits in __getitem__"),
        (
            [worker(7, 100, "__getitem__ /home/u/data.py", *IN_WORKER, cpu_share=1.0)],
            "data",
            "one computes in __getitem__",
        ),
        (
            [worker(7, 100, "__getitem__ /home/u/data.py", *IN_WORKER, kernel_wait="flock_lock_inode_wait")],
            "lock",
            "one waits for a file lock in __getitem__",
        ),
        ([worker(7, 100, *IDLE_WORKER)], "unknown", "its 1 loader workers have nothing to do"),
        ([], "worker-died", "all loader workers died"),
    ],
)
def test_a_single_process_that_waits_for_data(workers: list[ProcessDump], kind: str, words: str) -> None:
    hang = explain(rank(0, *IN_LOADER, world=1), *workers)
    assert hang.kind == kind
    assert words in hang.sentence


def test_data_made_in_the_process_itself() -> None:
    calls = ("open /home/u/data.py", IN_WORKER[0], "__next__ /v/site-packages/torch/utils/data/dataloader.py")
    assert (
        explain(rank(0, *calls, world=1)).sentence
        == "The training waits for its own dataset, which waits in open (/home/u/data.py:7)."
    )
    assert explain(rank(0, *calls, world=1, cpu_share=1.0)).kind == "data"


@pytest.mark.parametrize(
    ("calls", "kernel_wait", "kind", "sentence"),
    [
        (("retry /home/u/a.py",), "hrtimer_nanosleep", "sleep", "The training sleeps in retry (/home/u/a.py:7)."),
        (("write /v/torch/serialization.py", "save_model /home/u/a.py"), "", "computing", "The training saves in "),
        (("get /v/multiprocessing/queues.py", "main /home/u/a.py"), "", "worker-died", "The training waits at a queue"),
    ],
)
def test_a_single_process(calls: Sequence[str], kernel_wait: str, kind: str, sentence: str) -> None:
    alone = replace(rank(0, *calls, world=1), kernel_wait=kernel_wait)
    ended = ProcessDump(7, alone.pid, "python", "Z", 0.0, silence="it has ended")
    hang = explain(alone, ended)
    assert hang.kind == kind
    assert hang.sentence.startswith(sentence)
    assert hang.may_go_on is (kind != "worker-died")
    assert hang.evidence == (("process 7: it has ended",) if kind == "worker-died" else ())


@pytest.mark.parametrize("file", ["/usr/lib/python3.11/queue.py", "/v/multiprocessing/queues.py"])
def test_a_queue_that_a_thread_may_fill_waits_for_no_process(file: str) -> None:
    waits = rank(0, f"get {file}", "main /home/u/a.py", world=1)
    if "multiprocessing" in file:
        waits = replace(waits, threads=(*waits.threads, *process("fetch /home/u/a.py").threads))
    ended = ProcessDump(7, waits.pid, "nvidia-smi", "Z", 0.0, silence="it has ended")
    assert explain(waits, ended).kind == "queue"


def test_nobody_answers() -> None:
    assert explain(ProcessDump(1, 0, "bash", "S", 0.0, silence="not Python")).evidence == (
        "process 1 (bash): not Python",
    )
