"""GPU memory, host memory or shared memory is full, and messages that only look like it."""

from __future__ import annotations

from tuner_tui.runs.log_parsing.crash_patterns.pattern import pattern

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

GPU_MEMORY_FULL = "The GPU's memory is full"
GPU_WORKSPACE_FULL = "A GPU library could not allocate its workspace"

DEALT_WITH_IT = (
    r"instead|fall\w* back|skipp\w*|disabl\w*|retry\w*|may|might|if|when|avoid|prevent|will use|switch\w*|offload\w*"
)
VERDICT = rf"(?i)^(?!.*\b(?:{DEALT_WITH_IT})\b)(?:(?:error|fatal|critical|abort\w*|exception|failed|sorry)\W{{1,3}})?"
"""The start of a line in which a tool itself says that it cannot go on."""
TOO_LITTLE = r"(?:(?:you|there|your \w+|the \w+|this \w+|we) (?:\w+ ){0,3}?)?(?:not (?:have )?enough|(?:does not|doesn't|don't) have enough|insufficient|too little|ran out of|out of)"
ON_GPU = r"(?:\w+ ){0,2}?(?:gpu|vram|video memory|video ram|cuda memory|graphics memory|device memory)\b"
ABOUT_TRAINING = r"(?=.*\b(?:gpu|cuda|vram|train\w*|fine-?tun\w*|batch|model|optimi[sz]er|gradients?|activations)\b)"

