"""Failures as they reach an issue or a mail: pasted, quoted, prefixed, and in the words of other allocators and tools."""

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

from __future__ import annotations

import json

from tests.advice.crash.corpus.case import HEALTHY_END, HEALTHY_START, Case, trace
from tests.advice.crash.corpus.memory import CUDA_20, CUDA_27, CUDA_113

STEP = ("main", "train", "loop", "step")
TRACE = trace(CUDA_27, *STEP)
FLAT = " ".join(line.strip() for line in TRACE.split("\n"))


def prefixed(prefix: str, text: str = TRACE) -> str:
    """Every line with what a logger, a terminal or a mail puts before it."""
    return "\n".join(prefix + line for line in text.split("\n"))


PASTED = (
    Case("newlines became blanks, words of the person before it", "My training crashed, see: " + FLAT, "gpu-oom"),
    Case("newlines became nothing", "".join(line.strip() for line in TRACE.split("\n")), "gpu-oom"),
    Case("newlines became backslash n", TRACE.replace("\n", "\\n"), "gpu-oom"),
    Case("one JSON string", json.dumps(TRACE), "gpu-oom"),
    Case(
        "a collector's JSON record",
        json.dumps({"time": "2026-03-01T10:00:00Z", "level": "error", "message": TRACE}),
        "gpu-oom",
    ),
    Case(
        "an error field of a JSON record", json.dumps({"level": "ERROR", "exc_info": trace(CUDA_113, *STEP)}), "gpu-oom"
    ),
    Case("a web form's break tags", TRACE.replace("\n", "<br>"), "gpu-oom"),
    Case(
        "host memory, newlines became blanks",
        " ".join(
            trace(
                "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 15.3 GiB for an array with shape (2048, 1000000)",
                "main",
            ).split()
        ),
        "host-oom",
    ),
    Case(
        "missing module, newlines became blanks",
        " ".join(trace("ModuleNotFoundError: No module named 'peft'", "main").split()),
        "missing-package",
    ),
    Case(
        "state dict, newlines became blanks",
        " ".join(
            trace(
                "RuntimeError: Error(s) in loading state_dict for BertModel: size mismatch for a.weight: copying a param",
                "main",
                "load",
            ).split()
        ),
        "checkpoint-io",
    ),
)
QUOTED = (
    Case("quoted in a mail", prefixed("> "), "gpu-oom", "training"),
    Case("quoted twice", prefixed(">> "), "gpu-oom", "training"),
    Case(
        "quoted, one word in front",
        prefixed("> ", "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB"),
        "gpu-oom",
    ),
    Case("in backquotes", f"`{CUDA_113}`", "gpu-oom"),
    Case("in quotation marks", f'"{CUDA_113}"', "gpu-oom"),
    Case("in a code fence", f"```\n{TRACE}\n```", "gpu-oom", "training"),
    Case("indented as code", prefixed("    "), "gpu-oom"),
    Case("a bullet point", f"- {CUDA_113}", "gpu-oom"),
    Case("bold", f"**{CUDA_113}**", "gpu-oom"),
    Case("stderr of a notebook", prefixed("stderr: "), "gpu-oom"),
)
STAMPED = (
    *(Case(f"prefix {prefix!r}", prefixed(prefix), "gpu-oom") for prefix in (
        "[10:00:01] ", "10:00:01.123 ", "10:00:01 | ", "[2026-03-01 10:00:01,123][__main__][ERROR] - ", "2026-03-01T10:00:01.123456Z ",
        "2026-03-01 10:00:01.123 | ERROR    | __main__:main:31 - ", "[rank: 3] ", "rank3: ", "[3/8] ", "[gpu 3] ", "(rank 3) ",
        "node01: [rank3] ", "worker-0 | ", "trainer_1  | ", "ERROR:train:", "[ERROR] ", "[1,3]<stderr>:", "[1,3]<stderr>: ", "0: [rank0]: ",
        "Mar 01 10:00:01 node01 python[4242]: ", "E0301 10:00:01.123456 4242 train.py:31] ", "[task 3] ", "r3 ", "pod/train-0 ", "[train-0] ",
        "01/03/2026 10:00:01 - ERROR - __main__ - ", "03-01 10:00:01 ERROR ", "ERROR 03-01 10:00:01 [worker_base.py:598] ", "1709287201.123 ",
        "| ", "2026/03/01 10:00:01 ", "[2026-03-01 10:00] ", "<3> ", "stderr | ", "[stderr] ", "#12 8.123 ",
    )),
    Case("a timestamp, the error alone", "[10:00:01] " + CUDA_113, "gpu-oom"),
    Case("loguru's last line", "2026-03-01 10:00:01.123 | ERROR    | __main__:main:31 - CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity; 6 GiB already allocated)", "gpu-oom"),
    Case("a logger names the error", "[2026-03-01 10:00:01,123][train][ERROR] - Training failed: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity)", "gpu-oom"),
    Case("a program names the error", HEALTHY_START + "Error: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB\n", "gpu-oom"),
    Case("a program names the error and its type", HEALTHY_START + "Training failed with error: RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB\n", "gpu-oom"),
)  # fmt: skip
HOST = (
    Case("Windows path in the enforce", trace("RuntimeError: [enforce fail at C:\\cb\\pytorch_1000000000000\\work\\c10\\core\\impl\\alloc_cpu.cpp:81] data. DefaultCPUAllocator: not enough memory: you tried to allocate 4718592000 bytes.", "main"), "host-oom"),
    Case("Windows path in the enforce, alone", "RuntimeError: [enforce fail at C:\\actions-runner\\_work\\pytorch\\pytorch\\builder\\windows\\pytorch\\c10\\core\\impl\\alloc_cpu.cpp:72] data. DefaultCPUAllocator: not enough memory: you tried to allocate 1207959552 bytes. Buy new RAM!", "host-oom"),
    Case("Windows path and a broken line", trace("RuntimeError: [enforce fail at\nD:\\a\\_work\\1\\s\\c10\\core\\CPUAllocator.cpp:75] data. DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.", "main"), "host-oom"),
    Case("torch 1.1", trace("RuntimeError: [enforce fail at CPUAllocator.cpp:56] posix_memalign(&data, gAlignment, nbytes) == 0. 12 vs 0", *STEP), "host-oom"),
    Case("torch 1.2", trace("RuntimeError: [enforce fail at CPUAllocator.cpp:64] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 3932160000 bytes. Error code 12 (Cannot allocate memory)\n (no backtrace available)", *STEP), "host-oom"),
    Case("torch 1.1, alone in a log", "[enforce fail at CPUAllocator.cpp:56] posix_memalign(&data, gAlignment, nbytes) == 0. 12 vs 0", "host-oom"),
    Case("posix_memalign in a Rust program", "thread 'main' panicked at 'called `Result::unwrap()` on an `Err` value: TorchError { c_error: \"[enforce fail at CPUAllocator.cpp:56] posix_memalign(&data, gAlignment, nbytes) == 0. 12 vs 0", "host-oom"),
    Case("posix_memalign by name", HEALTHY_START + "posix_memalign: Cannot allocate memory\nAborted (core dumped)\n", "host-oom"),
    Case("Paddle", trace("paddle.fluid.core_avx.EnforceNotMet: Error: Alloc 524288000 error!\n  [Hint: Expected posix_memalign(&p, alignment, size) == 0, but received posix_memalign(&p, alignment, size):12 != 0:0.] at (/paddle/paddle/fluid/memory/detail/system_allocator.cc:59)", "main"), "host-oom"),
    Case("TensorFlow, CPU allocator", trace("tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[5095,3729] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu [Op:Mul]", "main"), "host-oom"),
    Case("TensorFlow, mklcpu", trace("ResourceExhaustedError: {{function_node __wrapped__Mul_device_/job:localhost/replica:0/task:0/device:CPU:0}} OOM when allocating tensor with shape[64,512,512] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator mklcpu", "main"), "host-oom"),
    Case("TensorFlow, GPU allocator", trace("tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[3,3,512,1024] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Mul]", "main"), "gpu-oom"),
    Case("TensorFlow's aligned allocation", HEALTHY_START + "2026-03-01 10:00:00.1: F tensorflow/core/framework/allocator.cc:101] Failed to allocate aligned memory: posix_memalign returned 12\nAborted\n", "host-oom"),
    Case("TensorFlow's fatal check", HEALTHY_START + "2020-03-01 10:00:00.100000: F ./tensorflow/core/util/mkl_util.h:636] Check failed: ptr != nullptr Cannot allocate memory\nAborted (core dumped)\n", "host-oom"),
    Case("torch 1.x TH", trace("RuntimeError: $ Torch: not enough memory: you tried to allocate 3GB. Buy new RAM! at /opt/conda/conda-bld/pytorch_1533672544752/work/aten/src/TH/THGeneral.c:218", "main"), "host-oom"),
    Case("TH realloc", trace("RuntimeError: $ Torch: unable to mmap memory: you tried to mmap 2GB. at /pytorch/aten/src/TH/THAllocator.c:329", "main"), "host-oom"),
    Case("oneDNN", trace("RuntimeError: could not create a memory object: out of memory\nterminate: std::bad_alloc", "main"), "host-oom"),
    Case("jemalloc", HEALTHY_START + "<jemalloc>: Error in mmap(): err: 12, msg: Cannot allocate memory\nMemoryError\n", "host-oom"),
    Case("tcmalloc", HEALTHY_START + "src/tcmalloc.cc:332] Attempt to allocate 34359738368 bytes failed: out of memory\nAborted\n", "host-oom"),
    Case("glibc", HEALTHY_START + "malloc(): memory allocation failed: Cannot allocate memory\nAborted (core dumped)\n", "host-oom"),
    Case("a fork in a shell", HEALTHY_START + "-bash: fork: Cannot allocate memory\n", "host-oom"),
    Case("operator new", HEALTHY_START + "terminate called after throwing an instance of 'std::bad_array_new_length'\n  what():  std::bad_array_new_length\n", "unknown"),
)  # fmt: skip
VERDICTS = (
    Case("faceswap", "10/08/2026 22:53:01 MainProcess     MainThread      cli             execute_script            ERROR    You do not have enough GPU memory available to train the selected model at the selected settings. You can try a number of things:\n", "gpu-oom"),
    Case("not enough GPU memory", HEALTHY_START + "ERROR: Not enough GPU memory to train with batch size 16\n", "gpu-oom"),
    Case("insufficient GPU memory", "Insufficient GPU memory: required 23.1 GiB, available 14.7 GiB. Aborting.\n", "gpu-oom"),
    Case("insufficient VRAM", "FATAL: insufficient VRAM (need 24 GB, have 16 GB)\n", "gpu-oom"),
    Case("the GPU ran out", HEALTHY_START + "The GPU ran out of memory. Reduce the batch size and try again.\n", "gpu-oom"),
    Case("a tool's own exception", trace("mytool.errors.InsufficientMemoryError: GPU has 7.8 GiB free, 12.4 GiB are needed", "main"), "gpu-oom"),
    Case("insufficient system memory", "Error: insufficient system memory to load the dataset: 61 GiB needed, 31 GiB available\n", "host-oom"),
    Case("not enough RAM", HEALTHY_START + "ERROR: Not enough RAM to cache the dataset\n" , "host-oom"),
    Case("insufficient memory of no kind", HEALTHY_START + "error: insufficient memory\n", "host-oom"),
    Case("insufficient memory, exception", trace("RuntimeError: insufficient memory to allocate optimizer states on device cuda:0", "main", "adam"), "gpu-oom"),
    Case("vLLM", trace("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.", "main"), "gpu-oom"),
    Case("Ollama", HEALTHY_START + "Error: model requires more system memory (8.4 GiB) than is available (5.2 GiB)\n", "host-oom"),
)  # fmt: skip
JSON_LOG = (
    Case("NaN gradient norms in JSON lines", "\n".join(json.dumps({"step": n, "loss": 0.0, "grad_norm": float("nan"), "lr": 1e-5}) for n in range(5)), "nan"),
    Case("NaN gradient norms as strings", "\n".join(json.dumps({"loss": 0.0, "grad_norm": "NaN", "epoch": n}) for n in range(5)), "nan"),
    Case("null is what strict JSON makes of it", "\n".join(json.dumps({"loss": 0.0, "grad_norm": None, "step": n}) for n in range(5))),
    Case("a trainer_state file", json.dumps({"log_history": [{"epoch": 0.1 * n, "grad_norm": float("nan"), "learning_rate": 1e-5, "loss": 0.0, "step": n} for n in range(6)]}, indent=2), "nan"),
    Case("a trainer_state file in one line", json.dumps({"log_history": [{"epoch": 0.1 * n, "grad_norm": float("nan"), "loss": 0.0, "step": n} for n in range(6)]}), "nan"),
    Case("a healthy trainer_state file", json.dumps({"log_history": [{"epoch": 0.1 * n, "grad_norm": 1.2, "loss": 0.4, "step": n} for n in range(6)]}, indent=2)),
    Case("one infinite norm of a scaler", "\n".join(json.dumps({"step": n, "loss": 0.7, "grad_norm": float("inf") if n == 1 else 1.3}) for n in range(5))),
    Case("a prefix before JSON", "\n".join("train: " + json.dumps({"train/loss": 0.0, "train/grad_norm": float("nan")}) for n in range(5)), "nan"),
)  # fmt: skip
FUSED = (
    Case("fused, dtypes differ", trace("RuntimeError: params, grads, exp_avgs, and exp_avg_sqs must have same dtype, device, and layout", "main", "train", "adam"), "fused-unsupported"),
    Case("fused, plural", trace("AssertionError: Tensors of the same index must be on the same device and the same dtype except `step` tensors that can be on CPU and float32 notwithstanding", "main", "train", "adam"), "fused-unsupported"),
    Case("fused, device", trace("RuntimeError: `fused=True` requires all the params to be floating point Tensors of supported devices: ['mps', 'cuda', 'xpu', 'hpu', 'cpu', 'privateuseone'] but torch.int64 and cuda", "main", "adam"), "fused-unsupported"),
    Case("fused kernel expects", trace("RuntimeError: expected scalar type Float but found BFloat16", "main", "train", "adam"), "precision-unsupported"),
    Case("apex", trace("RuntimeError: expected input to be on cuda\nmulti_tensor_adam: A tensor was not contiguous.", "main", "train"), "fused-unsupported"),
    Case("foreach", trace("RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!", "main", "train", "adam"), "program-error"),
    Case("inside the fused kernel", trace("RuntimeError: expected scalar type Float but found BFloat16", "main", "train", "adam", "fused-adam"), "fused-unsupported"),
    Case("inside the fused kernel, device", trace("RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!", "main", "train", "adam", "fused-adam"), "fused-unsupported"),
)  # fmt: skip
COMPILER = (
    Case("linker finds no libcuda", HEALTHY_START + "/usr/bin/ld: cannot find -lcuda: No such file or directory\ncollect2: error: ld returned 1 exit status\n", "compile-failed"),
    Case("linker finds no libcuda, old words", "/usr/bin/ld: cannot find -lcuda\ncollect2: error: ld returned 1 exit status\n" + trace("subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmp0zvqksim/main.c', '-O3', '-shared', '-fPIC', '-lcuda', '-o', '/tmp/x.so']' returned non-zero exit status 1.", "main", "train"), "compile-failed"),
    Case("lld", "ld.lld: error: unable to find library -lcuda\nclang: error: linker command failed with exit code 1\n", "compile-failed"),
    Case("Triton asserts", trace("AssertionError: libcuda.so cannot found!\nPossible files are located at ['/usr/lib/x86_64-linux-gnu/libcuda.so.1'].Please create a symlink of libcuda.so to any of the files.", "main", "train"), "compile-failed"),
    Case("cudart", "/opt/conda/compiler_compat/ld: cannot find -lcudart: No such file or directory\ncollect2: error: ld returned 1 exit status\n", "compile-failed"),
    Case("generated code lacks a name", 'Traceback (most recent call last):\n  File "/home/ann/train.py", line 3, in <module>\n    main()\n  File "/tmp/torchinductor_ann/yj/cyjeozfgx.py", line 58, in call\n    buf0 = f(tmp3)\nNameError: name \'tmp3\' is not defined\n', "compile-failed"),
    Case("generated code of Windows", 'Traceback (most recent call last):\n  File "C:\\Users\\ann\\AppData\\Local\\Temp\\torchinductor_ann\\a\\b.py", line 58, in call\n    x\nNameError: name \'s0\' is not defined\n', "compile-failed"),
    Case("generated by dynamo", 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n  File "<eval_with_key>.12", line 9, in forward\n    view = u0\nNameError: name \'u0\' is not defined\n', "compile-failed"),
    Case("generated by unsloth", 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n  File "/home/ann/unsloth_compiled_cache/UnslothSFTTrainer.py", line 9, in train\n    x\nNameError: name \'Any\' is not defined\n', "compile-failed"),
    Case("a name in the person's own code", trace("NameError: name 'labels' is not defined", "main", "launch"), "unknown"),
)  # fmt: skip
DISTRIBUTED = (
    Case("heartbeat", HEALTHY_START + "[rank1]:[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank 1] [PG 0 Rank 1] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress in monitoring enqueued collectives. This typically indicates a NCCL/CUDA API hang blocking the watchdog\n", "collective-timeout"),
    Case("heartbeat, first words", HEALTHY_START + "[rank0]:[E216 13:04:08.1 ProcessGroupNCCL.cpp:1537] [PG ID 0 PG GUID 0 Rank 0] Received a dump signal due to a collective timeout from rank 3 and we will try our best to dump the debug info.\n", "collective-timeout"),
    Case("heartbeat, oldest words", HEALTHY_START + "[F ProcessGroupNCCL.cpp:1185] [Rank 0] NCCL monitor thread timeout. Basically, this could be due to CUDA or NCCL calls being unexpectedly blocking\n", "collective-timeout"),
    Case("heartbeat, GIL", HEALTHY_START + "[rank0]:[E ProcessGroupNCCL.cpp:1414] [PG 0 Rank 0] Could not acquire GIL within 300 ms on exit, possible GIL induced hang\n", "collective-timeout"),
    Case("socket closed by the peer", HEALTHY_START + trace("torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer node02<41000>", *STEP), "collective-timeout"),
    Case("socket closed, NCCL's warning alone", HEALTHY_START + "node01:711:990 [0] misc/socket.cc:881 NCCL WARN socketProgress: Connection closed by remote peer node02<41000>\n", "collective-timeout"),
    Case("socket closed, older NCCL", HEALTHY_START + "node01:711:990 [0] include/socket.h:423 NCCL WARN Net : Connection closed by remote peer\n", "collective-timeout"),
    Case("socket reset", HEALTHY_START + "node01:711:990 [0] misc/socket.cc:538 NCCL WARN Net : Call to recv from 10.0.0.2<41000> failed : Connection reset by peer\n", "collective-timeout"),
)  # fmt: skip
CHECKPOINT = (
    Case("checkpoint cannot be opened", trace("RuntimeError: unable to open file </scratch/run/checkpoint-500/pytorch_model.bin> in read-only mode: No such file or directory (2)", "main", "load"), "checkpoint-io"),
    Case("safetensors cannot be opened", trace("FileNotFoundError: No such file or directory: \"/scratch/out/model.safetensors\"", "main", "load"), "checkpoint-io"),
    Case("checkpoint, permission", trace("PermissionError: [Errno 13] Permission denied: '/scratch/out/checkpoint-500/optimizer.pt'", "main", "load"), "checkpoint-io"),
    Case("pt file", trace("FileNotFoundError: [Errno 2] No such file or directory: 'weights/last.pt'", "main", "load"), "checkpoint-io"),
    Case("ckpt file", trace("FileNotFoundError: [Errno 2] No such file or directory: '/runs/7/epoch=3-step=400.ckpt'", "main", "load"), "checkpoint-io"),
    Case("transformers finds no weights", trace("OSError: Error no file named pytorch_model.bin, model.safetensors, tf_model.h5, model.ckpt.index or flax_model.msgpack found in directory /scratch/out.", "main", "pretrained"), "checkpoint-io"),
    Case("h5", trace("OSError: Unable to open file (unable to open file: name = 'weights.h5', errno = 2, error message = 'No such file or directory', flags = 0)", "main", "load"), "checkpoint-io"),
    Case("TensorFlow", trace("tensorflow.python.framework.errors_impl.NotFoundError: Unsuccessful TensorSliceReader constructor: Failed to find any matching files for model.ckpt-500", "main", "load"), "checkpoint-io"),
    Case("C++", trace("RuntimeError: open file failed because of errno 2 on fopen: No such file or directory, file path: /scratch/model.pt", "main", "load"), "checkpoint-io"),
    Case("a data file is not a checkpoint", trace("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'", "main"), "bad-arguments"),
)  # fmt: skip
RUNTIMES = (
    Case("caffe2", trace("RuntimeError: [enforce fail at context_gpu.cu:415] error == cudaSuccess. 2 vs 0. Error at: /work/caffe2/core/context_gpu.cu:415: out of memory", "main"), "gpu-oom"),
    Case("the CUDA driver by TensorFlow, and nothing after", HEALTHY_START + "2026-03-01 10:00:00.1: E tensorflow/stream_executor/cuda/cuda_driver.cc:828] failed to allocate 64.00M (67108864 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\nAborted (core dumped)\n", "gpu-oom"),
    Case("thrust", HEALTHY_START + "terminate called after throwing an instance of 'thrust::system::detail::bad_alloc'\n  what():  std::bad_alloc: cudaErrorMemoryAllocation: out of memory\n", "gpu-oom"),
    Case("RMM", trace("MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /opt/rmm/mr/device/cuda_memory_resource.hpp:70: cudaErrorMemoryAllocation out of memory", "main"), "gpu-oom"),
    Case("CuPy", trace("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 2,147,483,648 bytes (allocated so far: 6,442,450,944 bytes).", "main"), "gpu-oom"),
    Case("Paddle, the summary alone", "----------------------\nError Message Summary:\n----------------------\nResourceExhaustedError: \n\nOut of memory error on GPU 1. Cannot allocate 512.000244MB memory on GPU 1, 15.500000GB memory has been allocated and available memory is only 98.437500MB.\n\nPlease check whether there is any other process using GPU 1.\n1. If yes, please stop them, or start PaddlePaddle on another GPU.\n2. If no, please decrease the batch size of your model.\n", "gpu-oom"),
    Case("Paddle 1", trace("paddle.fluid.core.EnforceNotMet: enforce allocating <= available failed, 9210311000 > 1203765248\nat [/paddle/fluid/platform/gpu_info.cc:119]", "main"), "gpu-oom"),
    Case("XLA on a TPU", HEALTHY_START + "RESOURCE_EXHAUSTED: Attempting to reserve 5.10G at the bottom of memory. That was not possible. There are 4.90G free, 0B reserved, and 2.20G reservable.\n", "gpu-oom"),
    Case("XLA, fragmented", HEALTHY_START + "Exception in device=TPU:0: Attempting to allocate 40.00M. That was not possible. There are 61.00M free. Due to fragmentation, the largest contiguous region of free memory is 30.00M.\n", "gpu-oom"),
    Case("XLA at compilation", "Compilation failure: Ran out of memory in memory space hbm. Used 17.2G of 15.48G hbm. Exceeded hbm capacity by 1.72G.\n", "gpu-oom"),
    Case("MXNet", trace("mxnet.base.MXNetError: [10:11:12] src/storage/./pooled_storage_manager.h:157: cudaMalloc failed: out of memory", "main"), "gpu-oom"),
    Case("ggml", HEALTHY_START + "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory\n", "gpu-oom"),
    Case("Theano", trace("MemoryError: Error allocating 67108864 bytes of device memory (CNMEM_STATUS_OUT_OF_MEMORY).", "main"), "gpu-oom"),
    Case("Theano, words alone", "Error allocating 67108864 bytes of device memory < out of memory >. Driver report 1048576 bytes free and 2147483648 bytes total\n", "gpu-oom"),
    Case("DirectML", trace("RuntimeError: Could not allocate tensor with 16777216 bytes. There is not enough GPU video memory available!", "main"), "gpu-oom"),
    Case("Colab", "Your session crashed after using all available RAM.\n", "host-oom"),
    Case("Java", trace("java.lang.OutOfMemoryError: Java heap space", "main"), "host-oom"),
    Case("an error without its type", HEALTHY_START + "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n", "gpu-oom"),
    Case("cuDNN without the type", HEALTHY_START + "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\n", "illegal-access"),
    Case("OpenMP twice", "OMP: Error #15: Initializing libomp.dylib, but found libiomp5.dylib already initialized.\nAbort trap: 6\n", "missing-package"),
    Case("driver and module differ", "Failed to initialize NVML: Driver/library version mismatch\n", "gpu-software"),
)  # fmt: skip
JOB_SYSTEMS = (
    Case("Slurm, old words", HEALTHY_START + "slurmstepd: error: Step 77.0 exceeded memory limit (66060288 > 62914560), being killed\n", "host-oom"),
    Case("Slurm, job", HEALTHY_START + "slurmstepd: error: Job 77 exceeded memory limit (8400000 > 8388608), being killed\n", "host-oom"),
    Case("PBS", HEALTHY_START + "=>> PBS: job killed: vmem 34359738368 exceeded limit 32212254720\n", "host-oom"),
    Case("HTCondor", "Error from slot1_2@node7: Job has gone over memory limit of 8192 megabytes. Peak usage: 8300 megabytes.\n", "host-oom"),
    Case("LSF", "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\n", "host-oom"),
    Case("Grid Engine", HEALTHY_START + 'job 77 exceeds job hard limit "h_vmem" of queue "gpu@node1" (17179869184.00000 > limit:16000000000.00000) - sending SIGKILL\n', "host-oom"),
)  # fmt: skip
CUT_AND_REDRAWN = (
    Case("a bar is drawn again after the error", "\n".join(trace(CUDA_113, "main", "pretrained").split("\n")[1:]) + "\nLoading checkpoint shards:  40%|████      | 4/10 [00:09<00:14,  2.40s/it]", "gpu-oom", "loading"),
    Case("Ray repeats a line", "\n".join(f"(TrainWorker pid=77) ERROR 06-09 06:57:48 worker.py:581] {line} [repeated 6x across cluster]" for line in TRACE.split("\n")), "gpu-oom", "training"),
    Case("newlines became blanks, where", FLAT, "gpu-oom", "training"),
    Case("a sentence ends with the error", f'When I resume it reports an error: "{CUDA_113}"', "gpu-oom"),
    Case("a sentence ends with the error in backquotes", "the second run fails with `RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory`.", "checkpoint-io"),
    Case("keys of a state dict alone", "        size mismatch for head.weight: copying a param with shape torch.Size([3, 768]) from checkpoint, the shape in current model is torch.Size([2, 768]).\n", "checkpoint-io"),
    Case("a worker's traceback in a message", trace("KeyError: 'Traceback (most recent call last):\\n  File \"loader.py\", line 106, in _worker_loop\\n    samples = f(i)\\nKeyError: 7\\n'", "main"), "worker-crash"),
)  # fmt: skip
PROGRAMS = (
    Case("dtypes differ, no expected type", trace("RuntimeError: masked_scatter: expected self and source to have same dtypes but got Half and Float", "main", "train", "backward"), "precision-unsupported"),
    Case("dtypes differ, found", trace("RuntimeError: Found dtype BFloat16 but expected Float", "main", "train", "backward"), "precision-unsupported"),
    Case("the data set lost its columns", trace("IndexError: Invalid key: 12 is out of bounds for size 0", "main", "train", "fetch"), "program-error"),
    Case("a variable twice", trace("RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following reasons", "main", "train", "backward"), "program-error"),
    Case("ZeRO-3, another order", trace("RuntimeError: tracing error at step 9: expected the next 2 parameters in the parameter fetch queue to be ({'id': 4},) but got ().", "main", "train", "forward"), "program-error"),
    Case("no such command on Windows", "'accelerate' is not recognized as an internal or external command,\noperable program or batch file.\n", "missing-package"),
    Case("no such program on Windows", "'pyhton' is not recognized as an internal or external command,\noperable program or batch file.\n", "bad-arguments"),
    Case("a web page's quotation marks", "TypeError: TrainingArguments.__init__() got an unexpected keyword argument ‘evaluation_strategy’\n", "bad-arguments"),
    Case("a title of an issue", "训练报错：“RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB”\n", "gpu-oom"),
    Case("no NCCL in this build", trace("RuntimeError: Distributed package doesn't have NCCL built in", "main"), "gpu-software"),
    Case("no libuv in this build", trace("torch.distributed.DistStoreError: use_libuv was requested but PyTorch was built without libuv support", "main"), "gpu-software"),
    Case("Lightning stops at a loss", trace("ValueError: The loss returned in `training_step` is nan.", "main", "lightning-step"), "nan"),
    Case("TensorFlow reads a damaged checkpoint", trace("tensorflow.python.framework.errors_impl.DataLossError: Checksum does not match: stored 1 vs. calculated on the restored bytes 2", "main", "load"), "checkpoint-io"),
    Case("distributed checkpoint of another model", trace("ValueError: Size mismatch between saved torch.Size([100, 8]) and current: torch.Size([200, 8]) for model.embed", "main", "load"), "checkpoint-io"),
)  # fmt: skip
ALL = (
    *PASTED,
    *QUOTED,
    *STAMPED,
    *RUNTIMES,
    *JOB_SYSTEMS,
    *CUT_AND_REDRAWN,
    *PROGRAMS,
    *HOST,
    *VERDICTS,
    *JSON_LOG,
    *FUSED,
    *COMPILER,
    *DISTRIBUTED,
    *CHECKPOINT,
)
LOOK_ALIKES = (
    Case("a tip with a prefix", HEALTHY_START + "[10:00:01] Tip: on CUDA out of memory, halve the batch\n" + HEALTHY_END),
    Case("a JSON sample with a traceback", HEALTHY_START + json.dumps({"text": TRACE, "label": 3}) + "\n" + HEALTHY_END),
    Case("a data set about errors", HEALTHY_START + 'sample: {"question": "Why RuntimeError: CUDA out of memory?"}\n' + HEALTHY_END),
    Case("enough memory", "GPU memory check: sufficient memory (need 7.1 GiB, have 24 GiB)\n" + HEALTHY_START + HEALTHY_END),
    Case("insufficient memory is dealt with", "Insufficient GPU memory for batch 64, falling back to 32\n" + HEALTHY_START + HEALTHY_END),
    Case("insufficient memory, training went on", HEALTHY_START + "Not enough GPU memory to cache the dataset, streaming it instead\n" + HEALTHY_END),
    Case("TensorFlow's note", HEALTHY_START + "2026-03-01 10:00:00.883299: W tensorflow/core/common_runtime/bfc_allocator.cc:211] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.25GiB. The caller indicates that this is not a failure, but may mean that there could be performance gains if more memory were available.\n" + HEALTHY_END),
    Case("TensorFlow's 10 %", HEALTHY_START + "2026-03-01 10:00:00.1: W tensorflow/core/framework/allocator.cc:108] Allocation of 1207959552 exceeds 10% of system memory.\n" + HEALTHY_END),
    Case("NCCL at the end of a training", HEALTHY_START + HEALTHY_END + "node01:711:990 [0] NCCL INFO [Service thread] Connection closed by localRank 0\n"),
    Case("heartbeat is set", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800, watchdog on\n" + HEALTHY_START + HEALTHY_END),
    Case("linker option in a build log", "gcc -shared -fPIC main.o -lcuda -o driver.so\n" + HEALTHY_START + HEALTHY_END),
    Case("a missing checkpoint is no error", "No checkpoint found at out/checkpoint-500, starting from scratch\n" + HEALTHY_START + HEALTHY_END),
    Case("quoted without a crash", "> my run prints {'loss': '1.2'} and then nothing\n> is out of memory possible?\n"),
    Case("a tool skips and asks", HEALTHY_START + "WARNING: ran out of memory, skipping this batch; please consider a smaller one\n" + HEALTHY_END),
    Case("a bar goes on after an error", HEALTHY_START + CUDA_113 + "\n 10%|█         | 4/40 [00:09<00:14,  2.40s/it]\n 12%|█         | 5/40 [00:11<00:14,  2.40s/it]\n" + HEALTHY_END),
    Case("an old error is mentioned", HEALTHY_START + "resuming after: " + CUDA_20 + "\n" + HEALTHY_END),
)  # fmt: skip
CASES = tuple(case for case in ALL if case.cause is not None)
HEALTHY = (*LOOK_ALIKES, *(case for case in ALL if case.cause is None))
