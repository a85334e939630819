"""Errors that are told apart by where they were raised: releases that do not fit, wrappers, configurations, batches."""

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

from __future__ import annotations

from tests.advice.crash.corpus.case import HEALTHY_END, HEALTHY_START, SITE, Case, trace

STEP = ("main", "train", "loop", "step")


def through(error: str, *frames: tuple[str, str]) -> str:
    """A traceback through frames that are given as file and function."""
    lines = [f'  File "{file}", line {7 + at}, in {function}' for at, (file, function) in enumerate(frames)]
    return "\n".join(["Traceback (most recent call last):", *lines, error])


def site(path: str, function: str) -> tuple[str, str]:
    return f"{SITE}/{path}", function


MAIN = ("/home/ann/train.py", "<module>")
RELEASES = (
    Case("a package calls another with an argument too many", through("TypeError: _patched_batches() takes 3 positional arguments but 4 were given", MAIN, site("transformers/trainer.py", "train")), "missing-package"),
    Case("a package calls another with an unknown argument", through("TypeError: QuantLayer.__init__() got an unexpected keyword argument 'mapping'", MAIN, site("peft/tuners/lora/bnb.py", "dispatch")), "missing-package"),
    Case("a package calls another without an argument", through("TypeError: adapt() missing 1 required positional argument: 'config'", MAIN, site("trl/trainer/sft_trainer.py", "__init__")), "missing-package"),
    Case("what was a property is a method", through("TypeError: 'method' object is not subscriptable", MAIN, site("transformers/trainer.py", "_load_best_model")), "missing-package"),
    Case("generated code asks for what is not there", through("AttributeError: 'UnslothConfig' object has no attribute 'loss_kind'", MAIN, ("/home/ann/unsloth_compiled_cache/UnslothTrainer.py", "__init__")), "missing-package"),
    Case("torch raises it for a package", through("AttributeError: 'Linear' object has no attribute 'quant_map'", MAIN, site("peft/utils/other.py", "prepare"), site("torch/nn/modules/module.py", "__getattr__")), "missing-package"),
    Case("a class lost a method", through("AttributeError: type object 'Trainer' has no attribute 'add_arguments'", MAIN), "missing-package"),
    Case("a module lost a function", through("AttributeError: module 'torch.utils' has no attribute 'pack'", MAIN), "missing-package"),
    Case("a name that the release does not have", trace("ImportError: cannot import name 'OldConfig' from 'trl' (/opt/env/trl/__init__.py)", "main"), "missing-package"),
    Case("a program checks a version", trace("ValueError: The version of PEFT in this environment is not compatible, use one above 0.5", "main"), "missing-package"),
    Case("an optional package", through("NameError: name 'PeftModel' is not defined", MAIN, site("trl/trainer/sft_trainer.py", "__init__")), "missing-package"),
    Case("compiled code of a package", through("RuntimeError: a tensor of 9 elements is no scalar", MAIN, site("apex-0.1-py3.8.egg/apex/norm.py", "forward")), "missing-package"),
    Case("a value is missing, no release", through("AttributeError: 'NoneType' object has no attribute 'bias'", MAIN, site("transformers/trainer.py", "train")), "unknown"),
    Case("the person's own class", through("AttributeError: 'Batches' object has no attribute 'size'", site("transformers/trainer.py", "train"), ("/home/ann/data.py", "collate")), "unknown"),
    Case("the person's own call", through("TypeError: prepare() missing 1 required positional argument: 'path'", MAIN), "unknown"),
    Case("the model takes other columns", through("TypeError: BertModel.forward() got an unexpected keyword argument 'labels'", MAIN, site("transformers/trainer.py", "compute_loss"), site("torch/nn/modules/module.py", "_call_impl")), "program-error"),
    Case("the wrapper is asked", through("AttributeError: 'DistributedDataParallel' object has no attribute 'config'", MAIN, site("torch/nn/modules/module.py", "__getattr__")), "program-error"),
)  # fmt: skip
FILES = (
    Case("a damaged file of safetensors", through("RuntimeError: shape '[8, 8]' is invalid for input of size 60", MAIN, site("safetensors/torch.py", "load_file")), "checkpoint-io"),
    Case("shapes of the program's own", trace("RuntimeError: shape '[8, 8]' is invalid for input of size 60", *STEP), "program-error"),
    Case("a batch beyond Arrow's 2 GiB", trace("OverflowError: There was an overflow in the <class 'pyarrow.lib.ListArray'>. Try to reduce writer_batch_size", "main"), "program-error"),
    Case("offsets beyond Arrow's 2 GiB", trace("pyarrow.lib.ArrowInvalid: offset overflow while concatenating arrays", "main"), "program-error"),
    Case("datasets cannot read a value", through("OverflowError: Python int too large to convert to C long", MAIN, site("datasets/arrow_writer.py", "write_table")), "program-error"),
)  # fmt: skip
USAGE = (
    Case("Lightning refuses the trainer", trace("lightning.fabric.utilities.exceptions.MisconfigurationException: No `val_dataloader()` method defined to run `Trainer.validate`.", "main"), "bad-arguments"),
    Case("Lightning finds no GPU", trace("lightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!", "main"), "bad-arguments"),
    Case("Hydra's grammar, no traceback", "mismatched input '=' expecting <EOF>\nSee https://hydra.cc/docs/1.3/advanced/override_grammar/basic for details\n", "bad-arguments"),
    Case("an override lacks its value", "missing EQUAL at '<EOF>'\nSee https://hydra.cc/docs/1.3/advanced/override_grammar/basic for details\n", "bad-arguments"),
    Case("texts are missing", trace("ValueError: You need to specify either `text` or `text_target`.", "main"), "program-error"),
)  # fmt: skip
LAUNCHED = (
    Case("a host's name before the error", "worker-3: ValueError: DeepSpeed is not compatible with `device_map`. n_gpu: 8\n", "bad-arguments"),
    Case("a wizard names the exit", HEALTHY_START + "Training failed with exit code -9\nCheck the logs\n", "host-oom"),
    Case("a launcher names the signal of a bus error", "ERROR:cli.launcher:Rank 2 crashed with exit code -7.\n", "shm"),
    Case("a launcher names the signal of a segmentation fault", "ERROR:cli.launcher:Global rank 0 (PID 865) exited with code -11\n", "unknown"),
    Case("killed, in bold", HEALTHY_START + "**Killed**\n", "host-oom"),
    Case("Windows, access violation", HEALTHY_START + "Process finished with exit code -1073741819 (0xC0000005)\n", "unknown"),
    Case("the scaler reached zero", "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 0.0\n" + trace("ZeroDivisionError: float division by zero", *STEP), "nan"),
    Case("a card that is not there", trace('RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at "CUDAContext.cpp":49, device=3, num_gpus=1', "main"), "bad-arguments"),
)  # fmt: skip
RESUMED = (
    Case("no optimizer in the checkpoint", trace("KeyError: 'optimizer'", "main"), "checkpoint-io"),
    Case("another optimizer's state", through("KeyError: 'radam_buffer'", MAIN, site("torch/optim/optimizer.py", "load_state_dict")), "checkpoint-io"),
    Case("the program's reader misses a key", through("KeyError: 'model_ema'", MAIN, ("/home/ann/io.py", "load_checkpoint")), "checkpoint-io"),
    Case("FSDP's optimizer state is empty", trace("RuntimeError: The state of _OptimStateKey(unflat_param_names=('a.weight',), is_fsdp_managed=True) is empty.", "main"), "checkpoint-io"),
    Case("any key in the program's own code", trace("KeyError: 'radam_buffer'", "main", "launch"), "unknown"),
)  # fmt: skip
SAMPLES = (
    Case("a sample of another type", through("TypeError: 'Pair' object is not subscriptable", MAIN, site("torch/utils/data/_utils/collate.py", "default_collate")), "program-error"),
    Case("texts of another type", trace("ValueError: text input must be of type `str` (single example)", "main"), "program-error"),
)  # fmt: skip
PARALLEL = (
    Case("processes do not divide", trace("RuntimeError: world_size (3) is not divisible by 2", "main"), "bad-arguments"),
    Case("heads do not divide", trace("AssertionError: num_attention_heads must be a multiple of tensor_model_parallel_size", "main"), "bad-arguments"),
    Case("DDP's reducer", trace('RuntimeError: expect_autograd_hooks_ INTERNAL ASSERT FAILED at "csrc/distributed/c10d/reducer.cpp":1591', *STEP), "program-error"),
    Case("recomputed values differ", trace("torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors have different metadata", *STEP), "program-error"),
    Case(
        "recomputed values differ, in an actor of Ray",
        trace("ray.exceptions.RayTaskError(CheckpointError): ray::Actor.fit() (pid=3)", "main")
        + f'\n  File "{SITE}/torch/utils/checkpoint.py", line 9, in check\n    raise CheckpointError(\n'
        + "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors differ",
        "program-error",
    ),
    Case("Rust finds no file", "thread '<unnamed>' panicked at 'called `Result::unwrap()`: Os { code: 2, kind: NotFound }', src/mod.rs:5:2\nAborted (core dumped)\n", "bad-arguments"),
    Case("Rust panics", "thread '<unnamed>' panicked at src/lib.rs:78:26:\nTryFromIntError(())\n", "unknown"),
)  # fmt: skip
DEVICE = (
    Case("CUDA's error with a capital", trace("RuntimeError: CUDA Error: out of memory at /src/csrc/allocator.cpp:31", "main"), "gpu-oom"),
    Case("cuBLAS of old releases, memory", trace("RuntimeError: cublas runtime error : resource allocation failed at /pytorch/THCGeneral.cpp:250", *STEP), "gpu-oom"),
    Case("cuBLAS of old releases, kernel", trace("RuntimeError: cublas runtime error : the GPU program failed to execute at /pytorch/THCBlas.cu:258", *STEP), "illegal-access"),
    Case("cuBLAS refuses a call", trace("RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx(handle)`", *STEP), "gpu-software"),
    Case("cuDNN finds no engine", trace("RuntimeError: GET was unable to find an engine to execute this computation", *STEP), "gpu-oom"),
    Case("FSDP's flat parameter", trace("ValueError: FlatParameter requires uniform dtype but got torch.float16 and torch.float32", "main"), "precision-unsupported"),
    Case("ranks gather other shapes", trace("RuntimeError: output tensor size must be equal to world_size times input tensor size", *STEP), "program-error"),
    Case("MPI does not start", "*** An error occurred in MPI_Init_thread\n*** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort)\n", "collective-timeout"),
    Case("the Hub's token may not write", trace("huggingface_hub.errors.HfHubHTTPError: The token in use does not allow writing", "main"), "hub-access"),
)  # fmt: skip
SPAWN = 'File "C:\\env\\lib\\multiprocessing\\spawn.py", line 126, in _main'
LOADER = f'File "{SITE}/torch/utils/data/_utils/worker.py", line 309, in _worker_loop'
PROCESSES = (
    Case("a started process is cut off from its data", f"Traceback (most recent call last):\n  {SPAWN}\n    self = reduction.pickle.load(from_parent)\n_pickle.UnpicklingError: pickle data was truncated\n", "worker-crash"),
    Case("an object is too large for a pipe", trace("OSError: [Errno 22] Invalid argument", "main").replace("/home/ann/train.py", "/usr/lib/python3.11/multiprocessing/reduction.py").replace("<module>", "dump"), "worker-crash"),
    Case("no more threads", "terminate called after throwing an instance of 'std::system_error'\n  what():  Resource temporarily unavailable\n", "worker-crash"),
    Case("a broken image in a worker", f"OSError: Caught OSError in DataLoader worker process 2.\nOriginal Traceback (most recent call last):\n  {LOADER}\n    data = fetcher.fetch(index)\nOSError: image file is truncated (9 bytes not processed)\n", "program-error"),
    Case("a broken image by the package that read it", trace("struct.error: unpack requires a buffer of 4 bytes", "main").replace("/home/ann/train.py", f"{SITE}/PIL/_binary.py"), "program-error"),
    Case("the traceback is the message", f'Traceback (most recent call last):\n  File "train.py", line 8, in <module>\n    next(batches)\nOSError: Traceback (most recent call last):\n  {LOADER}\n    s = load(1)\nOSError: image file is truncated\n', "program-error"),
    Case("the loader ends early", trace("StopIteration", "main", "loader"), "program-error"),
    Case("an epoch without steps", trace("ZeroDivisionError: division by zero", "main", "loop"), "program-error"),
    Case("DataParallel", "StopIteration: Caught StopIteration in replica 0 on device 0.\n", "program-error"),
    Case("another encoding", trace("UnicodeDecodeError: 'gbk' codec can't decode byte 0xa1 in position 9: illegal multibyte sequence", "main"), "program-error"),
)  # fmt: skip
ENDED = (
    Case("Python's report of a bus error", "Fatal Python error: Bus error\n\nCurrent thread 0x00007f (most recent call first):\n", "shm"),
    Case("UCX's report of a bus error", "[node1:104 :0:104] Caught signal 7 (Bus error: nonexistent physical address)\n", "shm"),
    Case("MPI's report of a bus error", "=   EXIT CODE: 135\n", "shm"),
    Case("srun's report of a segmentation fault", "srun: error: node7: task 3: Segmentation fault (core dumped)\n", "unknown"),
    Case("srun's report of an exit code", "srun: error: node7: tasks 0-3: Exited with exit code 1\n", "unknown"),
    Case("srun cannot start", "srun: error: Task launch for 36.0 failed on node n131: Job credential expired\n", "unknown"),
    Case("a task of the job failed", "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-04-29T23:36:37 DUE TO TASK FAILURE ***\n", "unknown"),
    Case("a check in native code", "python3: /opt/lib/csrc/permute.cu:41: void launch(Args): Assertion `out != nullptr' failed.\n", "unknown"),
    Case("a native abort in a shell script", "/home/ann/run.sh: line 18: 2324 Aborted                 (core dumped) python train.py\n", "unknown"),
    Case("InfiniBand", "n1:98:135 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.9<442> with status=12 opcode=129 len=6 vendor err 129 (Recv)\n", "collective-timeout"),
    Case("a wheel that does not build", "ERROR: Could not build wheels for flash-attn, which is required to install pyproject.toml-based projects\n", "compile-failed"),
    Case("ROCm without code for the card", trace("RuntimeError: HIP error: invalid device function", *STEP), "gpu-software"),
    Case("another call to the card", trace("RuntimeError: CUDA error: invalid resource handle", *STEP), "unknown"),
    Case("NVSwitch without its manager", trace("RuntimeError: CUDA error: system not yet initialized", *STEP), "gpu-software"),
    Case("the Hub's storage", trace("RuntimeError: Data processing error: CAS service error : IO Error: Timer expired (os error 62)", "main"), "hub-access"),
    Case("a download by the package that failed", trace("TimeoutError: The read operation timed out", "main").replace("/home/ann/train.py", f"{SITE}/huggingface_hub/file_download.py"), "hub-access"),
)  # fmt: skip
SAVED = (
    Case("weights that share memory", trace("RuntimeError: \n    Some tensors share memory, this will lead to duplicate memory on disk", "main", "save"), "checkpoint-io"),
    Case("an object that cannot be written", trace("TypeError: unhashable type: 'Params'", "main", "torch-save"), "checkpoint-io"),
    Case("a chain without headers", "KeyError: <code object accumulate>\n\nDuring handling of the above exception, another exception occurred:\n\ntorch._dynamo.exc.Unsupported: generator\n", "compile-failed"),
    Case("an exception of a module of exceptions", trace("torch._dynamo.exc.Unsupported: Observed exception", *STEP), "compile-failed"),
    Case("a key that the schema of Hydra lacks", "Key 'period' not in 'CheckpointConf'\n    full_key: checkpoint.period\n", "bad-arguments"),
    Case("a fault in the words of ksh", "./train.sh: line 3: 12001 Memory fault(coredump) python train.py\n", "unknown"),
)  # fmt: skip
FORWARDED = (
    Case("the watchdog forwards a kernel's error", "[rank1]:[E410 01:50:33.88 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0 Rank 1] Process group watchdog thread terminated with exception: CUDA error: unspecified launch failure\n", "illegal-access"),
    Case("the watchdog forwards a time-out", "[rank2]:[E131 16:15:16.73 ProcessGroupNCCL.cpp:1595] [PG ID 0 Rank 2] Process group watchdog thread terminated with exception: [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)\n", "collective-timeout"),
    Case("frames that are links", f"TypeError                                 Traceback (most recent call last)\n[{SITE}/transformers/trainer_callback.py](https://localhost:8080/#) in call_event(self, event)\n    556 \nTypeError: Card.on_init_end() missing 1 required positional argument: 'trainer'\n", "missing-package"),
    Case("a library of another CUDA", trace("RuntimeError: Library cublas64_11.dll is not found or cannot be loaded", "main"), "gpu-software"),
    Case("a package that decodes", trace("ImportError: To support decoding audio data, please install 'torchcodec'.", "main"), "missing-package"),
    Case("a hub without a token", trace("requests.exceptions.HTTPError: Authentication token does not exist. Please login first.", "main"), "hub-access"),
)  # fmt: skip
REFUSED = (
    Case("nothing for the loss scaler", trace("AssertionError: No inf checks were recorded for this optimizer.", *STEP), "program-error"),
    Case("two settings", trace("ValueError: Packing is not supported with streaming datasets", "main"), "bad-arguments"),
    Case("a check of the configuration", trace("ValueError: gptq needs a base of 4 bits", "main").replace("<module>", "validate_config"), "bad-arguments"),
    Case("layers that adapters do not know", trace("ValueError: Target module QuantLinear() is not supported. Only these are: `torch.nn.Linear`", "main"), "bad-arguments"),
    Case("weights that were not loaded", trace("NotImplementedError: Cannot copy out of meta tensor; no data!", "main", "place"), "bad-arguments"),
    Case("a class of peft", trace("TypeError: LoraConfig.__init__() got an unexpected keyword argument 'use_x'", "main"), "bad-arguments"),
)  # fmt: skip
CASES = (
    *RELEASES,
    *FILES,
    *USAGE,
    *LAUNCHED,
    *RESUMED,
    *SAMPLES,
    *PARALLEL,
    *DEVICE,
    *PROCESSES,
    *ENDED,
    *SAVED,
    *FORWARDED,
    *REFUSED,
)
FIRST_REMEDIES = {
    "a package calls another with an argument too many": "bring transformers to releases",
    "a name that the release does not have": "bring trl to releases",
    "a program checks a version": "bring peft to releases",
    "generated code asks for what is not there": "bring unsloth to releases",
    "a class lost a method": "bring the packages of the traceback",
    "an optional package": "the name comes from",
    "compiled code of a package": "reinstall apex",
    "the wrapper is asked": "unwrap_model",
    "a batch beyond Arrow's 2 GiB": "writer_batch_size",
    "the Hub's token may not write": "log in",
    "a host's name before the error": "device_map",
    "processes do not divide": "divide evenly",
    "recomputed values differ, in an actor of Ray": "the same both times",
    "DDP's reducer": "find_unused",
    "a card that is not there": "make the GPU visible",
    "no optimizer in the checkpoint": "optimizer anew",
    "a sample of another type": "columns",
    "cuBLAS refuses a call": "CUDA libraries",
    "an object is too large for a pipe": "top level",
    "no more threads": "ulimit -u",
    "a broken image in a worker": "record that is named",
    "the loader ends early": "filters of the data set",
    "DataParallel": "one GPU",
    "another encoding": "PYTHONUTF8",
    "InfiniBand": "NCCL_DEBUG",
    "ROCm without code for the card": "built for this GPU",
    "another call to the card": "CUDA_LAUNCH_BLOCKING",
    "NVSwitch without its manager": "fabric manager",
    "nothing for the loss scaler": "gradients",
    "weights that share memory": "save_safetensors",
    "a hub without a token": "log in",
    "frames that are links": "bring transformers to releases",
    "an object that cannot be written": "tensors, numbers and text",
    "two settings": "take one of the settings",
    "layers that adapters do not know": "layers in target_modules",
    "weights that were not loaded": "device_map",
    "a class of peft": "bring peft to releases",
}
HEALTHY = (
    Case("a version in a warning", "UserWarning: The version of xformers is not compatible with this GPU, using sdpa\n" + HEALTHY_START + HEALTHY_END),
    Case("a missing name was caught", f"WARNING: could not patch {SITE}/trl/x.py: AttributeError: module 'trl' has no attribute 'y', skipping\n" + HEALTHY_START + HEALTHY_END),
    Case("the scale is halved", "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n" + HEALTHY_START + HEALTHY_END),
    Case("a process that ended well", "Process finished with exit code 0\n" + HEALTHY_START + HEALTHY_END),
    Case("/dev/shm is small", "WARNING: The object store is using /tmp because /dev/shm has only 67108864 bytes available\n" + HEALTHY_START + HEALTHY_END),
    Case("a card of the network was skipped", "n1:12:12 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.9 with status=12 (retried)\n" + HEALTHY_START + HEALTHY_END),
    Case("a signal was received", "received signal 10: saving a checkpoint\n" + HEALTHY_START + HEALTHY_END),
    Case("a wheel was not built", "ERROR: Failed building wheel for apex\n" + HEALTHY_START + HEALTHY_END),
    Case("a task of another step", "srun: error: node7: task 3: Exited with exit code 1, restarting\n" + HEALTHY_START + HEALTHY_END),
    Case("MPI is initialised", "MPI_Init_thread: provided 3\n" + HEALTHY_START + HEALTHY_END),
)  # fmt: skip
