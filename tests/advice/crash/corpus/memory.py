"""Outputs that ended because memory was full: the card's, the host's, the shared one."""

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

from __future__ import annotations

from tests.advice.crash.corpus.case import HEALTHY_START, Case, bar, trace

CUDA_27 = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.68 GiB of which "
    "211.06 MiB is free. Including non-PyTorch memory, this process has 23.46 GiB memory in use. Of the allocated memory 22.1 GiB "
    "is allocated by PyTorch, and 988.41 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
    "setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
CUDA_113 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 98.00 MiB (GPU 0; 15.90 GiB total capacity; 14.55 GiB already allocated; "
    "51.75 MiB free; 14.80 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb"
)
CUDA_10 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.92 GiB total capacity; 9.81 GiB already allocated; "
    "13.56 MiB free; 233.41 MiB cached)"
)
CUDA_20 = CUDA_113.replace("RuntimeError", "torch.cuda.OutOfMemoryError")
MPS = (
    "RuntimeError: MPS backend out of memory (MPS allocated: 16.50 GB, other allocations: 1.20 GB, max allowed: 18.13 GB). "
    "Tried to allocate 500.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit"
)
STEP = ("main", "train", "loop", "step")

GPU = (
    Case("torch 2.7 in the forward pass", HEALTHY_START + trace(CUDA_27, *STEP, "loss", "forward", "linear"), "gpu-oom", "training"),
    Case("torch 2.7 in the backward pass", trace(CUDA_27, *STEP, "backward"), "gpu-oom", "training"),
    Case("torch 2.0", trace(CUDA_20, *STEP), "gpu-oom", "training"),
    Case("torch 1.13", trace(CUDA_113, *STEP), "gpu-oom", "training"),
    Case("torch 1.4", trace(CUDA_10, "main", "epoch"), "gpu-oom", "training"),
    Case("torch 1.0", trace(
        "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58", "main", "epoch"), "gpu-oom"),
    Case("torch 0.4 check", "THCudaCheck FAIL file=/pytorch/aten/src/THC/generic/THCStorage.cu line=58 error=2 : out of memory\n"
         + trace("RuntimeError: cuda runtime error (2) : out of memory", "main"), "gpu-oom"),
    Case("optimizer step", trace(CUDA_27, "main", "train", "loop", "adam", "adam-init"), "gpu-oom", "optimizer-step"),
    Case("bitsandbytes optimizer step", trace(CUDA_27, "main", "train", "loop", "bnb"), "gpu-oom", "optimizer-step"),
    Case("evaluation forward", trace(CUDA_27, "main", "train", "loop", "evaluate", "evaluation", "predict", "loss", "forward"), "gpu-oom", "evaluation"),
    Case("evaluation gathers logits", trace(CUDA_27, "main", "train", "evaluate", "evaluation", "concat"), "gpu-oom", "evaluation"),
    Case("own validation loop", trace(CUDA_20, "main", "launch", "validate", "forward"), "gpu-oom", "evaluation"),
    Case("loading the model", trace(CUDA_27, "main", "pretrained"), "gpu-oom", "loading"),
    Case("moving the model", trace(CUDA_27, "main", "launch", "place", "to"), "gpu-oom", "loading"),
    Case("while saving", trace(CUDA_27, "main", "train", "loop", "save", "torch-save"), "gpu-oom", "checkpoint"),
    Case("Lightning: the optimizer's closure runs the step", trace(
        CUDA_27, "main", "lightning-optimizer", "adam", "lightning-step", "forward"), "gpu-oom", "training"),
    Case("Lightning validation", trace(CUDA_27, "main", "lightning-validation"), "gpu-oom", "evaluation"),
    Case("accelerator error", trace(
        "torch.AcceleratorError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call.", *STEP), "gpu-oom"),
    Case("old form of the driver's error", trace("RuntimeError: CUDA error: out of memory", "main", "launch", "to"), "gpu-oom", "loading"),
    Case("ROCm", trace(CUDA_27.replace("CUDA", "HIP"), *STEP), "gpu-oom", "training"),
    Case("ROCm driver", trace("RuntimeError: HIP error: out of memory\nHIP kernel errors might be asynchronously reported", *STEP), "gpu-oom"),
    Case("MPS", trace(MPS, "main", "train", "step"), "gpu-oom", "training"),
    Case("XPU", trace(CUDA_27.replace("CUDA", "XPU"), *STEP), "gpu-oom"),
    Case("XPU runtime", trace("RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)", *STEP), "gpu-oom"),
    Case("IPEX native API", trace(
        "RuntimeError: Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES) -5 (PI_ERROR_OUT_OF_RESOURCES)", *STEP), "gpu-oom"),
    Case("cuBLAS handle", trace("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", *STEP, "linear"), "gpu-oom"),
    Case("cuDNN workspace", trace("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", *STEP), "gpu-oom"),
    Case("cuDNN engine", trace("RuntimeError: FIND was unable to find an engine to execute this computation", *STEP), "gpu-oom"),
    Case("cuBLAS not initialised", trace(
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", *STEP), "gpu-oom"),
    Case("NCCL has no room", trace(
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, unhandled cuda error, NCCL "
        "version 2.18.1\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'out of memory'", "main", "launch"), "gpu-oom"),
    Case("bitsandbytes without an exception", HEALTHY_START + "Error out of memory at line 380 in file /src/csrc/pythonInterface.c\n", "gpu-oom"),
    Case("bitsandbytes CUDA error", HEALTHY_START + "CUDA Error: out of memory at line 412 in file /src/csrc/ops.cu\n", "gpu-oom"),
    Case("driver API", trace("RuntimeError: CUDA driver error: out of memory", *STEP), "gpu-oom"),
    Case("inside compiled code", trace(
        "torch._inductor.exc.InductorError: OutOfMemoryError: CUDA out of memory. Tried to allocate 1.91 GiB.", "main", "train", "dynamo"), "gpu-oom"),
    Case("dynamo wraps it", trace(
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nOutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.", *STEP), "gpu-oom"),
    Case("only the last line was kept", CUDA_27, "gpu-oom"),
    Case("printed estimate:s type", HEALTHY_START + CUDA_113.removeprefix("RuntimeError: "), "gpu-oom"),
    Case("a logger's line", "2026-03-01 10:00:02,120 - ERROR - trainer - " + CUDA_20, "gpu-oom"),
    Case("bar redrawn after the traceback", HEALTHY_START + bar(31, 1000) + trace(CUDA_27, *STEP) + "\n" + bar(31, 1000), "gpu-oom", "training"),
    Case("traceback glued to the bar", HEALTHY_START + bar(31, 1000) + trace(CUDA_27, *STEP), "gpu-oom", "training"),
    Case("colours and a collector's prefix", "\x1b[31m" + trace(CUDA_27, *STEP, prefix="(train_loop pid=311, ip=10.0.0.4) ") + "\x1b[0m", "gpu-oom"),
    Case("wandb talks on", HEALTHY_START + trace(CUDA_27, *STEP) + "\n" + "\n".join(
        f"wandb: line {n}" for n in range(40)), "gpu-oom"),
    Case("stdout held back to the exit", trace(CUDA_27, *STEP) + "\n" + HEALTHY_START, "gpu-oom"),
    Case("reached zero", trace("RuntimeError: No executable batch size found, reached zero.", "main", "train"), "gpu-oom"),
    Case("while handling another", trace("KeyError: 'labels'", "main", "train") + "\n\nDuring handling of the above exception, another exception occurred:\n\n"
         + trace(CUDA_27, *STEP), "gpu-oom"),
    Case("two ranks, one launcher", trace(CUDA_27, *STEP, prefix="[rank1]: ") + "\n" + trace(CUDA_27, *STEP, prefix="[rank0]: ") + """
E0301 10:00:00.000000 4242 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 77) of binary: /usr/bin/python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
""", "gpu-oom", "training"),
    Case("NVML cannot be asked", trace(
        "RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at \"/pytorch/c10/cuda/CUDACachingAllocator.cpp\":1016, please report a bug", *STEP), "gpu-oom"),
    Case("hydra prints its own error", "Error executing job with overrides: ['lr=1e-4']\n" + trace(CUDA_27, "launch", "epoch") + "\n\nSet the environment variable "
         "HYDRA_FULL_ERROR=1 for a complete stack trace.", "gpu-oom"),
)  # fmt: skip
HOST = (
    Case("CPU allocator", trace(
        "RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 68719476736 bytes. "
        "Error code 12 (Cannot allocate memory)", *STEP), "host-oom", "training"),
    Case("CPU allocator on Windows", trace(
        "RuntimeError: [enforce fail at ..\\c10\\core\\impl\\alloc_cpu.cpp:72] data. DefaultCPUAllocator: not enough memory: you tried to allocate 9663676416 bytes.",
        "main", "pretrained"), "host-oom", "loading"),
    Case("torch 1.0", trace("RuntimeError: $ Torch: not enough memory: you tried to allocate 12GB. Buy new RAM! at /pytorch/aten/src/TH/THGeneral.cpp:204", "main"), "host-oom"),
    Case("Python's own", trace("MemoryError", "main", "launch"), "host-oom"),
    Case("NumPy", trace("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 15.3 GiB for an array with shape (2048, 1000000) and data type float64", "main"), "host-oom"),
    Case("NumPy 1.x", trace("numpy.core._exceptions.MemoryError: Unable to allocate 9.31 GiB for an array with shape (50000, 50000)", "main"), "host-oom"),
    Case("fork fails", trace("OSError: [Errno 12] Cannot allocate memory", "main", "loader"), "host-oom"),
    Case("Arrow", trace("pyarrow.lib.ArrowMemoryError: malloc of size 4294967296 failed", "main", "launch"), "host-oom"),
    Case("C++", HEALTHY_START + "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nAborted (core dumped)\n", "host-oom"),
    Case("OpenBLAS under a limit of address space", HEALTHY_START + "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.\n", "host-oom"),
    Case("the shell says killed", HEALTHY_START + bar(40, 900) + "\nKilled\n", "host-oom"),
    Case("bash with a line number", HEALTHY_START + "run.sh: line 12: 40211 Killed                  python train.py --bf16\n", "host-oom"),
    Case("SLURM", HEALTHY_START + "slurmstepd: error: Detected 1 oom_kill event in StepId=881.batch. Some of the step tasks have been OOM Killed.\n", "host-oom"),
    Case("SLURM, older", HEALTHY_START + "slurmstepd: error: Detected 1 oom-kill event(s) in step 77.0 cgroup. Some of your processes may have been killed.\n", "host-oom"),
    Case("srun", HEALTHY_START + "srun: error: node7: task 0: Out Of Memory\n", "host-oom"),
    Case("the kernel's line", HEALTHY_START + "[81230.1] Out of memory: Killed process 4242 (python3) total-vm:98112044kB, anon-rss:60011111kB\n", "host-oom"),
    Case("a cgroup's limit", HEALTHY_START + "Memory cgroup out of memory: Killed process 4242 (pt_main_thread) total-vm:98112044kB\n", "host-oom"),
    Case("Ray", trace("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "main"), "host-oom"),
    Case("torchrun saw signal 9", HEALTHY_START + """
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-03-01_10:00:00
  host      : box
  rank      : 2 (local_rank: 2)
  exitcode  : -9 (pid: 911)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 911
""", "host-oom"),
    Case("accelerate saw signal 9", HEALTHY_START + trace(
        "subprocess.CalledProcessError: Command '['/usr/bin/python3', 'train.py']' died with <Signals.SIGKILL: 9>.", "main"), "host-oom"),
    Case("DeepSpeed saw signal 9", HEALTHY_START + "[2026-03-01 10:00:00,000] [ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits with return code = -9\n", "host-oom"),
    Case("mp.spawn saw signal 9", HEALTHY_START + trace(
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL", "main", "launch"), "host-oom"),
)  # fmt: skip
SHM = (
    Case("loader's bus error", "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n" + trace(
        "RuntimeError: DataLoader worker (pid 512) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. "
        "Please try to raise your shared memory limit.", "main", "train", "loader"), "shm"),
    Case("only the worker's line", HEALTHY_START + "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n", "shm"),
    Case("write to file", trace("RuntimeError: unable to write to file </torch_9121_42>", "main", "worker"), "shm"),
    Case("write to file, later form", trace("RuntimeError: unable to write to file </torch_91_3301_0>: No space left on device (28)", "main"), "shm"),
    Case("open", trace("RuntimeError: unable to open shared memory object </torch_77_1> in read-write mode: No space left on device (28)", "main"), "shm"),
    Case("from inside a worker", trace("RuntimeError: Caught RuntimeError in DataLoader worker process 3.", "main", "train", "loader") + "\nOriginal "
         + trace("RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_3>: Resource temporarily unavailable (11)", "worker", "fetch"), "shm"),
    Case("the shell says bus error", HEALTHY_START + "Bus error (core dumped)\n", "shm"),
    Case("NCCL", HEALTHY_START + "box:71:102 [0] misc/shmutils.cc:72 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-cAbDe1 (size 9637888)\n"
         + trace("torch.distributed.DistBackendError: NCCL error: unhandled system error, NCCL version 2.19", "main"), "shm"),
    Case("shared_memory module", trace("OSError: [Errno 28] No space left on device: '/psm_21ff06a1'", "main"), "shm"),
)  # fmt: skip
CASES = (*GPU, *HOST, *SHM)
