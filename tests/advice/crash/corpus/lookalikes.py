"""Outputs of trainings that went well and yet hold the words of a crash."""

# ruff: noqa: E501  (one form a line reads better than a form broken over lines)

from __future__ import annotations

from tests.advice.crash.corpus.case import HEALTHY_END, HEALTHY_START, Case, bar, trace
from tests.advice.crash.corpus.memory import CUDA_20, CUDA_27, CUDA_113

STEP = ("main", "train", "loop", "step")
CAUGHT = ("launch", "train", "step")


def within(*middle: str) -> str:
    """A healthy output with `middle` in its middle."""
    return HEALTHY_START + "\n".join(middle) + "\n" + HEALTHY_END


QUIET = (
    Case("empty", ""),
    Case("blank", "\n\n   \n"),
    Case("plain", HEALTHY_START + HEALTHY_END),
    Case("still running", HEALTHY_START + bar(31, 900)),
    Case("bars only", "".join(bar(n, 900) for n in range(900))),
    Case("not text", "\x00\x01\ufffd\ufffd\x7f" * 40),
    Case("a start and nothing more", "Loading weights: 100%|████| 290/290 [00:01<00:00, 200.1it/s]\n"),
    Case("interrupted by hand", HEALTHY_START + trace("KeyboardInterrupt", *STEP)),
    Case("interrupted under torchrun", HEALTHY_START + trace("KeyboardInterrupt", *STEP) + "\n" + trace("KeyboardInterrupt", "main")),
)  # fmt: skip
SENTENCES = (
    "To avoid CUDA out of memory errors, lower per_device_train_batch_size.",
    "INFO: no out of memory so far, peak 18.2 GiB of 24 GiB",
    "Tip: RuntimeError: CUDA out of memory means that the batch is too large",
    "  RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB   <- you may see this, then halve the batch",
    "# If you get MemoryError here, use streaming=True",
    "Memory check passed: would need 7.1 GiB, no OOM expected",
    "OOM guard enabled (max_split_size_mb=128)",
    "WARNING:root:CUDA out of memory was hit in the profiler run, using the next smaller size",
    "[WARNING|trainer.py:812] 2026-03-01 10:00:00,100 >> Evaluation may run out of memory with eval_accumulation_steps unset",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True is set against fragmentation (out of memory)",
    "2026-03-01 10:00:01,001 - INFO - oom_kill counter of the cgroup: 0",
    "Killed 3 stale workers from the last run",
    "The process was killed last time; resuming from checkpoint-500",
    "checkpoint-500 is incomplete, removing it and resuming from checkpoint-400",
    "/opt/env/torch/utils/data/dataloader.py:627: UserWarning: This DataLoader will create 8 worker processes in total. Our suggested max number of worker in current system is 2",
    "/opt/env/torch/optim/lr_scheduler.py:143: UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`.",
    "FutureWarning: `torch.cuda.amp.GradScaler(args...)` is deprecated.",
    "flash_attn is not installed. Using eager attention instead.",
    "Flash Attention is not available on this device, falling back to SDPA",
    "`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`...",
    "Could not load bitsandbytes native library; 8-bit optimizers are disabled",
    "[2026-03-01 10:00:00,000] [WARNING] [real_accelerator.py:162:get_accelerator] Setting accelerator to CPU. If you have GPU or other accelerator, we were unable to detect it.",
    "[W301 10:00:00.1 CUDAAllocatorConfig.h:28] Warning: expandable_segments not supported on this platform (function operator())",
    "NCCL WARN NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
    "NCCL INFO Bootstrap : Using eth0; timeouts are 1800000 ms",
    "torch._dynamo hit config.recompile_limit (8); falling back to eager for this frame",
    "W0301 10:00:00.000000 71 torch/_dynamo/convert_frame.py:844] [0/8] torch._dynamo hit config.cache_size_limit (8)",
    "skipping step 12: gradient overflow, reducing loss scale to 32768",
    "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
    "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 16384.0",
    "tensor statistics: min -3.1 max 4.0 nan 0 inf 0",
    "num_nan_batches=0 loss_is_finite=True",
    "sample 12: 'RuntimeError: CUDA error: device-side assert triggered' label=stackoverflow",
    "{\"text\": \"Traceback (most recent call last):\\n  File a.py\\nMemoryError\", \"label\": 3}",
    "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...",
    "Disk: 120 GB free of 500 GB; No space left warnings are off",
    "wandb: ERROR Failed to sample metrics: Not Supported",
    "wandb: WARNING Symlinked 0 file into the W&B run directory, call wandb.save again to sync new files.",
    "dmesg: Out of memory: Killed process 881 (chrome) total-vm:9811204kB",
    "ECC errors: 0 corrected, 0 uncorrectable; Xid: none",
    "model has 0 missing keys, 2 unexpected keys",
    "Error rate on the dev set: 0.12",
    "error: 0.031 mse: 0.002",
    "exit code of the warm-up job: 0",
    "nan_policy=propagate, assert_finite=False",
    "The following columns don't have a corresponding argument in `BertModel.forward` and have been ignored: text.",
    "ValueError and KeyError are counted by the data filter: 3 and 0 so far",
)  # fmt: skip
MENTIONS = (
    *(Case(f"in the middle: {text[:60]}", within(text)) for text in SENTENCES),
    *(Case(f"at the end: {text[:60]}", HEALTHY_START + HEALTHY_END + text) for text in SENTENCES),
    *(Case(f"newest line: {text[:60]}", HEALTHY_START + bar(40, 900) + "\n" + text) for text in SENTENCES),
    *(Case(f"only line: {text[:60]}", text) for text in SENTENCES),
)
SURVIVED = (
    Case("import while shutting down", HEALTHY_START + HEALTHY_END + "Exception ignored in: <function Pool.__del__ at 0x7f>\n" + trace("ImportError: sys.meta_path is None, Python is likely shutting down", "loader")),
    Case("a tracker's thread dies at the end", HEALTHY_START + HEALTHY_END + "Exception in thread ChkStopThr:\n" + trace("BrokenPipeError: [Errno 32] Broken pipe", "fetch")),
    Case("ended by a signal that asks", HEALTHY_START + trace("torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15", "main")),
    Case("interrupted by hand, the workers echo it", HEALTHY_START + trace("KeyboardInterrupt", *STEP) + "\n" + trace("RuntimeError: DataLoader worker (pid 7) is killed by signal: Interrupt. ", "main", "loader")),
    Case("auto_find_batch_size found one", HEALTHY_START + bar(0, 500) + "\nout of memory, trying batch size 7\n" + bar(0, 572) + bar(120, 572) + bar(572, 572) + "\n" + HEALTHY_END),
    Case("caught, then smaller", HEALTHY_START + trace(CUDA_20, *CAUGHT) + "\nReducing batch size to 8 and retrying\n" + bar(0, 900) + bar(300, 900) + "\n" + HEALTHY_END),
    Case("printed by an except branch", HEALTHY_START + CUDA_113 + "\nbatch of 64 does not fit, trying batch 32\n" + HEALTHY_END),
    Case("batch finder of a script", HEALTHY_START + "\n".join(f"{CUDA_113}\nretrying with batch size {size}" for size in (64, 32)) + "\n" + HEALTHY_END),
    Case("a logger told of it", within("ERROR:trainer:batch skipped", *trace(CUDA_27, *CAUGHT).split("\n"), "skipping this batch")),
    Case("optional import failed", trace("ImportError: cannot import name 'fused_layer_norm' from 'apex'", "launch", "forward") + "\n" + HEALTHY_START + HEALTHY_END),
    Case("optional module missing", trace("ModuleNotFoundError: No module named 'apex'", "launch") + "\nfalling back to native layers\n" + HEALTHY_START + HEALTHY_END),
    Case("compile fell back", HEALTHY_START + trace("torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nAssertionError", "launch", "dynamo") + "\nfalling back to eager\n" + HEALTHY_END),
    Case("ignored in a destructor", HEALTHY_START + "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>\n"
         + trace("AssertionError: can only test a child process", "loader") + "\n" + HEALTHY_END),
    Case("ignored in a destructor, at the very end", HEALTHY_START + HEALTHY_END + "Exception ignored in: <Finalize object, dead>\n" + trace("OSError: [Errno 9] Bad file descriptor", "loader")),
    Case("logging error", within("--- Logging error ---", *trace("UnicodeEncodeError: 'ascii' codec can't encode character", "launch").split("\n"))),
    Case("download retried", HEALTHY_START + trace("requests.exceptions.ConnectionError: Connection reset by peer", "launch", "pretrained") + "\nRetrying in 1s [Retry 1/5].\n" + HEALTHY_END),
    Case("connection lost by the tracker", within("wandb: Network error (ConnectionError), entering retry loop.")),
    Case("first steps of a loss scaler", "{'loss': 2.1, 'grad_norm': inf, 'epoch': 0.1}\n{'loss': 2.0, 'grad_norm': nan, 'epoch': 0.2}\n{'loss': 1.7, 'grad_norm': 3.1, 'epoch': 0.3}\n"),
    Case("nan in a metric that is no loss", HEALTHY_START + "{'eval_precision': nan, 'eval_loss': 0.4}\n" + HEALTHY_END),
    Case("thread of a tracker died", HEALTHY_START + "Exception in thread NetStatThr:\n" + trace("BrokenPipeError: [Errno 32] Broken pipe", "launch") + "\n" + HEALTHY_END),
    Case("training done, interpreter grumbles", HEALTHY_START + HEALTHY_END + "[rank0]:[W301 10:00:00.1 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.\n"),
    Case("leaked semaphores", HEALTHY_START + HEALTHY_END + "/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 6 leaked semaphore objects to clean up at shutdown\n"),
    Case("documentation printed first", "Common problems\n===============\nRuntimeError: CUDA out of memory\n    lower the batch size\nMemoryError\n    stream the data\n\n" + HEALTHY_START + HEALTHY_END),
    Case("help text", "usage: train.py [-h] [--lr LR]\n\noptions:\n  -h, --help  show this help message and exit\n  --lr LR     learning rate; too large gives nan loss\n"),
    Case("unit tests of the data", "test_batch ... ok\ntest_out_of_memory_is_caught ... ok\n\nRan 12 tests in 0.3s\n\nOK\n" + HEALTHY_START + HEALTHY_END),
)  # fmt: skip
CASES = (*QUIET, *MENTIONS, *SURVIVED)