LOOK_ALIKES = (
    pattern(
        "collective-timeout",
        r"out of memory.{0,20}Tried to allocate more than 1EB",
        "An impossible size was requested: an interrupted collective left garbage behind",
        "possible",
        consequence=True,
    ),
    pattern(
        "compile-failed",
        r"out of resource: (?:shared memory|threads|registers|tensor memory)",
        "A compiled kernel needs more on-chip shared memory than this GPU has; this is not VRAM",
    ),
)
GPU_MEMORY = (
    pattern("gpu-oom", r"(?:CUDA|HIP|XPU|NPU|MUSA|MLU|HPU|MPS backend|Metal) out of memory", GPU_MEMORY_FULL),
    pattern(
        "gpu-oom",
        r"^(?:CUDA|HIP|XPU|MPS backend) out of memory\b.{0,4000}(?:[Tt]ried to allocate|allocated)",
        GPU_MEMORY_FULL,
        bare=True,
    ),
    pattern("gpu-oom", r"(?:CUDA|HIP|hip|CUDA driver|HIP driver|ROCm) [Ee]rror: out of memory", GPU_MEMORY_FULL),
    pattern("gpu-oom", r"(?:[cC]uda|hip) runtime error \(2\)|THCudaCheck FAIL .*error=2 ", GPU_MEMORY_FULL, bare=True),
    pattern(
        "gpu-oom",
        r"(?:CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory|HIP_ERROR_OutOfMemory|hipErrorMemoryAllocation)"
        r"|error == cudaSuccess\. 2 vs 0|\.cuh?:\d+: out of memory|std::bad_alloc: .{0,60}CUDA error"
        r"|(?:cuda|hip)Malloc failed: out of memory|allocating \d+ bytes of device memory|CNMEM_STATUS_OUT_OF_MEMORY"
        r"|\bCuda\w+: allocation failed",
        GPU_MEMORY_FULL,
        bare=True,
    ),
    pattern(
        "gpu-oom",
        r"Out of memory error on (?:GPU|XPU|NPU|CUDAPlace).{0,60}[Cc]annot allocate|enforce allocating <= available failed",
        f"{GPU_MEMORY_FULL} (Paddle)",
        bare=True,
    ),
    pattern(
        "gpu-oom",
        r"Attempting to (?:allocate|reserve) [\d.]+[KMGT]?\b.{0,60}That was not possible"
        r"|[Rr]an out of memory in memory space \w+",
        f"{GPU_MEMORY_FULL} (XLA)",
        bare=True,
    ),
    pattern(
        "gpu-oom",
        r"^level_zero backend failed with error: \d+ \(UR_RESULT_ERROR_OUT_OF_(?:DEVICE_MEMORY|RESOURCES)",
        GPU_MEMORY_FULL,
        bare=True,
    ),
    pattern("gpu-oom", r"Invalid buffer size: [\d.]+ [KMGT]i?B", "One buffer is larger than the device allows (MPS)"),
    pattern(
        "gpu-oom",
        r"(?:OUT_OF_DEVICE_MEMORY|Allocation is out of device memory|PI_ERROR_OUT_OF_RESOURCES|UR_RESULT_ERROR_OUT_OF_RESOURCES)",
        GPU_MEMORY_FULL,
    ),
    pattern(
        "gpu-oom",
        r"kIOGPUCommandBufferCallbackErrorOutOfMemory|Insufficient Memory \(\d+:k?IOGPU",
        GPU_MEMORY_FULL,
        bare=True,
    ),
    pattern(
        "gpu-oom",
        r"^(?:CUDA )?[Ee]rror:? out of memory at (?:line \d+ in file|\S+\.(?:cpp|cu|cc|h)\b)",
        GPU_MEMORY_FULL,
        bare=True,
    ),
    pattern(
        "gpu-oom",
        r"Cuda failure (?:\d+ )?'out of memory'|Failed to CUDA (?:c|m)alloc",
        f"{GPU_MEMORY_FULL} (NCCL)",
        bare=True,
    ),
    pattern(
        "gpu-oom",
        r"CU(?:BLAS|DNN|SPARSE|FFT|SOLVER)_(?:STATUS_)?ALLOC_FAILED|cublas runtime error : resource allocation failed|(?:HIP|ROC)BLAS_STATUS_ALLOC_FAILED",
        GPU_WORKSPACE_FULL,
    ),
    pattern(
        "gpu-oom",
        r"CUFFT_ALLOC_FAILED|rocblas_status_memory_error|miopenStatusAllocFailed|MIOpen.*(?:workspace|memory) .*alloc",
        GPU_WORKSPACE_FULL,
    ),
    pattern(
        "gpu-oom",
        r"CU(?:DNN|BLAS)_STATUS_NOT_INITIALIZED|cublas runtime error : library not initialized",
        f"{GPU_WORKSPACE_FULL} at its start",
        "likely",
    ),
    pattern(
        "gpu-oom",
        r"NVML_SUCCESS == r.{0,40}INTERNAL ASSERT FAILED",
        f"{GPU_MEMORY_FULL}, and the driver could not be queried",
        "likely",
    ),
    pattern(
        "gpu-oom",
        r"\b[A-Z]{3,5} was unable to find an engine|Failed to get convolution algorithm|Unable to find a valid cuDNN algorithm",
        GPU_WORKSPACE_FULL,
        "likely",
    ),
    pattern(
        "gpu-oom", r"(?:torch\.|cuda\.(?:\w+\.)*)OutOfMemoryError|AcceleratorError: .*out of memory", GPU_MEMORY_FULL
    ),
    pattern("gpu-oom", r"No executable batch size found, reached zero", f"{GPU_MEMORY_FULL} even at a batch of one"),
    pattern(
        "gpu-oom",
        r"(?:RESOURCE_EXHAUSTED|Resource exhausted): .*(?:[Oo]ut of memory|allocat(?!.*\bby allocator \w*[cC]pu))",
        GPU_MEMORY_FULL,
        bare=True,
    ),
    pattern("gpu-oom", r"OOM when allocating tensor .{0,400}by allocator (?!\w*[cC]pu)", GPU_MEMORY_FULL),
    pattern("gpu-oom", r"No available memory for the cache blocks", GPU_MEMORY_FULL),
    pattern(
        "gpu-oom",
        r"(?i)(?=.*\b(?:gpu|device|cuda|vram)\b)(?:free|available|remaining) (?:\w+ )?memory\b.{0,80}"
        r"\b(?:less|smaller|lower) than .{0,20}(?:desired|required|requested|needed|minimum)",
        GPU_MEMORY_FULL,
    ),
    pattern(
        "gpu-oom",
        r"CL_MEM_OBJECT_ALLOCATION_FAILURE|Memory Object Allocation Failure",
        f"{GPU_MEMORY_FULL} (OpenCL)",
        bare=True,
    ),
    pattern(
        "gpu-oom",
        r"[Ss]ome modules are dispatched on the CPU or the disk|enough GPU RAM to fit the (?:quantized )?model",
        "The GPU has no room for the whole model",
        topic="model-does-not-fit",
    ),
    pattern("gpu-oom", rf"{VERDICT}{TOO_LITTLE} {ON_GPU}", GPU_MEMORY_FULL, "likely", bare=True),
    pattern(
        "gpu-oom",
        rf"{VERDICT}(?:the |your )?(?:gpu|graphics card|card|device)(?: \S+)? (?:ran|has run|is) out of memory",
        GPU_MEMORY_FULL,
        "likely",
        bare=True,
    ),
    pattern(
        "gpu-oom",
        rf"(?i)(?:Error|Exception): (?:.{{0,100}}\. )?{TOO_LITTLE} (?:{ON_GPU}|(?:\w+ )?memory.{{0,200}}\b(?:gpu|cuda|vram|device))",
        GPU_MEMORY_FULL,
        "likely",
    ),
    pattern(
        "gpu-oom",
        r"(?i)(?:Insufficient|NotEnough|TooLittle)(?:GPU|Device|V?RAM|Cuda)?Memory(?:Error|Exception)?: .{0,200}\b(?:gpu|cuda|vram|device)|(?:Insufficient|NotEnough)(?:GPU|Device|VRAM|Cuda)Memory",
        GPU_MEMORY_FULL,
        "likely",
    ),
    pattern("gpu-oom", r"HSA_STATUS_ERROR_OUT_OF_RESOURCES", f"{GPU_MEMORY_FULL} (ROCm)", "likely", bare=True),
    pattern("gpu-oom", r"Allocation on device .*would exceed allowed memory", GPU_MEMORY_FULL),
)


