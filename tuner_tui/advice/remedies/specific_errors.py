"""Remedies for errors with one clear cause, such as a taken port, a renamed argument, a missing package."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.gpu import DEBUG_KERNELS, RESET_CARD
from tuner_tui.advice.remedies.training_loop import CHECK_INDEXES, CORRECT_COMMAND, DOWNLOAD_FIRST, WITHOUT_WORKERS
from tuner_tui.advice.situation import Situation
from tuner_tui.settings.argv import remove_options
from tuner_tui.settings.job import CommandJob

PYTORCH_INSTALL = "PyTorch: get started, previous versions"
HUB = "huggingface_hub: authentication"
ACCELERATE_FSDP = "accelerate: FSDP plugin"

VISIBLE_DRIVER = Remedy(
    title="make the GPU visible: driver, container, CUDA_VISIBLE_DEVICES",
    why="`nvidia-smi` must list it in the same shell; a container needs `--gpus all`, and an empty "
    "CUDA_VISIBLE_DEVICES hides every GPU",
    source="NVIDIA container toolkit",
)
NCCL_NETWORK = Remedy(
    title="look at NCCL's own warning: NCCL_DEBUG=INFO",
    why="it names the call that failed: the wrong interface (NCCL_SOCKET_IFNAME), a firewall between nodes, a "
    "container with little /dev/shm (`--shm-size=8g`), or InfiniBand that does not work (NCCL_IB_DISABLE=1)",
    source="NCCL: troubleshooting",
)

REMEDIES: Mapping[str, Remedy] = {
    "driver": Remedy(
        title="update the NVIDIA driver, or install a torch for an older CUDA",
        why="`nvidia-smi` shows the newest CUDA that the driver runs; torch's must not be newer: `pip install torch "
        "--index-url https://download.pytorch.org/whl/cu118` for an old one. After an update without a reboot, driver "
        "and kernel module differ: reboot",
        source=PYTORCH_INSTALL,
    ),
    "no-driver": VISIBLE_DRIVER,
    "torch-build": Remedy(
        title="install a torch that was built for this GPU",
        why="`torch.cuda.get_arch_list()` must name the GPU's sm_ number: Blackwell (sm_100, sm_120) needs torch 2.7 "
        "with cu128, Hopper cu118; builds for CUDA 13 have no code below Turing (sm_75). Rebuild kernels of other "
        "packages (flash-attn, bitsandbytes, your own) with TORCH_CUDA_ARCH_LIST",
        source=PYTORCH_INSTALL,
    ),
    "torch-cpu": Remedy(
        title="install a torch with CUDA, or train on the CPU",
        why="`python -c 'import torch; print(torch.version.cuda)'` says None for a build without: "
        "`pip install torch --index-url https://download.pytorch.org/whl/cu128`",
        source=PYTORCH_INSTALL,
    ),
    "extension": Remedy(
        title="give the build what it needs, and clear ~/.cache/torch_extensions",
        why="nvcc of torch's CUDA version (CUDA_HOME), a compiler that this nvcc takes, and ninja; MAX_JOBS=4 where "
        "memory runs out. DeepSpeed: `ds_report` names what is missing; `optim: adamw_torch` needs no build",
        source="DeepSpeed: installation details; PyTorch: cpp_extension",
    ),
    "card": RESET_CARD,
    "cuda-libraries": Remedy(
        title="let torch load the CUDA libraries it came with",
        why="unset LD_LIBRARY_PATH, or take another CUDA's folders out of it; reinstall torch where its nvidia-* "
        "packages are missing. Another package may need another release: cublas64_11.dll is of CUDA 11",
        source="PyTorch: CUDA wheels bring cuDNN, cuBLAS and NCCL",
    ),
    "visible-devices": VISIBLE_DRIVER,
    "hub-login": Remedy(
        title="log in to the Hub and accept the model's terms",
        why="open its page on huggingface.co with your account, then `hf auth login`, or HF_TOKEN in the environment "
        "of the training, on each node",
        source=HUB,
    ),
    "hub-name": Remedy(
        title="correct the name, or log in where it is private",
        why="the Hub has no such model, data set, file or revision, or does not show it to this account; a local path "
        "must be a folder that holds config.json",
        source=HUB,
    ),
    "wandb": Remedy(
        title="report to nothing, or log in to Weights & Biases",
        why="`--report_to none` or WANDB_MODE=offline trains without; `wandb login` or WANDB_API_KEY logs in",
        source="transformers: report_to",
    ),
    "server": Remedy(
        title="try again, or download beforehand",
        why="the server or the way to it failed: a proxy, a rate limit, a time-out (HF_HUB_DOWNLOAD_TIMEOUT)",
        source="huggingface_hub: environment variables",
    ),
    "pad-token": Remedy(
        title="give the tokenizer a padding token",
        why="`tokenizer.pad_token = tokenizer.eos_token` after it is loaded, and `model.config.pad_token_id` with it",
        effect="the training starts",
        source="transformers: padding and truncation",
    ),
    "chat-template": Remedy(
        title="give the tokenizer a chat template",
        why="take the instruct model's tokenizer, set `tokenizer.chat_template`, or format the samples as plain text",
        source="transformers: chat templates",
    ),
    "transformers-age": Remedy(
        title="update transformers",
        why="`pip install -U transformers`: the release notes name the one that brought the model; check its name too",
        source="transformers: releases",
    ),
    "tokenizer-file": Remedy(
        title="update transformers and tokenizers; install sentencepiece and tiktoken",
        why="tokenizer.json was written by a newer release, or the slow tokenizer needs its package",
        source="transformers: tokenizers",
    ),
    "numpy": Remedy(
        title="bring the package and NumPy together",
        why="update the package that fails; where there is no newer one, `pip install 'numpy<2'`",
        source="NumPy 2.0: migration guide",
    ),
    "protobuf": Remedy(
        title="update the package that fails, or install an older protobuf",
        why="`pip install 'protobuf<=3.20.3'`, or `'protobuf<5'`, as the message says",
        source="protobuf: Python updates",
    ),
    "zero3-order": Remedy(
        title="run the same modules in the same order in each step, or use ZeRO stage 2",
        why="stage 3 fetches weights in the order of the first step: experts, branches and generation within a step "
        "break it; `stage3_prefetch_bucket_size: 0`, or `set_z3_leaf_modules` for a mixture of experts",
        source="DeepSpeed: ZeRO-3",
    ),
    "openmp": Remedy(
        title="keep one OpenMP runtime: install torch, NumPy and MKL from one source",
        why="conda's and pip's packages each bring one; KMP_DUPLICATE_LIB_OK=TRUE lets both run, which Intel does not "
        "support",
        source="the program's own message",
    ),
    "distributed-build": Remedy(
        title="use the gloo backend, or a torch that was built with the part that is missing",
        why="on Windows and in CPU builds there is no NCCL: `init_process_group(backend='gloo')`; without libuv "
        "USE_LIBUV=0",
        source="PyTorch: torch.distributed, backends",
    ),
    "remote-code": Remedy(
        title="allow the repository's own code, if you trust it",
        why="`trust_remote_code=True`, best with a pinned `revision`; models that transformers knows need none",
        source="transformers: custom models",
    ),
    "dataset-script": Remedy(
        title="take a version of the data set without script",
        why="most have one converted to Parquet (`revision='refs/convert/parquet'`); else `pip install 'datasets<4'`",
        source="datasets 4.0: release notes",
    ),
    "device-map": Remedy(
        title="take device_map and low_cpu_mem_usage out",
        why="one process for each GPU places the model itself; with bitsandbytes `device_map={'': local_rank}`; "
        "DeepSpeed ZeRO-3 and FSDP split it themselves",
        source="accelerate: big model inference; transformers: DeepSpeed",
    ),
    "quantized-base": Remedy(
        title="train adapters on the quantized model",
        why="`get_peft_model(prepare_model_for_kbit_training(model), LoraConfig(...))`; to train every weight, load it "
        "without quantization; its device is set at loading",
        source="peft: quantization",
    ),
    "model-does-not-fit": Remedy(
        title="load the weights in 4 bits or 16 bits",
        why="the GPU holds 2 bytes a parameter in bf16, about 0.6 in 4 bits; those on the CPU or the disk are not "
        "trained",
        source="transformers: bitsandbytes",
    ),
    "target-modules": Remedy(
        title="target_modules: all-linear",
        why="or the names that `model.named_modules()` shows: they differ between families (`q_proj`, "
        "`query_key_value`, `c_attn`)",
        source="peft: LoraConfig",
    ),
    "other-model": Remedy(
        title="build the model as it was when the checkpoint was saved",
        why="the same number of labels, vocabulary (`resize_token_embeddings`), adapter rank and targets; "
        "`ignore_mismatched_sizes=True` where a new head is wanted",
        source="transformers: from_pretrained",
    ),
    "other-optimizer": Remedy(
        title="resume with the same trained parameters, or start the optimizer anew",
        why="freezing, adapters or parameter groups changed since; without optimizer.pt the weights alone are resumed",
        source="PyTorch: Optimizer.load_state_dict",
    ),
    "other-world": Remedy(
        title="resume on as many processes, or convert the checkpoint",
        why="DeepSpeed's universal checkpoint or `zero_to_fp32.py` makes one that any number reads",
        source="DeepSpeed: universal checkpointing",
    ),
    "map-location": Remedy(
        title="map_location='cpu' where the checkpoint is loaded",
        why="its tensors were saved on a device that is not here",
        source="PyTorch: torch.load",
    ),
    "weights-only": Remedy(
        title="torch.load(..., weights_only=False) for a file you trust",
        why="or allow its classes by `torch.serialization.add_safe_globals`; newer transformers and accelerate do so",
        source="PyTorch 2.6: torch.load",
    ),
    "fsdp-dtype": Remedy(
        title="load everything in one dtype",
        why="`dtype` of the model and of adapters alike (`model.to(torch.bfloat16)`); with QLoRA "
        "`bnb_4bit_quant_storage` must be that dtype, too",
        source=f"{ACCELERATE_FSDP}, peft: FSDP with QLoRA",
    ),
    "fsdp-requires-grad": Remedy(
        title="fsdp_use_orig_params: true, or peft's wrap policy",
        why="`fsdp_auto_wrap_policy(model)` of peft wraps adapters apart from the frozen weights",
        source=ACCELERATE_FSDP,
    ),
    "deepspeed-batch": Remedy(
        title='write "auto" for the batch sizes in the DeepSpeed file',
        why="train_batch_size must be micro batch × accumulation × processes; a product that counts one process says "
        "that the launcher started one",
        source="transformers: DeepSpeed",
    ),
    "map-processes": Remedy(
        title="prepare the data with fewer processes (num_proc 1 shows the error)",
        why="each has a copy of what it works on; one that dies without a word was mostly killed for memory",
        source="datasets: map",
    ),
    "open-files": Remedy(
        title="raise the limit of open files: ulimit -n 65535",
        why="each batch in flight holds a descriptor; `torch.multiprocessing.set_sharing_strategy('file_system')` "
        "needs none",
        source="PyTorch: multiprocessing, sharing strategies",
    ),
    "cuda-in-worker": Remedy(
        title="keep CUDA out of the dataset and the collator",
        why="workers hand over CPU tensors; move the batch to the GPU in the training loop, or use `spawn`",
        source="PyTorch: CUDA in multiprocessing",
    ),
    "main-guard": Remedy(
        title="put the start of the program under `if __name__ == '__main__':`",
        why="a process that is spawned imports the script again",
        source="PyTorch: Windows FAQ",
    ),
    "pickle": Remedy(
        title="move the function to the top level of a module",
        why="spawned processes receive it by pickle, which supports neither lambdas nor local functions, nor "
        "open files or connections in the dataset",
        source="Python: what can be pickled",
    ),
    "nccl-network": NCCL_NETWORK,
    "nccl-debug": NCCL_NETWORK,
    "devices": Remedy(
        title="bring batch, model and loss weights to one device",
        why="`.to(model.device)` for tensors that the program makes itself; a model spread by `device_map='auto'` "
        "takes its inputs on the first GPU",
        source="PyTorch: tensor attributes, device",
    ),
    "no-gradient": Remedy(
        title="let gradients reach the adapters: enable_input_require_grads()",
        why="with checkpointing and frozen embeddings the inputs need gradients, or "
        "`gradient_checkpointing_kwargs={'use_reentrant': False}`; else no parameter is trained (`requires_grad`), or "
        "the loss was detached",
        source="transformers: gradient checkpointing; peft: troubleshooting",
    ),
    "unused-parameters": Remedy(
        title="ddp_find_unused_parameters: true, or leave out what is not used",
        why="a parameter without a gradient keeps the others waiting; with checkpointing "
        "`gradient_checkpointing_kwargs={'use_reentrant': False}` and unused parameters false",
        source="PyTorch: DistributedDataParallel",
    ),
    "graph": Remedy(
        title="detach what is carried from step to step",
        why="`torch.autograd.set_detect_anomaly(True)` shows the line; write `x = x + y` for `x += y` there",
        source="PyTorch: autograd mechanics",
    ),
    "shapes": Remedy(
        title="compare the shapes that the message names",
        why="number of labels, padding to one length in the collator, image or sequence length against the model's; a "
        "batch of two samples on the CPU shows the line",
        source="the program's own message",
    ),
    "indexes": CHECK_INDEXES,
    "columns": Remedy(
        title="compare the data set's columns with what the model takes",
        why="`labels` must be among them, samples tokenized, and `remove_unused_columns=False` where the collator "
        "makes them; print one sample",
        source="transformers: data collator",
    ),
    "data-file": Remedy(
        title="look at the record that is named",
        why="all records need the same fields and types; one broken line, an empty file or another encoding stops the "
        "reader. Delete the cache folder after a change",
        source="datasets: loading",
    ),
    "shared-weights": Remedy(
        title="save without safetensors: save_safetensors=False, or safe_serialization=False",
        why="or name the weights that belong together in the model's `_tied_weights_keys`, or copy one with `.clone()` "
        "before saving; `safetensors.torch.save_model` writes each only once. transformers 5 only knows the latter two",
        source="safetensors: torch shared tensors",
    ),
    "cannot-save": Remedy(
        title="save what can be written: tensors, numbers and text",
        why="weights of a sharded, offloaded or compiled model are gathered first (`accelerator.get_state_dict`, "
        "`unwrap_model`); lambdas, locks and open files cannot be pickled",
        source="PyTorch: serialization semantics; accelerate: get_state_dict",
    ),
    "together": Remedy(
        title="take one of the settings that the message names out",
        why="the package that refuses them does not support both at once in this release; a newer one may",
        source="the program's own message",
    ),
    "layer-kind": Remedy(
        title="name layers in target_modules that peft can adapt, or install what the quantized ones need",
        why="linear, embedding and convolution layers, not whole blocks; layers of GPTQ, AWQ or bitsandbytes are only "
        "known where that package is installed, in a release that fits peft's",
        source="peft: LoRA, supported layers",
    ),
    "data-parallel": Remedy(
        title="use one process for each GPU (torchrun), or one GPU: CUDA_VISIBLE_DEVICES=0",
        why="started without a launcher, the Trainer copies the model to all GPUs by torch.nn.DataParallel; the copies "
        "have no parameters of their own",
        source="PyTorch: DataParallel",
    ),
    "encoding": Remedy(
        title="read text as UTF-8: PYTHONUTF8=1",
        why="Python on Windows takes the system's encoding (gbk, cp1252) unless the program opens the file with "
        "`encoding='utf-8'`; if the file itself is not UTF-8, convert it",
        source="Python: UTF-8 mode",
    ),
    "process-limit": Remedy(
        title="raise the limit of processes and threads: ulimit -u, or the container's pids limit",
        why="each rank starts loader workers, and each of them a thread for each core: OMP_NUM_THREADS=1 and fewer "
        "workers need far fewer",
        source="pthread_create(3): EAGAIN",
    ),
    "fabric": Remedy(
        title="start the fabric manager: systemctl start nvidia-fabricmanager",
        why="GPUs behind NVSwitch (HGX, DGX) cannot be used without it; its version must be the driver's",
        source="NVIDIA: Fabric Manager user guide",
    ),
    "busy-card": Remedy(
        title="end the other process on the GPU, or leave exclusive mode: nvidia-smi -c DEFAULT",
        why="`nvidia-smi` shows its processes and compute mode; in exclusive mode one process at a time may use it",
        source="NVIDIA: nvidia-smi, compute modes",
    ),
    "display-watchdog": Remedy(
        title="train on a GPU without a display, or raise the watchdog's limit (TdrDelay on Windows)",
        why="a GPU that also drives the screen is not allowed kernels of more than a few seconds",
        source="CUDA programming guide: run time limit on kernels",
    ),
    "gpu-call": DEBUG_KERNELS,
    "divisible": Remedy(
        title="choose sizes that divide evenly",
        why="the number of processes by tensor × pipeline × context parallelism, attention heads and vocabulary by "
        "tensor parallelism, the global batch by micro batch × processes, the sequence by its parallelism",
        source="Megatron Core: parallelism guide",
    ),
    "recomputed": Remedy(
        title="make the forward pass the same both times, or use_reentrant: true",
        why="`gradient_checkpointing_kwargs={'use_reentrant': True}` skips the check; caches (`use_cache=False`), "
        "randomness, autocast and adapters that are switched on the way make the two passes differ",
        source="PyTorch: torch.utils.checkpoint",
    ),
    "arrow-size": Remedy(
        title="write the dataset in smaller pieces: writer_batch_size=100",
        why="`map(..., batched=True, batch_size=100, writer_batch_size=100)`, files of less than 2 GB, or a feature of "
        "type `large_string`; one sample of that size is to be split",
        source="datasets: process; Apache Arrow: variable-size layout",
    ),
    "wrapped-model": Remedy(
        title="ask the model inside: accelerator.unwrap_model(model), or model.module",
        why="DistributedDataParallel, DataParallel, DeepSpeed and torch.compile wrap the model; attributes such as "
        "`dtype` and `config` and methods such as `generate` belong to the model itself",
        source="PyTorch: DistributedDataParallel; accelerate: unwrap_model",
    ),
    "optional-package": Remedy(
        title="install the package that the name comes from",
        why="its import is skipped where it is not installed: `PeftModel` is peft's, `bnb` bitsandbytes', "
        "`init_empty_weights` and `PartialState` accelerate's. If it is installed, update both packages",
        source="the training interpreter",
    ),
    "no-samples": Remedy(
        title="look at the path and the filters of the data set",
        why="nothing was left: a wrong folder or split, or every sample was filtered out",
        source="PyTorch: RandomSampler",
    ),
    "permission": Remedy(
        title="name a folder that this user may write",
        why="output_dir, HF_HOME, TRITON_CACHE_DIR or TMPDIR; a container may run as another user",
        source="the program's own message",
    ),
}
"""The first remedy of each topic of the crash patterns, in place of the ladder of their cause."""
SECOND: Mapping[str, Remedy] = {
    "torch-cpu": VISIBLE_DRIVER,
    "visible-devices": CORRECT_COMMAND,
    "server": DOWNLOAD_FIRST,
    "cuda-in-worker": WITHOUT_WORKERS,
    "main-guard": WITHOUT_WORKERS,
    "pickle": WITHOUT_WORKERS,
}


def remedies_of_topic(topic: str) -> tuple[Remedy, ...]:
    """The remedies of a topic; empty where the ladder of its cause applies."""
    return tuple(table[topic] for table in (REMEDIES, SECOND) if topic in table)


# "held" and "may be looked at" are the words of older releases, in the folders of their runs.
HELD = re.compile(
    r"port (\d+) is (?:used|held) by (process \d+.*)|process (?:uses|that may be looked at holds) port (\d+)"
)
FREE = re.compile(r"port (\d+) is free")
TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
PORT_OPTIONS = ("master_port", "rdzv_endpoint")
NODE_OPTIONS = ("--nnodes", "--num_machines", "--num-machines")

FREE_PORT = Remedy(
    title="let the launcher choose a free port",
    why="`torchrun --standalone`, `accelerate launch --main_process_port 0`, or another `--master_port`",
    effect="both trainings run",
    source="PyTorch: torchrun, --standalone",
)
END_HOLDER = Remedy(
    title="end the process that uses the port",
    why="`ss -ltnp` lists the process of each port; a killed run may have left ranks behind",
    source="ss(8)",
)


def port_ladder(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """The command with a free port, ready to apply where it can be written; then the end of the holder."""
    said = "\n".join(situation.state.exited.evidence) if situation.state.exited is not None else ""
    held, free = HELD.search(said), FREE.search(said)
    taken = None if held is None else held[1] or held[3]
    holder = END_HOLDER if held is None or not held[2] else replace(END_HOLDER, why=f"{held[2]} uses port {taken}")
    command = None
    if isinstance(situation.job, CommandJob):
        command = command_with_free_port(situation.job.command, taken, None if free is None else free[1])
    if command is None:
        return (FREE_PORT, holder)
    return (replace(FREE_PORT, why=f"`tuner-tui run … -- {shlex.join(command)}`", command=command), holder)


def command_with_free_port(command: Sequence[str], taken: str | None, free: str | None) -> tuple[str, ...] | None:
    """`command` with the port `free` in place of `taken`, or with a launcher that chooses one.

    None where nothing in the command decides about the port, or several machines have to agree on it.
    """
    words = list(command)
    if any(_is_several(words, index) for index in range(len(words))):
        return None
    if taken is not None and free is not None:
        number = re.compile(rf"(?<!\d){taken}(?!\d)")
        if any(map(number.search, words)):
            return tuple(number.sub(free, word) for word in words)
    launcher = next((index for index, word in enumerate(words) if _is_torchrun(words, index)), None)
    if launcher is not None:
        kept = remove_options(words[launcher + 1 :], PORT_OPTIONS)
        return (*words[: launcher + 1], "--standalone", *kept)
    if any(PurePath(word).name == "accelerate" for word in words[:2]) and "launch" in words[:3]:
        at = words.index("launch") + 1
        return (*words[:at], "--main_process_port", "0", *remove_options(words[at:], ("main_process_port",)))
    return None


def _is_torchrun(words: Sequence[str], index: int) -> bool:
    return PurePath(words[index]).name == "torchrun" or (words[index] in TORCHRUN_MODULES and words[index - 1] == "-m")


def _is_several(words: Sequence[str], index: int) -> bool:
    """Whether the option at `index` asks for several machines."""
    name, equals, value = words[index].partition("=")
    value = value if equals else (words[index + 1] if index + 1 < len(words) else "")
    return name in NODE_OPTIONS and value not in ("1", "1:1")


UNKNOWN = (
    re.compile(r"(?:unexpected|invalid) keyword argument '(\w+)'"),
    re.compile(r"unrecognized arguments: (.+)"),
    re.compile(r"not used by the HfArgumentParser:\s*\[(.+?)\]"),
    re.compile(r"No such option:? '?(--[\w-]+)"),
    re.compile(r"has no attribute '(\w+)'"),
)
OPTION = re.compile(r"--([A-Za-z][\w-]*)|'(\w+)'|^(\w+)$")

RENAMED: Mapping[str, str] = {
    "evaluation_strategy": "eval_strategy (transformers 4.41 and newer)",
    "eval_strategy": "evaluation_strategy (transformers before 4.41)",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "no_cuda": "use_cpu",
    "use_cpu": "no_cuda (transformers before 4.34)",
    "warmup_ratio": "warmup_steps below 1, a share of all steps (transformers 5)",
    "group_by_length": "train_sampling_strategy=group_by_length (transformers 5.2 and newer)",
    "train_sampling_strategy": "group_by_length=True (transformers before 5.2)",
    "activation_checkpointing": "gradient_checkpointing (transformers before 5.23)",
    "gradient_checkpointing": "activation_checkpointing (transformers 5.23 and newer)",
    "adafactor": "optim=adafactor",
    "sharded_ddp": "fsdp",
    "push_to_hub_model_id": "hub_model_id",
    "push_to_hub_token": "hub_token",
    "include_inputs_for_metrics": "include_for_metrics=['inputs']",
    "dispatch_batches": "accelerator_config={'dispatch_batches': …}",
    "split_batches": "accelerator_config={'split_batches': …}",
    "tokenizer": "processing_class (transformers 4.46 and newer)",
    "processing_class": "tokenizer (before transformers 4.46 and trl 0.12)",
    "torch_dtype": "dtype (transformers 4.56 and newer)",
    "dtype": "torch_dtype (transformers before 4.56)",
    "use_auth_token": "token",
    "use_flash_attention_2": "attn_implementation=flash_attention_2",
    "load_in_4bit": "quantization_config=BitsAndBytesConfig(load_in_4bit=True)",
    "load_in_8bit": "quantization_config=BitsAndBytesConfig(load_in_8bit=True)",
    "resume_from_checkpoint": "ckpt_path of Trainer.fit (Lightning 2)",
    "max_seq_length": "max_length in SFTConfig (newer releases of trl)",
    "dataset_text_field": "SFTConfig instead of SFTTrainer (newer releases of trl)",
    "ignore_verifications": "verification_mode='no_checks'",
    "num_items_in_batch": "compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None) in your "
    "own trainer (transformers 4.46 and newer)",
}
"""The name or value to write in place of an argument."""
REMOVED: Mapping[str, str] = {
    "fp16_opt_level": "it belonged to NVIDIA Apex; fp16 or bf16 alone is enough",
    "half_precision_backend": "it chose NVIDIA Apex; fp16 or bf16 alone is enough",
    "fp16_backend": "it chose NVIDIA Apex; fp16 or bf16 alone is enough",
    "overwrite_output_dir": "an existing folder is reused; resume_from_checkpoint decides what is resumed",
    "save_safetensors": "checkpoints are always safetensors",
    "logging_dir": "use the environment variable TENSORBOARD_LOGGING_DIR",
    "use_mps_device": "an Apple GPU is used automatically",
    "jit_mode_eval": "use torch_compile",
    "use_ipex": "PyTorch itself supports these devices",
    "no_deprecation_warning": "transformers no longer has its own AdamW",
}
"""Arguments that were removed, and what happens without them."""


def unknown_argument(message: str) -> str | None:
    """The first argument of the message that was renamed or removed, else the first unknown one; None without one."""
    names: list[str] = []
    for pattern in UNKNOWN:
        for match in pattern.finditer(message):
            found = [next(filter(None, groups)).replace("-", "_") for groups in OPTION.findall(match[1])]
            names += found or [match[1]]
    known = [name for name in names if name in RENAMED or name in REMOVED]
    return next(iter(known or names), None)


def argument_ladder(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """The remedies for wrong arguments; `where` is the argument that the program does not know."""
    if where is None:
        return (CORRECT_COMMAND,)
    if where in RENAMED:
        title, why = (
            f"{where} → {RENAMED[where]}",
            "the argument was renamed; the installed release uses the other name",
        )
    elif where in REMOVED:
        title, why = f"remove {where}", f"the argument was removed: {REMOVED[where]}"
    else:
        return (CORRECT_COMMAND,)
    return (Remedy(title=title, why=why, effect="the training starts", source="the libraries' release notes"),)


def matching_releases(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """How to bring releases together; `where` is a renamed argument, or the packages that take part."""
    if where in RENAMED or where in REMOVED:
        return (*argument_ladder(situation, where), *matching_releases(situation, None))
    update = "" if where is None else f"`pip install -U {where.replace(',', '')}`, or "
    return (
        Remedy(
            title=f"bring {where or 'the packages of the traceback'} to releases that fit together",
            why=f"{update}the releases that the program's requirements name; then delete generated code "
            "(unsloth_compiled_cache). If what is called is your own, give it the signature that the caller expects",
            source="the training interpreter",
        ),
    )
