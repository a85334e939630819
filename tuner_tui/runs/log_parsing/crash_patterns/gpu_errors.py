"""Errors on a GPU, between GPUs, and of attention, fused optimizers and compilers that do not run here."""

from __future__ import annotations

from tuner_tui.runs.log_parsing.crash_patterns.pattern import pattern

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

ASSERT = "A check inside a GPU kernel failed: usually a label or token id out of range"
ILLEGAL = "A GPU kernel accessed an illegal memory address"
TIMEOUT = "A collective operation between the processes did not finish"
PEER = "Another process of the training exited"
LEFT_OVER = "Python exited while a native thread was still running; if the training was done by then, end the script with `del model` and `torch.distributed.destroy_process_group()`"

ASSERTS = (
    pattern("device-assert", r"device-side assert triggered|cudaErrorAssert|hipErrorAssert|(?:[cC]uda|hip) runtime error \((?:59|710)\)", ASSERT),
    pattern("device-assert", r"^\S+\.(?:cuh?|hip|cpp)?:\d+: .{0,300}Assertion `.{1,200}` failed|^:\d+: .{0,200}Device-side assertion", ASSERT, bare=True),
    pattern("device-assert", r"(?:block|thread): \[\d+,\d+,\d+\].{0,80}Assertion", ASSERT, bare=True),
)  # fmt: skip
ILLEGALS = (
    pattern("illegal-access", r"illegal memory access was encountered|misaligned address|cudaErrorIllegalAddress|hipErrorIllegalAddress", ILLEGAL),
    pattern("illegal-access", r"(?:CUDA|HIP) error: (?:unspecified launch failure|an illegal instruction|invalid (?:device )?address|warp illegal)", ILLEGAL),
    pattern("illegal-access", r"^(?:CUDA )?[Ee]rror:? (?!out of memory|CUDA driver|no kernel)[a-z].{1,80} at line \d+ in file \S+\.(?:cuh?|hip)", "A GPU kernel of a package failed", "likely", bare=True),
    pattern("illegal-access", r"(?:[cC]uda|hip) runtime error \((?:4|77|700|716|719)\)", ILLEGAL),
    pattern("illegal-access", r"^invalid device pointer: 0x", ILLEGAL, bare=True),
    pattern("illegal-access", r"^Memory access fault by GPU node", ILLEGAL, bare=True),
    pattern("illegal-access", r"HSA_STATUS_ERROR_(?:MEMORY_APERTURE_VIOLATION|MEMORY_FAULT|EXCEPTION|ILLEGAL_INSTRUCTION)", ILLEGAL, bare=True),
    pattern("illegal-access", r"NVRM: Xid \(.{1,40}\): (?:13|31),", ILLEGAL, bare=True),
    pattern("illegal-access", r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)|cublas runtime error : (?:the GPU program failed|an internal operation failed)|CUDNN_STATUS_(?:EXECUTION_FAILED|MAPPING_ERROR|INTERNAL_ERROR)", f"{ILLEGAL}, or a library call failed", "possible"),
)  # fmt: skip
COLLECTIVES = (
    pattern("gpu-software", r"Distributed package doesn't have (?:NCCL|MPI|UCC) built ?in|PyTorch was built without libuv support", "This torch was built without that part of torch.distributed", topic="distributed-build"),
    pattern("collective-timeout", r"[Ww]atchdog caught collective operation timeout|Some NCCL operations have failed or timed out", TIMEOUT, bare=True, consequence=True),
    pattern("collective-timeout", r"watchdog thread terminated with exception(?!: \S)|Heartbeat monitor timed out|Timeout at NCCL work", TIMEOUT, bare=True, consequence=True),
    pattern("collective-timeout", r"watchdog (?:got|was) stuck for \d+ seconds|NCCL monitor thread timeout|[Rr]eceived a (?:global )?(?:dump|timeout) signal (?:due to|from) .{0,60}|Could not acquire GIL within \d+ ms on exit|(?:detected|no) heartbeat .{0,40}(?:timeout|timed out|stuck)|[Hh]eartbeat (?:timed out|timeout) .{0,60}rank", TIMEOUT, bare=True, consequence=True),
    pattern("collective-timeout", r"socketProgress\w*: Connection (?:closed|reset)|NCCL WARN .{0,120}(?:Connection closed by (?:remote )?peer|Connection reset by peer|Broken pipe|Software caused connection abort)(?!.*retry)", PEER, "likely", bare=True, consequence=True),
    pattern("collective-timeout", r"ran for \d+ milliseconds before timing out", TIMEOUT, consequence=True),
    pattern("collective-timeout", r"Timed out waiting \d+ms|timed out in monitoredBarrier|Timed out after \d+ seconds waiting for clients", TIMEOUT, consequence=True),
    pattern("collective-timeout", r"wait(?:ing)? timeout after \d+ms|(?:client|server) socket has (?:timed out|failed)|Socket Timeout|failed to connect/validate", TIMEOUT, consequence=True),
    pattern("collective-timeout", r"RendezvousTimeoutError|RendezvousConnectionError|DistStoreError|DistNetworkError(?!.*EADDRINUSE)", TIMEOUT, consequence=True),
    pattern("collective-timeout", r"ncclRemoteError|remote process exited or there was a network error", PEER, consequence=True),
    pattern("collective-timeout", r"Connection closed by (?:remote )?peer|(?:gloo|TCPStore|NCCL|ProcessGroup|c10d).{0,300}(?:Connection reset|Broken pipe)|recv(?:Value)? failed|failed to recv, got 0 bytes", PEER, "likely", consequence=True),
    pattern("collective-timeout", r"ncclSystemError|unhandled system error|Gloo connectFullMesh failed", "NCCL or gloo could not set up its connections", "likely", bare=True, consequence=True, topic="nccl-network"),
    pattern("collective-timeout", r"ncclUnhandledCudaError|ncclInternalError|unhandled cuda error", "NCCL failed", "likely", consequence=True, topic="nccl-debug"),
    pattern("collective-timeout", r"NCCL (?:error|communicator was aborted)", "NCCL failed", "likely", consequence=True, topic="nccl-debug"),
    pattern("collective-timeout", r"DistBackendError", "A collective operation failed", "likely", consequence=True),
    pattern("collective-timeout", r"[Dd]evice or resource busy.{0,80}NCCL|Call to (?:connect|bind|recv|send|ibv_\w+) .{0,60}failed", PEER, "likely", bare=True, consequence=True, topic="nccl-network"),
    pattern("collective-timeout", r"NCCL WARN NET/\w+ ?: (?:.{0,60}[Gg]ot (?:async )?(?:completion|event)|.{0,200}\b(?:fatal|[Tt]imed? ?out))", "The network between the nodes failed", "likely", bare=True, consequence=True, topic="nccl-network"),
    pattern("collective-timeout", r"MPI_ERRORS_ARE_FATAL|^\*\*\* An error occurred in MPI_\w+|MPI_ABORT was invoked", "MPI failed to start or lost a process", "likely", bare=True, consequence=True),
    pattern("collective-timeout", r"Detected mismatch between collectives on ranks", "The processes ran different collectives", "certain"),
)  # fmt: skip
OFFLINE = "Files from the Hub are not cached, and offline mode forbids downloading them"
NO_NETWORK = "Files must be downloaded, but there is no network"
PORT = "The launcher's port is in use by another training or by processes an earlier one left"
NO_ANSWER = "The network or a server did not respond"
NETWORK = (
    pattern("offline", r"OfflineModeIsEnabled|offline mode is enabled|HF_HUB_OFFLINE|HF_DATASETS_OFFLINE|outgoing traffic has been disabled", OFFLINE),
    pattern("offline", r"couldn't connect to 'https|[Cc]an(?:not|'t) reach https?://|Couldn't reach .{1,200} on the Hub|LocalEntryNotFound|(?:Failed to resolve|NameResolutionError)|Temporary failure in name resolution|Name or service not known|nodename nor servname|Network is unreachable|No route to host", NO_NETWORK),
    pattern("port-in-use", r"EADDRINUSE|[Aa]ddress already in use|\[Errno 98\]", PORT),
    pattern("port-in-use", r"server socket has failed to (?:listen|bind)", PORT, "likely", bare=True),
    pattern("hub-access", r"GatedRepoError|gated repo|Access to (?:model|dataset) \S+ is restricted|(?:40[13] Client Error|Unauthorized|Forbidden).{0,300}(?:huggingface|hf\.co)|Invalid (?:user token|username or password|credentials)|Token is required|[Aa]uthentication token (?:does not exist|is (?:invalid|missing))|[Pp]lease log ?in first|LocalTokenNotFoundError|\b[Tt]oken\b.{0,60}(?:does not|doesn't|without) (?:\w+ ){0,2}(?:allow|permission|access|write)", "The Hub does not let this account read the model or data set", topic="hub-login"),
    pattern("hub-access", r"wandb.{0,80}(?:api_key not configured|UsageError|CommError)|wandb\.errors\.\S+", "Weights & Biases cannot be reached with this login", topic="wandb"),
    pattern("hub-access", r"requests\.exceptions|urllib3\.exceptions|HTTPSConnectionPool|couldn't connect to 'https|OfflineModeIsEnabled|LocalEntryNotFound|httpx\.|aiohttp\.|HTTPError|CAS service error", NO_ANSWER, topic="server"),
)  # fmt: skip
UNEXPLAINED = (
    pattern("unknown", r"uncorrectable ECC error|GPU is lost|fallen off the bus|GPU has fallen|NVRM: Xid \(.{1,40}\): (?:48|63|64|74|79|94|95),", "The GPU hardware failed: look for Xid errors in dmesg", bare=True, topic="card"),
    pattern("gpu-software", r"no kernel image is available for execution|device kernel image is invalid|hipErrorNoBinaryForGpu|Unsupported gpu architecture|no binary for GPU|(?:CUDA|HIP) error: (?:invalid device function|named symbol not found)|not compiled for (?:compute capability|sm_)", "This torch, or a package with its own kernels, has no code for this GPU", bare=True, topic="torch-build"),
    pattern("gpu-software", r"Driver/library version mismatch|CUDA driver version is insufficient|[Pp]ossibly insufficient driver version|forward compatibility was attempted on non supported HW|compiled with an unsupported toolchain|API call is not supported in the installed CUDA driver|system has unsupported display driver", "The driver does not match this torch", bare=True, topic="driver"),
    pattern("gpu-software", r"driver on your system is too old", "The driver is too old for this torch", topic="driver"),
    pattern("gpu-software", r"Found no NVIDIA driver|Failed to initialize NVML|CUDA initialization: |CUDA unknown error|cudaErrorNoDevice|no CUDA-capable device is detected", "No usable GPU driver was found", topic="no-driver"),
    pattern("gpu-software", r"CUBLAS_STATUS_(?:INVALID_VALUE|NOT_SUPPORTED|ARCH_MISMATCH)|cublas runtime error : (?:an absent device|an invalid numeric|unknown)", "cuBLAS rejected a call: mostly another cuBLAS than torch's was loaded, else an empty or wrongly shaped tensor", "likely", topic="cuda-libraries"),
    pattern("gpu-software", r"system not yet initialized", "The GPUs' NVSwitch fabric is not running", topic="fabric"),
    pattern("unknown", r"devices? (?:\(?s?\)? )?(?:is|are|is/are) busy or unavailable", "Another process uses the GPU exclusively, or the GPU does not respond", topic="busy-card"),
    pattern("unknown", r"launch timed out and was terminated", "A GPU kernel ran longer than the display's watchdog allows", topic="display-watchdog"),
    pattern("program-error", r"(?:CUDA|HIP) error: invalid configuration argument", "A GPU kernel was started on an empty or too large tensor", "likely", topic="shapes"),
    pattern("worker-crash", r"(?:CUDA|HIP) error: initialization error", "A process used the GPU after a fork", "likely", topic="cuda-in-worker"),
    pattern("unknown", r"CUDA error: unknown error", "The driver reported an internal error", topic="card"),
    pattern("unknown", r"\b(?:CUDA|HIP) error: [a-z]", "A GPU call failed; it may be an earlier one than the traceback shows", "possible", topic="gpu-call"),
    pattern("unknown", r"DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)", "The job system ended the job", bare=True),
    pattern("unknown", r"DUE TO TASK FAILURE", "The job system ended the job because one of its tasks failed", bare=True, consequence=True),
    pattern("unknown", r"^(?:slurmstepd|srun): error: .*(?:execve\(\)|[Ll]aunch .{0,40}failed|[Cc]redential|Unable to (?:create|confirm|allocate))", "The job system could not start the job", "likely", bare=True),
    pattern("unknown", r"^(?:\S+: line \d+: +\d+ +)?(?:Segmentation|Memory) fault|^Fatal Python error: |^\S+: \S+:\d+: .{0,400}Assertion [`'].{1,200} failed\.|^Illegal instruction|^Floating point exception", "The training crashed in native code", "likely", bare=True),
    pattern("unknown", r"UR_RESULT_ERROR_DEVICE_LOST", "The GPU stopped responding; Intel's driver also reports this when GPU memory runs out"),
    pattern("unknown", r"^/\S+\.mm:\d+: failed assertion `", "An Apple library aborted the training", bare=True),
    pattern("unknown", r"(?i)\b(?:status|code)[ :=(]{1,3}(?:322122\d{4}|-107374\d{4}|0xC0000[0-9A-F]{3})\b", "The training crashed in native code", "likely", bare=True),
    pattern("unknown", r"^thread '.{0,60}' (?:\(\d+\) )?panicked at", "A library written in Rust stopped (tokenizers, safetensors, polars)", "likely", bare=True),
    pattern("unknown", r"^terminate called without an active exception", LEFT_OVER, "likely", bare=True, consequence=True),
    pattern("unknown", r"^terminate called after throwing|^(?:\S+: line \d+: +\d+ +)?Aborted(?: \(core dumped\))?$|^\S+: line \d+: +\d+ Aborted\b", "The training crashed in native code", "possible", bare=True, consequence=True),
)  # fmt: skip