HOST_MEMORY_FULL = "Host memory is full"
SHARED_MEMORY_FULL = "Shared memory (/dev/shm) is full"
OOM_KILLED = "The kernel killed the process because host memory was full"
OVER_LIMIT = "The job system killed the training: it used more host memory than the job may"
JOB = r"(?:job|step|task|container|pod|process(?:es)?)"
MEMORY = r"(?:v?mem|memory|h_vmem|h_rss|rss|vmem)"
EXCEEDS = r"(?:exceed\w*|gone over|over)"
TRAINER = r"(?:python[\d.]*|pt_[\w.-]+|torchrun|accelerate|deepspeed|ray::?\w*|jupyter\S*|train\S*)"

SHARED = (
    pattern("shm", r"out of shared memory\. Please try to raise your shared memory", SHARED_MEMORY_FULL),
    pattern("shm", r"worker \(pid[^)]*\) is killed by signal: Bus error", SHARED_MEMORY_FULL, bare=True),
    pattern("shm", r"Unexpected bus error encountered in worker", SHARED_MEMORY_FULL, bare=True),
    pattern("shm", r"unable to (?:open|write|resize|allocate|mmap)\b.{0,80}(?:/torch_|shared memory).{0,200}(?:No space left|\(28\))", SHARED_MEMORY_FULL),
    pattern("shm", r"unable to (?:write to file|resize file|allocate shared memory(?:\(shm\))?.{0,20}) <?/torch_", SHARED_MEMORY_FULL),
    pattern("shm", r"unable to open shared memory object </torch_", SHARED_MEMORY_FULL, "likely"),
    pattern("shm", r"unable to mmap \d+ bytes from file <(?:filename not specified|/torch_[^>]*)>.{0,40}Cannot allocate memory", SHARED_MEMORY_FULL, "likely"),
    pattern("shm", r"No space left on device.{0,20}/(?:dev/shm|psm_|sem\.|torch_|pymp-|nccl-)", SHARED_MEMORY_FULL),
    pattern("shm", r"(?:creating|attaching to|allocat\w+) shared memory segment /dev/shm|/dev/shm/nccl-\S+.{0,80}(?:No space|failed)", SHARED_MEMORY_FULL, bare=True),
    pattern("shm", r"^(?:Fatal Python error: )?Bus error(?: \(core dumped\))?$|^\S+: line \d+: +\d+ Bus error|^\[\d+\] .*Bus error", f"Bus error: {SHARED_MEMORY_FULL.lower()}", "likely", bare=True),
)  # fmt: skip
HOST = (
    pattern("host-oom", r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)", HOST_MEMORY_FULL, bare=True),
    pattern("host-oom", r"\$ Torch: (?:not enough memory|unable to mmap memory)|C10 Out of Memory\. Trying to allocate", HOST_MEMORY_FULL),
    pattern("host-oom", r"(?:^|\.)(?:_?Array)?MemoryError\b|ArrowMemoryError|Unable to allocate .{1,60} for an array", HOST_MEMORY_FULL),
    pattern("host-oom", r"\[Errno 12\] Cannot allocate memory|\(os error 12\)|error code:? ?\(?12\)?.{0,40}Cannot allocate", HOST_MEMORY_FULL),
    pattern("host-oom", r"posix_memalign\(.{0,120}\) == 0\. 12 vs 0|posix_memalign\(.{0,120}\):12 != 0|posix_memalign.{0,80}(?:ENOMEM|returned 12|[Cc]annot allocate)", HOST_MEMORY_FULL, bare=True),
    pattern("host-oom", r"^\[enforce fail at .{0,300}(?:alloc_cpu|CPUAllocator)\.(?:cpp|cc)\b", HOST_MEMORY_FULL, bare=True),
    pattern("host-oom", r"OOM when allocating tensor .{0,400}by allocator \w*[cC]pu", HOST_MEMORY_FULL),
    pattern("host-oom", r"(?:[Ff]ailed to allocate|[Cc]ould not allocate|[Uu]nable to allocate) (?:\d+ bytes (?:of )?)?(?:aligned|host|CPU|system) memory", HOST_MEMORY_FULL, bare=True),
    pattern("host-oom", r"Attempt to allocate \d+ bytes failed|^Alloc(?:ate)? \d+ (?:bytes )?error|Error: Alloc \d+ error!", HOST_MEMORY_FULL, bare=True),
    pattern("host-oom", r"(?:^|[:)] |nullptr )[Cc]annot allocate memory\.?$|(?:malloc|calloc|realloc|mmap|fork)\b.{0,60}: [Cc]annot allocate memory", HOST_MEMORY_FULL, "likely", bare=True),
    pattern("host-oom", rf"{VERDICT}{TOO_LITTLE} (?:free |available |physical )?(?:system memory|system ram|host memory|host ram|main memory|cpu memory|cpu ram|ram)\b", HOST_MEMORY_FULL, "likely", bare=True),
    pattern("host-oom", r"requires more (?:system |host )?memory .{0,40}than is available", HOST_MEMORY_FULL, bare=True),
    pattern("gpu-oom", rf"{VERDICT}{ABOUT_TRAINING}{TOO_LITTLE} (?:free |available )?memory\b", GPU_MEMORY_FULL, "possible", bare=True),
    pattern("host-oom", rf"{VERDICT}{TOO_LITTLE} (?:free |available )?memory\b", HOST_MEMORY_FULL, "possible", bare=True),
    pattern("host-oom", rf"(?i)(?:Error|Exception): {TOO_LITTLE} (?:\w+ )?(?:memory|ram)\b|(?:Insufficient|NotEnough)(?:Memory|RAM)(?:Error|Exception)?\b", HOST_MEMORY_FULL, "likely"),
    pattern("host-oom", r"\[WinError 1455\]|[Pp]aging file is too small", HOST_MEMORY_FULL),
    pattern("host-oom", r"std::bad_alloc|memory allocation of \d+ bytes failed", HOST_MEMORY_FULL, bare=True),
    pattern("host-oom", r"malloc of size \d+ failed|(?:realloc|calloc|mmap).{0,40}Cannot allocate memory", HOST_MEMORY_FULL),
    pattern("host-oom", r"OpenBLAS error: Memory allocation still failed after \d+ retries", HOST_MEMORY_FULL, bare=True),
    pattern("host-oom", r"OUT_OF_HOST_MEMORY", HOST_MEMORY_FULL),
    pattern("host-oom", r"ray\.exceptions\.OutOfMemoryError|running low on memory", OOM_KILLED),
    pattern("host-oom", r"(?<!\b0 )\b[Ww]orkers? .{0,40}killed due to (?:memory pressure|.{0,40}\bout of memory|OOM)", OOM_KILLED, bare=True),
    pattern("host-oom", r"\bThe worker may have exceeded (?:K8s )?(?:pod|container) memory limits?", OVER_LIMIT, "likely", bare=True),
    pattern("host-oom", r"killed by signal: Killed.{0,400}oom", OOM_KILLED),
    pattern("host-oom", r"java\.lang\.OutOfMemoryError|(?:after using all available RAM|tried to allocate more memory than is available)", HOST_MEMORY_FULL, bare=True),
    pattern("host-oom", rf"(?i)\b{JOB}\b.{{0,80}}\b{MEMORY}\b.{{0,60}}\b{EXCEEDS}\b.{{0,30}}\b(?:limit|kill)|\b{JOB}\b.{{0,60}}\b{EXCEEDS}\b.{{0,20}}\b{MEMORY}\b.{{0,80}}\b(?:limit|kill)|TERM_MEMLIMIT", OVER_LIMIT, bare=True),
    pattern("host-oom", r"(?i)^(?:slurmstepd|srun): error:.*(?:oom[_-]?kill|out of memory)", OOM_KILLED, bare=True),
    pattern("host-oom", rf"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process \d+,? \({TRAINER}\)", OOM_KILLED, bare=True),
    pattern("host-oom", rf"oom-kill:.*task={TRAINER},", OOM_KILLED, bare=True),
    pattern("host-oom", r"\b[Tt]he node was low on resource: memory\b", "Kubernetes evicted the pod: its node ran out of memory", bare=True),
    pattern("host-oom", r"^(?:OOMKilled|reason: OOMKilled|\s*Reason:\s+OOMKilled)", OOM_KILLED, bare=True),
    pattern("host-oom", r"(?:pinned|pin_memory|cudaHostAlloc|cudaMallocHost).{0,200}(?:out of memory|failed)", "No page-locked (pinned) host memory is left", "likely"),
    pattern("host-oom", r"A worker died or was killed while executing a task", "A Ray worker was killed; the kernel does this when host memory is full", "possible", bare=True, consequence=True),
    pattern("host-oom", r"(?i)\bexit(?:ed)?(?: with)?(?:[ _]?(?:code|status))?[ :=(]*137\b", "The process was killed; the kernel does this when host memory is full", "likely", bare=True),
    pattern("host-oom", r"^\**Killed\**$|^\S+: line \d+: +\d+ Killed\b|^zsh: killed\b|^\[\d+\][+-]? +\d* *[Kk]illed\b", "The process was killed; the kernel does this when host memory is full", "likely", bare=True),
)  # fmt: skip
HOST_MEMORY = (*SHARED, *HOST)
