"""Errors inside the card, and between the cards."""

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

from __future__ import annotations

from tuner_tui.runs.crash_patterns.pattern import form

ASSERT = "A check inside a GPU kernel failed: usually a label or a token id outside its range"
ILLEGAL = "A GPU kernel touched memory that is not its own"
TIMEOUT = "A collective operation between the processes did not finish"
PEER = "Another process of the training went away"
LEFT_OVER = (
    "Python ended while a thread of native code was still at work; "
    "where the training was over by then, `del model` and `torch.distributed.destroy_process_group()` "
    "as its last lines prevent it"
)

ASSERTS = (
    form("device-assert", r"device-side assert triggered|cudaErrorAssert|hipErrorAssert|(?:[cC]uda|hip) runtime error \((?:59|710)\)", ASSERT),
    form("device-assert", r"^\S+\.(?:cuh?|hip|cpp)?:\d+: .{0,300}Assertion `.{1,200}` failed|^:\d+: .{0,200}Device-side assertion", ASSERT, bare=True),
    form("device-assert", r"(?:block|thread): \[\d+,\d+,\d+\].{0,80}Assertion", ASSERT, bare=True),
)  # fmt: skip
ILLEGALS = (
    form("illegal-access", r"illegal memory access was encountered|misaligned address|cudaErrorIllegalAddress|hipErrorIllegalAddress", ILLEGAL),
    form("illegal-access", r"(?:CUDA|HIP) error: (?:unspecified launch failure|an illegal instruction|invalid (?:device )?address|warp illegal)", ILLEGAL),
    form("illegal-access", r"(?:[cC]uda|hip) runtime error \((?:4|77|700|716|719)\)", ILLEGAL),
    form("illegal-access", r"^invalid device pointer: 0x", ILLEGAL, bare=True),
    form("illegal-access", r"^Memory access fault by GPU node", ILLEGAL, bare=True),
    form("illegal-access", r"HSA_STATUS_ERROR_(?:MEMORY_APERTURE_VIOLATION|MEMORY_FAULT|EXCEPTION|ILLEGAL_INSTRUCTION)", ILLEGAL, bare=True),
    form("illegal-access", r"NVRM: Xid \(.{1,40}\): (?:13|31),", ILLEGAL, bare=True),
    form("illegal-access", r"CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED", f"{ILLEGAL}, or a library call failed", "possible"),
)  # fmt: skip
COLLECTIVES = (
    form("collective-timeout", r"[Ww]atchdog caught collective operation timeout|Some NCCL operations have failed or timed out", TIMEOUT, bare=True, consequence=True),
    form("collective-timeout", r"watchdog thread terminated with exception|Heartbeat monitor timed out|Timeout at NCCL work", TIMEOUT, bare=True, consequence=True),
    form("collective-timeout", r"ran for \d+ milliseconds before timing out", TIMEOUT, consequence=True),
    form("collective-timeout", r"Timed out waiting \d+ms|timed out in monitoredBarrier|Timed out after \d+ seconds waiting for clients", TIMEOUT, consequence=True),
    form("collective-timeout", r"wait(?:ing)? timeout after \d+ms|(?:client|server) socket has (?:timed out|failed)|Socket Timeout|failed to connect/validate", TIMEOUT, consequence=True),
    form("collective-timeout", r"RendezvousTimeoutError|RendezvousConnectionError|DistStoreError|DistNetworkError(?!.*EADDRINUSE)", TIMEOUT, consequence=True),
    form("collective-timeout", r"ncclRemoteError|ncclSystemError|remote process exited or there was a network error", PEER, consequence=True),
    form("collective-timeout", r"Connection closed by (?:remote )?peer|(?:gloo|TCPStore|NCCL|ProcessGroup|c10d).{0,300}(?:Connection reset|Broken pipe)|recv(?:Value)? failed|failed to recv, got 0 bytes", PEER, "likely", consequence=True),
    form("collective-timeout", r"NCCL (?:error|communicator was aborted)|ncclInternalError|ncclUnhandledCudaError|unhandled (?:cuda|system) error", "NCCL failed", "likely", consequence=True),
    form("collective-timeout", r"DistBackendError", "A collective operation failed", "likely", consequence=True),
    form("collective-timeout", r"Detected mismatch between collectives on ranks", "The processes ran different collectives", "certain"),
)  # fmt: skip
NETWORK = (
    form("unknown", r"requests\.exceptions|urllib3\.exceptions|HTTPSConnectionPool|couldn't connect to 'https|OfflineModeIsEnabled|LocalEntryNotFound|httpx\.|aiohttp\.|HTTPError", "The network, or a server, did not answer"),
)  # fmt: skip
UNEXPLAINED = (
    form("unknown", r"uncorrectable ECC error|GPU is lost|fallen off the bus|GPU has fallen|NVRM: Xid \(.{1,40}\): (?:48|63|64|74|79|94|95),", "The card itself failed: look at dmesg for Xid, and at its health", bare=True),
    form("unknown", r"no kernel image is available for execution", "This torch has no code for this card: its build does not fit the card"),
    form("unknown", r"Found no NVIDIA driver|CUDA driver version is insufficient|driver on your system is too old|CUDA initialization: |CUDA unknown error", "The driver does not fit this torch"),
    form("unknown", r"DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)", "The job system ended the job", bare=True),
    form("unknown", r"^(?:\S+: line \d+: +\d+ +)?Segmentation fault|^Fatal Python error: |^Illegal instruction|^Floating point exception", "Native code ended the training", "likely", bare=True),
    form("unknown", r"UR_RESULT_ERROR_DEVICE_LOST", "The card stopped answering; Intel's driver says so when its memory runs out, too"),
    form("unknown", r"^/\S+\.mm:\d+: failed assertion `", "Apple's libraries ended the training", bare=True),
    form("unknown", r"Placeholder storage has not been allocated on MPS device", "A tensor was left on the CPU while the model is on the card"),
    form("unknown", r"^terminate called without an active exception", LEFT_OVER, "likely", bare=True, consequence=True),
    form("unknown", r"^terminate called after throwing|^(?:\S+: line \d+: +\d+ +)?Aborted(?: \(core dumped\))?$", "Native code ended the training", "possible", bare=True, consequence=True),
)  # fmt: skip
PATTERNS = (*ASSERTS, *ILLEGALS, *COLLECTIVES)
