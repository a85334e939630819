"""The card's memory is full: the words of each allocator and library, and what only looks like it."""

from __future__ import annotations

from tuner_tui.runs.crash_patterns.pattern import form

FULL = "The card's memory is full"
LIBRARY = "A GPU library found no memory for its workspace"

LOOK_ALIKES = (
    form(
        "collective-timeout",
        r"out of memory.{0,20}Tried to allocate more than 1EB",
        "A nonsense size was allocated: what a collective leaves behind that broke off",
        "possible",
        consequence=True,
    ),
    form(
        "compile-failed",
        r"out of resource: (?:shared memory|threads|registers|tensor memory)",
        "A compiled kernel needs more on-chip shared memory than this card has; this is not VRAM",
    ),
)
PATTERNS = (
    form("gpu-oom", r"(?:CUDA|HIP|XPU|NPU|MUSA|MLU|HPU|MPS backend|Metal) out of memory", FULL),
    form(
        "gpu-oom",
        r"^(?:CUDA|HIP|XPU|MPS backend) out of memory\b.{0,4000}(?:[Tt]ried to allocate|allocated)",
        FULL,
        bare=True,
    ),
    form("gpu-oom", r"(?:CUDA|HIP|hip|CUDA driver|HIP driver|ROCm) error: out of memory", FULL),
    form("gpu-oom", r"(?:[cC]uda|hip) runtime error \(2\)|THCudaCheck FAIL .*error=2 ", FULL, bare=True),
    form(
        "gpu-oom",
        r"(?:CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory|hipErrorMemoryAllocation)",
        FULL,
    ),
    form(
        "gpu-oom",
        r"^level_zero backend failed with error: \d+ \(UR_RESULT_ERROR_OUT_OF_(?:DEVICE_MEMORY|RESOURCES)",
        FULL,
        bare=True,
    ),
    form("gpu-oom", r"Invalid buffer size: [\d.]+ [KMGT]i?B", "One buffer is larger than the card gives (MPS)"),
    form("gpu-oom", r"(?:OUT_OF_DEVICE_MEMORY|PI_ERROR_OUT_OF_RESOURCES|UR_RESULT_ERROR_OUT_OF_RESOURCES)", FULL),
    form("gpu-oom", r"kIOGPUCommandBufferCallbackErrorOutOfMemory|Insufficient Memory \(\d+:k?IOGPU", FULL, bare=True),
    form("gpu-oom", r"^(?:CUDA )?[Ee]rror:? out of memory at line \d+ in file", f"{FULL} (bitsandbytes)", bare=True),
    form("gpu-oom", r"Cuda failure (?:\d+ )?'out of memory'|Failed to CUDA (?:c|m)alloc", f"{FULL} (NCCL)", bare=True),
    form(
        "gpu-oom",
        r"CU(?:BLAS|DNN|SPARSE|FFT|SOLVER)_(?:STATUS_)?ALLOC_FAILED|(?:HIP|ROC)BLAS_STATUS_ALLOC_FAILED",
        LIBRARY,
    ),
    form(
        "gpu-oom",
        r"CUFFT_ALLOC_FAILED|rocblas_status_memory_error|miopenStatusAllocFailed|MIOpen.*(?:workspace|memory) .*alloc",
        LIBRARY,
    ),
    form("gpu-oom", r"CUDNN_STATUS_NOT_INITIALIZED|CUBLAS_STATUS_NOT_INITIALIZED", f"{LIBRARY} at its start", "likely"),
    form(
        "gpu-oom",
        r"NVML_SUCCESS == r.{0,40}INTERNAL ASSERT FAILED",
        f"{FULL}, and the driver could not be asked",
        "likely",
    ),
    form("gpu-oom", r"FIND was unable to find an engine|Unable to find a valid cuDNN algorithm", LIBRARY, "likely"),
    form("gpu-oom", r"(?:torch\.|cuda\.)OutOfMemoryError|AcceleratorError: .*out of memory", FULL),
    form("gpu-oom", r"No executable batch size found, reached zero", f"{FULL} even at a batch of one"),
    form("gpu-oom", r"RESOURCE_EXHAUSTED: .*(?:[Oo]ut of memory|allocat)", FULL),
    form("gpu-oom", r"HSA_STATUS_ERROR_OUT_OF_RESOURCES", f"{FULL} (ROCm)", "likely", bare=True),
    form("gpu-oom", r"Allocation on device .*would exceed allowed memory", FULL),
)
