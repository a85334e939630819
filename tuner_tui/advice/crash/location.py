"""Where in the training a failure happened (training, evaluation, loading, ...), from the stack frames and the log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner_tui.runs.log_parsing.failures import Failure
from tuner_tui.runs.log_parsing.lines import BAR, LogLine

EVALUATION = re.compile(
    r"^(?:evaluat\w*|evaluation_loop|prediction_(?:step|loop)|predict\w*|validat\w*|_?run_(?:evaluation|sanity_check|validation)"
    r"|validation_step|test_step|eval_?(?:loop|step|epoch|uate)?|nested_(?:concat|gather)|_nested_gather|pad_across_processes)$"
)
CHECKPOINT = re.compile(
    r"^(?:_?save_\w+|save|_save|_save_checkpoint|save_checkpoint|save_pretrained|save_state|save_file|dump_checkpoint"
    r"|_?(?:full_)?state_dict_(?:for_save)?|get_state_dict|_legacy_save)$"
)
OPTIMIZER_FILE = re.compile(
    r"/(?:torch/optim|bitsandbytes/optim|apex/optimizers|deepspeed/ops/adam|torchao/optim)/|/(?:adamw?8?bit|lion)\.py$"
)
OPTIMIZER = re.compile(
    r"^(?:_?(?:multi|single)_tensor_\w+|_?fused_adamw?|_init_group|optimizer_step|init_state|update_step|_take_model_step)$"
)
TRAINING = re.compile(
    r"^(?:training_step|train_step|compute_loss|backward|forward|forward_backward|run_backward|checkpoint)$"
)
LOADING = re.compile(
    r"^(?:from_pretrained|from_config|load_\w+|_load_\w+|_move_model_to_device|place_model_on_device|_?from_single_file|load"
    r"|prepare_model|prepare|_prepare_\w+|dispatch_model|_sync_\w*module_states|_sync_params_and_buffers|create_model|build_model"
    r"|get_peft_model|init_distributed|initialize|_configure_distributed_model|to|cuda|_apply|tokenize\w*|map|build_dataset\w*)$"
)  # fmt: skip
TRAIN_LOOP = re.compile(
    r"^(?:train|fit|_inner_training_loop|inner_training_loop|train_(?:one_)?epoch|run_training|training_loop|_run_epoch|train_loop)$"
)
EVAL_BANNER = re.compile(
    r"^\*{3,} Running (?:Evaluation|Prediction|evaluation|prediction)|^(?:Evaluating|Validating|Validation)\b",
    re.IGNORECASE,
)
LOAD_BANNER = re.compile(
    r"^(?:Loading checkpoint shards|Loading weights|Loading model|Fetching \d+ files|Downloading)\b", re.IGNORECASE
)
TRAIN_BANNER = re.compile(r"^\*{3,} Running training|^\{?'loss'", re.IGNORECASE)
LOOKBACK_LINES = 60


def failure_location(failure: Failure, lines: Sequence[LogLine]) -> str | None:
    """One of training, evaluation, loading, optimizer-step, checkpoint; None if neither stack nor output shows it."""
    return location_from_frames(failure.frames) or _location_from_output(failure, lines)


def location_from_frames(frames: Sequence[tuple[str, str]]) -> str | None:
    """The location by the stack: any frame decides for evaluation and saving, else the innermost known frame."""
    names = [(file.replace("\\", "/"), function.rpartition(".")[2]) for file, function in frames]
    if any(EVALUATION.match(name) and not _is_library_eval(file) for file, name in names):
        return "evaluation"
    if any(CHECKPOINT.match(name) for _, name in names):
        return "checkpoint"
    for file, name in reversed(names):
        place = _frame_location(file, name)
        if place is not None:
            return place
    return "training" if any(TRAIN_LOOP.match(name) for _, name in names) else None


def _frame_location(file: str, name: str) -> str | None:
    if TRAINING.match(name):
        return "training"
    if OPTIMIZER.match(name) or (OPTIMIZER_FILE.search(file) and name in {"step", "_use_grad", "wrapper", "__init__"}):
        return "optimizer-step"
    return "loading" if LOADING.match(name) else None


def _is_library_eval(file: str) -> bool:
    """Whether `eval` is a function of torch itself, which is no evaluation of a model."""
    return "/torch/" in file and "lightning" not in file


def _location_from_output(failure: Failure, lines: Sequence[LogLine]) -> str | None:
    """The location by the last banner or progress bar before the failure."""
    before = [line for line in lines if line.number < failure.first][-LOOKBACK_LINES:]
    for line in reversed(before):
        if EVAL_BANNER.match(line.text):
            return "evaluation"
        if LOAD_BANNER.match(line.text):
            return "loading" if "100%" not in line.text else None
        if TRAIN_BANNER.match(line.text) or (BAR.search(line.text) and "/s" in line.text and "ap" not in line.text[:3]):
            return "training"
    return None
