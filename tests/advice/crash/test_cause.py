"""Every output is read as a person would read it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.advice.crash.outputs import (
    CUDA_27,
    FOLDER,
    HEALTHY_END,
    HEALTHY_START,
    Output,
    read,
    read_yaml,
    trace,
    whole_logs,
)
from tests.fakes.situations import samples
from tuner_tui.advice.crash.findings import crash_findings
from tuner_tui.advice.remedies.catalog import COMPUTED
from tuner_tui.advice.remedies.table import has_ladder
from tuner_tui.advice.situation import Situation
from tuner_tui.core.files import read_data_file
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Exited, OutOfMemory, Raised
from tuner_tui.runs.log_parsing.crash_table import FILE
from tuner_tui.runs.log_parsing.lines import parse_lines
from tuner_tui.runs.supervise.outcome import ExitLog, determine_outcome

LOGS = whole_logs()
HEALTHY_LINES: list[str] = read_yaml(FOLDER / "healthy.yaml")
PREFIXES = (
    "[10:00:01] ", "10:00:01.123 ", "10:00:01 | ", "[2026-03-01 10:00:01,123][__main__][ERROR] - ",
    "2026-03-01T10:00:01.123456Z ", "2026-03-01 10:00:01.123 | ERROR    | __main__:main:31 - ", "[rank: 3] ", "rank3: ",
    "[3/8] ", "[gpu 3] ", "(rank 3) ", "node01: [rank3] ", "worker-0 | ", "trainer_1  | ", "ERROR:train:", "[ERROR] ",
    "[1,3]<stderr>:", "[1,3]<stderr>: ", "0: [rank0]: ", "Mar 01 10:00:01 node01 python[4242]: ",
    "E0301 10:00:01.123456 4242 train.py:31] ", "[task 3] ", "r3 ", "pod/train-0 ", "[train-0] ",
    "01/03/2026 10:00:01 - ERROR - __main__ - ", "03-01 10:00:01 ERROR ", "ERROR 03-01 10:00:01 [worker_base.py:598] ",
    "1709287201.123 ", "| ", "2026/03/01 10:00:01 ", "[2026-03-01 10:00] ", "<3> ", "stderr | ", "[stderr] ",
    "#12 8.123 ", "> ", ">> ", "    ", "stderr: ",
)  # fmt: skip
"""What loggers, launchers, terminals and mails write before each line."""


@pytest.mark.parametrize(
    "message",
    ["requests.exceptions.ConnectionError: Max retries exceeded with url: /x?token={0}", "ValueError: password={0}"],
)
def test_a_secret_of_the_log_is_in_no_finding(message: str) -> None:
    secret = "Zq7Kp06WvXt9LmN4"
    findings = read(trace(message.format(secret)))
    assert findings
    assert secret not in str(findings)


@pytest.mark.parametrize("output", LOGS, ids=lambda output: output.name)
def test_a_log_has_the_cause_that_a_person_would_name(output: Output) -> None:
    findings = read(output.log)
    assert [finding.cause for finding in findings] == ([] if output.cause is None else [output.cause])
    assert all(finding.evidence for finding in findings)
    assert output.where is None or findings[0].where == output.where
    assert output.remedy is None or output.remedy in findings[0].remedies[0].title


def test_native_code_has_its_reason_from_the_line_above_not_from_an_address() -> None:
    (finding,) = read(
        "[libplate ERROR external/plates/src/plate.cc:42] rims.proto cannot be registered\n"
        "terminate called after throwing an instance of 'plates::FatalException'\n"
        "  what():  CHECK failed: rims: \n"
        "https://symbolize.example/r/?trace=7a80dd07fd3c,5ab82e3a7b8f&map= \n"
        "*** SIGABRT received by PID 367 (TID 367) on cpu 95 from PID 367; stack trace: ***"
    )
    assert "https://" not in finding.sentence
    assert any("rims.proto cannot be registered" in text for text in finding.evidence)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("TPU available: False, using: 0 TPU cores", "gdb"),
        ("loading /opt/homebrew/lib/python3.12/plates.so", "lldb"),
        ("plates: libtpu.so is loaded", "libtpu"),
    ],
)
def test_a_crash_in_native_code_is_looked_at_with_the_tools_of_its_machine(line: str, named: str) -> None:
    (finding,) = read(f"{line}\nSegmentation fault (core dumped)")
    assert [named in remedy.why for remedy in finding.remedies] == [True]


def test_a_notice_of_the_launcher_is_no_last_word() -> None:
    notice = "WARNING:torch.distributed.run:\n***\nSetting OMP_NUM_THREADS environment variable for each process"
    assert read(f"baking 7 plates\n{notice}\n***") == ()
    assert len(read(f"Error: failed to bake the plates on oven-7\n{notice}\n***")) == 1


@pytest.mark.parametrize("line", HEALTHY_LINES)
def test_a_word_in_an_output_is_not_a_crash(line: str) -> None:
    for log in (line, HEALTHY_START + line + "\n" + HEALTHY_END):
        assert [(finding.cause, finding.evidence) for finding in read(log)] == []


@pytest.mark.parametrize("prefix", PREFIXES)
def test_an_error_is_read_behind_the_prefix_of_a_logger(prefix: str) -> None:
    error = trace(CUDA_27, "main", "train", "loop", "step")
    log = "\n".join(prefix + line for line in error.split("\n"))
    assert [finding.cause for finding in read(log)] == ["gpu-oom"]


def test_every_topic_has_remedies() -> None:
    parts = ("messages", "frames", "classes", "signals")
    topics = {row["topic"] for part in parts for row in read_data_file(FILE)[part] if "topic" in row}
    assert not [topic for topic in topics if topic not in COMPUTED and not has_ladder(topic)]


def test_a_port_in_use_is_named() -> None:
    [finding] = read(
        'Traceback (most recent call last):\n  File "run.py", line 9, in main\n'
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29512, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
    )
    assert finding.sentence.startswith("The launcher's port 29512 is in use")
    assert "--standalone" in finding.remedies[0].why


def test_an_abort_after_the_training_is_told_with_what_prevents_it() -> None:
    [finding] = read("step 6\nterminate called without an active exception\n")
    assert "destroy_process_group" in finding.sentence


@pytest.mark.parametrize(("count", "is_done"), [(60, True), (59, False)])
def test_an_error_of_a_tracker_says_that_all_steps_were_done_only_where_they_were(count: int, is_done: bool) -> None:
    [finding] = read(f"{{'loss': 0.05}}\n{count}/60 [01:00<00:00,  1.00s/it]\nError in sys.excepthook:\n")
    assert ("all 60 steps were done" in finding.sentence) is is_done


OOM = OutOfMemory(t=1.0, rank=0, message="CUDA out of memory. Tried to allocate 2.00 GiB")
OOM_LOG = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\ntorch.OutOfMemoryError: ' + OOM.message
)
ODD = OutOfMemory(t=1.0, rank=0, message="the allocator of this package gave up")
GARBAGE = OutOfMemory(t=1.0, rank=0, message="CUDA out of memory. Tried to allocate more than 1EB memory.")
SHARED = OutOfMemory(t=1.0, rank=0, message="unable to allocate shared memory(shm) for file </torch_1>")
LATER = Raised(t=2.0, rank=0, type="ValueError", message="too few labels")
LOST_PEER = Raised(t=2.0, rank=1, type="RuntimeError", message="Connection closed by peer")


@pytest.mark.parametrize(
    ("memory", "raised", "log", "outcome", "cause"),
    [
        (OOM, None, "", "out-of-memory", "gpu-oom"),
        (ODD, None, "", "out-of-memory", "gpu-oom"),
        (GARBAGE, None, "", "out-of-memory", "gpu-oom"),
        (OOM, LATER, "", "failed", "unknown"),
        (OOM, LATER, OOM_LOG, "failed", "unknown"),
        (OOM, LOST_PEER, "", "out-of-memory", "gpu-oom"),
        (OOM, LOST_PEER, "RuntimeError: NCCL error: remote process exited", "out-of-memory", "gpu-oom"),
        (None, LATER, "", "failed", "unknown"),
        (None, LATER, OOM_LOG, "out-of-memory", "gpu-oom"),  # of a rank that nobody observed
        (SHARED, None, "", "failed", "shm"),
        (None, Raised(t=2.0, type="MemoryError", message=""), "", "out-of-memory", "host-oom"),
    ],
)
def test_the_supervisor_and_the_diagnosis_agree(
    memory: OutOfMemory | None, raised: Raised | None, log: str, outcome: str, cause: str
) -> None:
    exited = Exited(t=3.0, exit_code=1)
    state = RunState(launched_t=0.5, out_of_memory=memory, raised=raised, exited=exited)
    lines = tuple(log.split("\n"))
    assert determine_outcome(state, exited, ExitLog(parse_lines(lines))).outcome == outcome
    (finding,) = crash_findings(Situation(state, 3.0, log=lines))
    assert finding.cause == cause


def test_the_reason_that_the_outcome_quotes_is_not_denied() -> None:
    lines = parse_lines(["Reading the plan", "train.py: error: the plan has no rounds"])
    exited = Exited(t=0.0, exit_code=2)
    outcome = determine_outcome(RunState(), exited, ExitLog(lines, "the plan has no rounds"))
    assert outcome.sentence.endswith("exit code 2: the plan has no rounds.")
    situation = Situation(RunState(exited=exited), 0.0, log=tuple(line.text for line in lines))
    assert not any("does not say why" in finding.sentence for finding in crash_findings(situation))


@pytest.mark.parametrize(("used_gb", "names_limit"), [(10.0, True), (60.0, False)])
def test_a_failed_allocation_with_plenty_of_memory_free_is_a_limit_of_the_process(
    used_gb: float, names_limit: bool
) -> None:
    log = trace(
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 67108864 bytes. Error code 12 (Cannot allocate memory)"
    )
    end = samples(ram_used_bytes=int(used_gb * 1e9))
    (finding,) = crash_findings(Situation(RunState(), 0.0, samples=end, log=tuple(log.split("\n"))))
    assert ("were free" in finding.sentence) is names_limit
    assert (finding.remedies[0].name == "raise-process-limit") is names_limit


def test_the_headings_of_a_launchers_report_are_no_evidence() -> None:
    report = (
        "Root Cause (first observed failure):",
        "[0]:",
        "  rank      : 0 (local_rank: 0)",
        "  exitcode  : -6 (pid: 7)",
    )
    (finding,) = read("\n".join(("baking the plates", *report)))
    assert finding.evidence == ("ended by SIGABRT on rank 0", "baking the plates")


def test_progress_is_no_evidence_of_what_came_from_outside() -> None:
    bars = " 64%|██████▍   | 256/400 [01:41<02:39, 1.1s/it]\n{'loss': 0.12, 'epoch': 1.0}"
    killed = replace(RunState(), exited=Exited(t=1.0, signal=9, oom_kill=False))
    (finding,) = crash_findings(Situation(killed, 2.0, log=tuple(f"loading the plates\n{bars}".split("\n"))))
    assert finding.evidence == ("ended by SIGKILL", "loading the plates")
    steps = (f"{{'loss': 0.12, 'epoch': {n}}}" for n in range(20))
    long_ago = Situation(killed, 2.0, log=("loading the plates", *steps))
    assert crash_findings(long_ago)[0].evidence == ("ended by SIGKILL",)


def test_a_traceback_says_more_than_what_was_logged_of_it() -> None:
    logged = "2026-03-01 10:00:01,123 - ERROR - Exception: 'rim'"
    library = '  File "/opt/env/lib/python3.11/site-packages/ovens/engine.py", line 9, in fire\n    handler(plate)'
    program = '  File "/home/ann/bake.py", line 7, in turn\n    plate["rim"]'
    raised = f"Traceback (most recent call last):\n{library}\n{program}\nKeyError: 'rim'"
    (finding,) = read(f"{logged}\n{raised}")
    assert finding.evidence[0] == "KeyError: 'rim'"
    assert [finding] == list(read(raised))
