"""Remedies for the training itself: non-finite values, evaluation, checkpoints, padding, code of the loop."""

from __future__ import annotations

from collections.abc import Iterator

from tuner_tui.advice.finding import Remedy
from tuner_tui.advice.remedies.host import FEWER_WORKERS, NO_WORKERS_CHANGE, less_frequent_checkpoints
from tuner_tui.advice.situation import Situation
from tuner_tui.advice.thresholds import NOTES_3070_8BIT, NOTES_3090, NOTES_T4, NOTES_UTILISATION
from tuner_tui.core.units import format_share
from tuner_tui.settings.model import Settings

WARMUP = 0.06
LARGEST_RATE = 1.0
"""Learning rates above it diverge with every common optimizer."""
ADAM_RATE, SGD_RATE = 1e-3, 1e-2
"""Usual rates where the one in effect gives no hint; 1e-3 is the default of PyTorch's Adam."""


def non_finite(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """Wider precision first, then smaller steps."""
    settings = situation.settings
    if settings is None:
        return (LOWER_LEARNING_RATE, LOOK_AT_DATA)
    return (
        *wider_precision(situation, settings),
        *lower_learning_rate(situation, settings),
        *clipping(settings),
        *warmup(settings),
        LOOK_AT_DATA,
    )


def divergence(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """Smaller steps."""
    settings = situation.settings
    if settings is None:
        return (LOWER_LEARNING_RATE,)
    return (*lower_learning_rate(situation, settings), *clipping(settings), *warmup(settings))


def wider_precision(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """bf16 if supported, else fp32, in place of fp16."""
    if settings.precision == "fp16":
        wanted = "bf16" if situation.supports("bf16") else "fp32"
        yield Remedy(
            title=f"precision fp16 → {wanted}",
            why="fp16 overflows above 65504; bf16 has the range of fp32",
            change={"precision": wanted},
            effect="no overflow; " + ("the same speed" if wanted == "bf16" else "slower, more memory"),
            source=f"{NOTES_T4}, {NOTES_UTILISATION}",
        )


def lower_learning_rate(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    """Half the rate in effect, which may be one that the settings do not allow; a usual one in place of that."""
    in_effect = situation.state.in_effect.get("learning_rate")
    given = situation.chosen is None or "learning_rate" in situation.chosen
    rate = settings.learning_rate if given or not isinstance(in_effect, int | float) else float(in_effect)
    lower = float(f"{rate / 2:.3g}")
    if rate > LARGEST_RATE:
        lower = ADAM_RATE if "adam" in str(situation.state.in_effect.get("optimizer", "")).lower() else SGD_RATE
    yield Remedy(
        title=f"learning rate {rate:.3g} → {lower:.3g}",
        why="too large steps make the loss diverge",
        change={"learning_rate": lower},
        effect="smaller steps",
        source="common practice",
    )


def clipping(settings: Settings) -> Iterator[Remedy]:
    if settings.max_grad_norm == 0 or settings.max_grad_norm > 1:
        yield Remedy(
            title="clip gradients at norm 1",
            why="a single bad batch cannot ruin the weights",
            change={"max_grad_norm": 1.0},
            effect="limits the size of each step",
            source="transformers: max_grad_norm",
        )


def warmup(settings: Settings) -> Iterator[Remedy]:
    if settings.warmup_steps == 0:
        yield Remedy(
            title="warmup over 6 % of the steps",
            why="the first steps are the least stable, as the optimizer has no history",
            change={"warmup_steps": WARMUP},
            effect="a more stable start",
            source=NOTES_3070_8BIT,
        )


def worker_crash(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """No workers, to see the error; then fewer workers."""
    return (WITHOUT_WORKERS, FEWER_WORKERS)


def evaluation_share(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    settings = situation.settings
    return () if settings is None else (*larger_eval_batch(settings), *less_frequent_evaluation(settings))


def larger_eval_batch(settings: Settings) -> Iterator[Remedy]:
    wanted = 2 * settings.per_device_train_batch_size
    if settings.per_device_eval_batch_size < wanted:
        yield Remedy(
            title=f"eval batch {settings.per_device_eval_batch_size} → {wanted}",
            why="evaluation keeps no activations for a backward pass: twice the micro batch usually fits",
            change={"per_device_eval_batch_size": wanted},
            effect="fewer, larger evaluation steps",
            rests_on="as noted there; not measured here",
            source=f"{NOTES_T4}, {NOTES_3090}",
        )


def less_frequent_evaluation(settings: Settings) -> Iterator[Remedy]:
    if settings.eval_strategy == "steps" and settings.eval_steps:
        yield Remedy(
            title=f"evaluate every {settings.eval_steps} → {settings.eval_steps * 2} steps",
            why="half as many evaluations",
            change={"eval_steps": settings.eval_steps * 2},
            effect="half the time spent evaluating",
            rests_on="the measured share",
            source=NOTES_UTILISATION,
        )


def save_share(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    rarer = () if situation.settings is None else tuple(less_frequent_checkpoints(situation.settings))
    return (*rarer, FASTER_DISK)


def padding(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    part = situation.state.rates.padding_share
    return (
        Remedy(
            title="group samples of similar length",
            why="each batch is padded to its longest sample",
            change={"train_sampling_strategy": "group_by_length"},
            effect="" if part is None else f"saves at most {format_share(part)} of the computation",
            rests_on="the measured padding",
            source=NOTES_3090,
        ),
        PACKING,
    )


def loss_scale(situation: Situation, where: str | None) -> tuple[Remedy, ...]:
    """A loss computed over the whole step, else no accumulation."""
    settings = situation.settings
    return (COMPUTE_LOSS_FUNC,) if settings is None else (COMPUTE_LOSS_FUNC, *no_accumulation(settings))


def no_accumulation(settings: Settings) -> Iterator[Remedy]:
    micro, times = settings.per_device_train_batch_size, settings.gradient_accumulation_steps
    if times > 1:
        yield Remedy(
            title=f"micro batch {micro} → {micro * times}, accumulation {times} → 1",
            why="one batch per step needs no averaging; the effective batch stays",
            change={"per_device_train_batch_size": micro * times, "gradient_accumulation_steps": 1},
            effect=f"activation memory × {times}: it may not fit",
            rests_on="activations are proportional to the micro batch",
            source="transformers: Trainer.training_step",
        )


WITHOUT_WORKERS = Remedy(
    title="workers 0, to see the full error",
    why="errors show in full when the training process loads the batches itself",
    change=NO_WORKERS_CHANGE,
    effect="slower, but shows the full error",
    source="PyTorch: DataLoader",
)
LOWER_LEARNING_RATE = Remedy(
    title="halve the learning rate", why="too large steps make the loss diverge", source="common practice"
)
LOOK_AT_DATA = Remedy(
    title="check the batch it happened in",
    why="an empty sample, a label out of range or a division by zero in the loss gives nan",
    source="PyTorch: torch.autograd.set_detect_anomaly",
)
FASTER_DISK = Remedy(
    title="save to a faster disk",
    why="the training pauses while a checkpoint is written",
    source=NOTES_UTILISATION,
)
PACKING = Remedy(title="pack sequences", why="several samples in one sequence need no padding", source=NOTES_3090)
COMPUTE_LOSS_FUNC = Remedy(
    title="give the Trainer a compute_loss_func",
    why="`cross_entropy(logits, labels, reduction='sum') / num_items_in_batch` averages over the whole "
    "step; Adam hides the wrong factor, clipping and SGD do not",
    effect="loss and gradient as with one large batch",
    rests_on="measured with transformers 5.23: the gradient norm of BERT, RoBERTa, DistilBERT and GPT-2 classifiers",
    source="transformers: Trainer(compute_loss_func=…)",
)
CHECK_INDEXES = Remedy(
    title="check labels and token ids against the model",
    why="labels must be below num_labels, token ids below the vocabulary size; on the CPU the error shows the value",
    source="PyTorch: CUDA_LAUNCH_BLOCKING=1 shows the line",
)
PLAIN_KERNELS = Remedy(
    title="compile off, attention sdpa",
    why="third-party and generated kernels are the likeliest cause; CUDA_LAUNCH_BLOCKING=1 shows the line",
    change={"torch_compile": False, "attn_implementation": "sdpa"},
    effect="slower, but narrows down the cause",
    source="PyTorch: debugging CUDA errors",
)
FIRST_RANK = Remedy(
    title="find the process that stopped first",
    why="the others only waited for it; a slow evaluation or save on one rank needs a longer `ddp_timeout`",
    source="PyTorch: flight recorder (TORCH_FR_BUFFER_SIZE, TORCH_NCCL_TRACE_BUFFER_SIZE in older releases)",
)
CORRECT_COMMAND = Remedy(
    title="correct the command", why="the message names the argument, file or model", source="the program's own message"
)
WAIT_OR_STOP = Remedy(
    title="wait, or stop and resume from the newest checkpoint",
    why="a lock, a disk, the network or another rank does not respond",
    source="py-spy dump --pid PID shows where each thread waits",
)

GO_ONLINE = Remedy(
    title="allow the download",
    why="unset HF_HUB_OFFLINE, HF_DATASETS_OFFLINE and TRANSFORMERS_OFFLINE; behind a proxy, set HTTPS_PROXY",
    source="huggingface_hub: environment variables",
)
DOWNLOAD_FIRST = Remedy(
    title="download beforehand, or use a local path",
    why="run `hf download NAME` on a machine with network access and the same HF_HOME; a local folder needs no network",
    source="huggingface_hub: offline mode",
)
PASS_SETTINGS = Remedy(
    title="pass the settings another way",
    why="put {name} into the command where the value goes, or choose apply: hf-args, yaml or inject",
    source="the command as it was launched",
)
START_SMALL = Remedy(
    title="start with a small batch",
    why="`tuner-tui tune` finds the largest that fits; with a Trainer, `--fallback 3` retries automatically",
    source="OOM retries",
)
FIND_OVERRIDE = Remedy(
    title="find where the script sets it",
    why="the script, its config file or a library overrides the requested value",
    source="observed inside the training process",
)


LESS_OFTEN = Remedy(
    title="run the code after the step less often",
    why="metrics, plots, samples and files: every 10 or 100 steps instead of every step",
    effect="at most the time spent there",
    rests_on="the measured share",
    source="measured between the optimizer step and the next request for a batch",
)
FIND_LINE = Remedy(
    title="find the line",
    why="`py-spy top --pid PID` shows where the training process spends its time",
    source="py-spy",
)

KEEP_NUMBERS = Remedy(
    title="keep numbers instead of tensors",
    why="a loss summed or stored without `.item()`, or an output without `.detach()`, keeps the graph of its step",
    effect="memory stays constant after the first steps",
    rests_on="memory in use between steps rises steadily",
    source="PyTorch's FAQ on memory",
)
FIND_HOLDER_ON_CARD = Remedy(
    title="find what keeps it allocated",
    why="call `torch.cuda.memory._record_memory_history()` and, some steps later, "
    "`_dump_snapshot(FILE)`: it shows which line allocated each block",
    source="PyTorch's notes on CUDA memory",
)
FIND_HOLDER_ON_HOST = Remedy(
    title="find what keeps it allocated",
    why="`memray run` shows the lines; a dataset that caches its samples is a common cause",
    source="memray",
)
