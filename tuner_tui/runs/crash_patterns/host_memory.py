"""The host's memory, or its shared memory, is full."""

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

from __future__ import annotations

from tuner_tui.runs.crash_patterns.pattern import form

FULL = "The host's memory is full"
SHM = "Shared memory (/dev/shm) is full"
KILLED = "The kernel killed the process because the host's memory was full"
TRAINER = r"(?:python[\d.]*|pt_[\w.-]+|torchrun|accelerate|deepspeed|ray::?\w*|jupyter\S*|train\S*)"

SHARED = (
    form("shm", r"out of shared memory\. Please try to raise your shared memory", SHM),
    form("shm", r"worker \(pid[^)]*\) is killed by signal: Bus error", SHM),
    form("shm", r"Unexpected bus error encountered in worker", SHM, bare=True),
    form("shm", r"unable to (?:open|write|resize|allocate|mmap)\b.{0,80}(?:/torch_|shared memory).{0,200}(?:No space left|\(28\))", SHM),
    form("shm", r"unable to (?:write to file|resize file|allocate shared memory(?:\(shm\))?.{0,20}) <?/torch_", SHM),
    form("shm", r"unable to mmap \d+ bytes from file <(?:filename not specified|/torch_[^>]*)>.{0,40}Cannot allocate memory", SHM, "likely"),
    form("shm", r"No space left on device.{0,20}/(?:dev/shm|psm_|sem\.|torch_|pymp-|nccl-)", SHM),
    form("shm", r"(?:creating|attaching to|allocat\w+) shared memory segment /dev/shm|/dev/shm/nccl-\S+.{0,80}(?:No space|failed)", SHM, bare=True),
    form("shm", r"^Bus error(?: \(core dumped\))?$|^\S+: line \d+: +\d+ Bus error|^\[\d+\] .*Bus error", f"Bus error: {SHM.lower()}", "likely", bare=True),
)  # fmt: skip
HOST = (
    form("host-oom", r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)", FULL),
    form("host-oom", r"\$ Torch: (?:not enough memory|unable to mmap memory)|C10 Out of Memory\. Trying to allocate", FULL),
    form("host-oom", r"(?:^|\.)(?:_?Array)?MemoryError\b|ArrowMemoryError|Unable to allocate .{1,60} for an array", FULL),
    form("host-oom", r"\[Errno 12\] Cannot allocate memory|\(os error 12\)|error code:? ?\(?12\)?.{0,40}Cannot allocate", FULL),
    form("host-oom", r"\[WinError 1455\]|[Pp]aging file is too small", FULL),
    form("host-oom", r"std::bad_alloc|memory allocation of \d+ bytes failed", FULL, bare=True),
    form("host-oom", r"malloc of size \d+ failed|(?:realloc|calloc|mmap).{0,40}Cannot allocate memory", FULL),
    form("host-oom", r"OpenBLAS error: Memory allocation still failed after \d+ retries", FULL, bare=True),
    form("host-oom", r"UR_RESULT_ERROR_OUT_OF_HOST_MEMORY", FULL),
    form("host-oom", r"ray\.exceptions\.OutOfMemoryError|running low on memory", KILLED),
    form("host-oom", r"killed by signal: Killed.{0,400}oom", KILLED),
    form("host-oom", r"(?i)^(?:slurmstepd|srun): error:.*(?:oom[_-]?kill|out of memory)", KILLED, bare=True),
    form("host-oom", rf"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process \d+,? \({TRAINER}\)", KILLED, bare=True),
    form("host-oom", rf"oom-kill:.*task={TRAINER},", KILLED, bare=True),
    form("host-oom", r"^(?:OOMKilled|reason: OOMKilled|\s*Reason:\s+OOMKilled)", KILLED, bare=True),
    form("host-oom", r"(?:pinned|pin_memory|cudaHostAlloc|cudaMallocHost).{0,200}(?:out of memory|failed)", "No page-locked host memory left", "likely"),
    form("host-oom", r"^Killed$|^\S+: line \d+: +\d+ Killed\b|^zsh: killed\b|^\[\d+\][+-]? +\d* *[Kk]illed\b", "The process was killed, as the kernel does when the host's memory is full", "likely", bare=True),
)  # fmt: skip
PATTERNS = (*SHARED, *HOST)