ATTENTION = "This attention implementation is not supported here"
FUSED = "The fused optimizer is not supported here"
COMPILE = "Compilation failed"
FLASH = r"(?:Flash ?Attention[\w .-]{0,12}|flash_attn\w*|`?flash_attention_\d`?)"

ATTENTION_PATTERNS = (
    pattern("attention-unsupported", rf"{FLASH}\s*(?:only supports?|forward only|backward for head dim|requires compute capability|is not (?:available|supported) on)", ATTENTION),
    pattern("attention-unsupported", rf"does not support (?:an attention implementation|{FLASH})", ATTENTION),
    pattern("attention-unsupported", r"is not a valid attention implementation|possible arguments are `?attn_implementation", ATTENTION),
    pattern("attention-unsupported", r"No available kernel\.? ?Aborting execution|No viable backend for scaled_dot_product_attention", ATTENTION),
    pattern("attention-unsupported", r"No operator found for `?memory_efficient_attention", ATTENTION),
    pattern("attention-unsupported", rf"You are attempting to use {FLASH}|{FLASH}.{{0,40}}(?:Ampere|Hopper|Turing) GPUs", ATTENTION),
    pattern("attention-unsupported", r"(?i)flex[_ ]?attention.{0,120}(?:not supported|only supported|requires|unsupported)", ATTENTION),
    pattern("attention-unsupported", r"Requested Flash Attention \d which is not supported", ATTENTION),
)  # fmt: skip
FUSED_MISMATCH = (
    "Weights, gradients and optimizer states differ in dtype or device, which the fused optimizer does not support"
)
FUSED_PATTERNS = (
    pattern("fused-unsupported", r"`?fused(?:=True)?`? (?:requires|does not support|and `?foreach)", FUSED),
    pattern("fused-unsupported", r"FusedAdam\w*.{0,80}(?:requires cuda|not (?:available|supported|implemented))|fused.{0,40}not supported", FUSED),
    pattern("fused-unsupported", r"unexpected keyword argument 'fused'", f"{FUSED}: torch is too old for it"),
    pattern("fused-unsupported", r"adamw_torch_fused.{0,80}(?:requires|is not a valid|not found|not supported)|'?adamw_torch_fused'? is not", FUSED),
    pattern("fused-unsupported", r"params, grads,? .{0,80}must have (?:the )?same dtype|Tensors of the same index must be on the same device and the same dtype", FUSED_MISMATCH),
    pattern("fused-unsupported", r"(?s)(?:expected input to be on cuda|[Ee]xpected all tensors|must be on the same device|same d?type).{0,400}multi_tensor_\w+|multi_tensor_\w+.{0,200}(?:same d?type|same device|on cuda)", FUSED_MISMATCH),
    pattern("fused-unsupported", r"'aten::_fused_(?:adam|adamw|sgd|adagrad)_", FUSED),
    pattern("fused-unsupported", r"Optimizer not found: adamw_torch_fused|[Uu]nknown optimizer:? '?adamw_torch_fused", FUSED),
)  # fmt: skip
COMPILE_PATTERNS = (
    pattern("compile-failed", r"torch\._(?:dynamo|inductor|functorch)\.\S*(?:exc\.|Error)|BackendCompilerFailed|InductorError|LoweringException", COMPILE),
    pattern("compile-failed", r"TritonMissing|Cannot find a working triton|triton\.(?:compiler|runtime)\.\S*Error|PTXASError|\bptxas\W{1,3}(?:failed|died|fatal)|Internal Triton PTX codegen", COMPILE),
    pattern("compile-failed", r"C\+\+ compile error|CppCompileError|No working C\+\+ compiler|[Ff]ailed to find C compiler|InvalidCxxCompiler", f"{COMPILE}: no working compiler"),
    pattern("compile-failed", r"[Dd]ynamo (?:is )?not supported on|not yet supported for torch\.compile|too old to be supported by the triton", f"{COMPILE}: not supported here"),
    pattern("compile-failed", r"CompilationError: |RecompileLimit|FailOnRecompileLimitHit|recompile_limit reached", COMPILE),
    pattern("compile-failed", r"CalledProcessError: Command .{0,40}\bninja\b", "A C++/CUDA extension did not compile", topic="extension"),
    pattern("compile-failed", r"CalledProcessError: Command .{0,400}(?:/gcc|/cc|/g\+\+|clang|ptxas|nvcc|ninja)\b", COMPILE),
    pattern("compile-failed", r"(?:\bld|lld)(?:\.\w+)?: (?:error: )?(?:cannot find|unable to find library|library not found for) -l(?:cuda|cudart|nvrtc|c10\w*|torch\w*|amdhip64)\b", f"{COMPILE}: the linker does not find a GPU library", bare=True),
    pattern("compile-failed", r"libcuda\.so\S* (?:cannot|could not|can not|was not|not) (?:be )?found|(?:cannot|could not) find libcuda", f"{COMPILE}: the driver's libcuda is not found"),
    pattern("compile-failed", r"^collect2: error: ld returned \d|linker command failed with exit code", COMPILE, "likely", bare=True),
    pattern("compile-failed", r"Error building extension|Error compiling objects for extension|Ninja is required to load C\+\+ extensions|^ninja: build stopped|^(?:ERROR: )?(?:Failed building wheel for|Could not build wheels for|Failed to build installable wheels)|has no attribute 'ds_opt_adam'", "A C++/CUDA extension did not compile", bare=True, topic="extension"),
    pattern("compile-failed", r"does not match the version torch was compiled with|CUDA_HOME (?:environment variable is not set|does not exist)", "A CUDA extension cannot be compiled", topic="extension"),
    pattern("compile-failed", r"accessing tensor output of CUDAGraphs that has been overwritten|CUDAGraph|cudagraph", COMPILE, "likely"),
    pattern("compile-failed", r"Detected that you are using FX to (?:symbolically )?trace a dynamo", COMPILE),
)  # fmt: skip
