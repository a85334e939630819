"""Measures the memory of real trainings, the ground truth of the estimate.

Run: `python -m tests.gpu.measure_memory --device cuda|cpu [--kind usual|families|compiled] [--only WORD] [--out FILE]`.
Every case runs the built-in job's own Trainer on random tokens of full length: three optimizer steps and an evaluation.
The result is `tests/gpu/results/[<kind>/]<hardware>.json`. Cases already in it are skipped, so that a run can be
continued. Needs torch, transformers, accelerate and peft, but no other package of this program.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from torch.optim import AdamW
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, TrainerCallback

from tests.gpu.cases import EVERY, Case, Measured, cases, measured_from
from tests.gpu.meters import CpuMeter, CudaMeter, Meter, storage_bytes
from tuner_tui.trainer.built_in import shape_config
from tuner_tui.trainer.job_file import JobArguments, parse_config
from tuner_tui.trainer.models import add_adapters
from tuner_tui.trainer.training import JobTrainer, classification_loss, predicted_class

RESULTS = Path(__file__).parent / "results"
STEPS = 3
LABELS = 2
END = 2
"""Token that ends a text."""


class PhaseMarks(TrainerCallback):
    """Tells the meter the phase of a step."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._meter.enter("batch" if state.global_step else "first")

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._meter.enter("step" if state.global_step else "first")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._meter.enter("outside")


class RandomTokens(torch.utils.data.Dataset[dict[str, Any]]):
    """The longest batch of a data set: blocks of full length, or texts padded to it, so that there is a mask.

    A batch of one text is not padded. A text ends with the end token, which some classifiers look for.
    """

    def __init__(self, count: int, length: int, vocabulary: int, causal: bool, padded: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        self._tokens = torch.randint(5, vocabulary, (count, length), generator=generator)
        self._causal = causal
        self._texts = length - 1 if padded else length

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = self._tokens[index]
        if self._causal:
            return {"input_ids": tokens, "labels": tokens}
        mask = (torch.arange(len(tokens)) < self._texts).long()
        tokens[self._texts - 1] = END
        return {"input_ids": tokens, "attention_mask": mask, "labels": index % LABELS}


def build_model(case: Case, job: JobArguments) -> Any:
    """The case's model with random weights, on the device of the surrounding context."""
    torch.manual_seed(0)
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": END}
    if case.model in EVERY:
        model_row = dict(EVERY[case.model])
        config = AutoConfig.for_model(model_row.pop("model_type"), **model_row, **special)
    else:
        config = shape_config(case.model, case.task, SimpleNamespace(**special))
    family = AutoModelForCausalLM if case.task == "causal-lm" else AutoModelForSequenceClassification
    options = {} if case.attention == "auto" else {"attn_implementation": case.attention}
    model = add_adapters(family.from_config(config, **options), job, case.checkpointing)
    model.config.use_cache = False
    return model


def arguments_of(case: Case, device: str, folder: str) -> tuple[JobArguments, Any]:
    """The job's TrainingArguments for `case`."""
    values: dict[str, Any] = {
        "task": case.task, "max_length": case.length, "peft_method": case.adapter, "output_dir": folder,
        "per_device_train_batch_size": case.batch, "per_device_eval_batch_size": case.eval_batch,
        "gradient_accumulation_steps": case.accumulation, "optim": case.optim, "max_steps": STEPS,
        "gradient_checkpointing": case.checkpointing, "bf16": case.precision == "bf16",
        "fp16": case.precision == "fp16", "eval_strategy": "no", "save_strategy": "no", "disable_tqdm": True,
        "logging_strategy": "no", "use_cpu": device == "cpu",
        "torch_compile": case.compiled,
    }  # fmt: skip
    return parse_config(values)


def build_trainer(case: Case, device: str, folder: str, meter: Meter) -> JobTrainer:
    """The job's Trainer on random tokens."""
    job, arguments = arguments_of(case, device, folder)
    with torch.device(device):  # a billion random numbers take a GPU no time
        model = build_model(case, job)
    causal = case.task == "causal-lm"
    words = model.config.vocab_size
    train = RandomTokens(case.batch * case.accumulation * STEPS, case.length, words, causal, case.batch > 1)
    trainer = JobTrainer(
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=RandomTokens(2 * case.eval_batch, case.length, words, causal, case.eval_batch > 1),
        compute_loss_func=None if causal else classification_loss(arguments),
        preprocess_logits_for_metrics=None if causal else predicted_class,
        callbacks=[PhaseMarks(meter)],
        optimizers=(AdamW(model.parameters(), lr=1e-5, foreach=True) if case.foreach else None, None),
    )
    trainer.language_model = causal
    return trainer


def measure(case: Case, device: str, meter: Meter) -> Measured:
    """Train three steps and evaluate; returns the peaks of each phase, weights included."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = build_trainer(case, device, folder, meter)
        weights = storage_bytes(trainer.model)
        result = Measured(case, weights, context_bytes=meter.context_bytes)
        try:
            with meter.measuring():
                trainer.train()
                meter.enter("evaluation")
                trainer.evaluate()
                meter.enter("outside")
        except torch.OutOfMemoryError as error:
            return replace(result, problem=str(error).splitlines()[0])
    peaks = {phase: weights + size for phase, size in meter.peaks().items()}
    cuda = meter if isinstance(meter, CudaMeter) else None
    return replace(
        result,
        first_bytes=peaks.get("first"),
        batch_peak_bytes=peaks.get("batch"),
        step_peak_bytes=peaks.get("step"),
        evaluation_peak_bytes=peaks.get("evaluation"),
        reserved_peak_bytes=None if cuda is None else cuda.reserved_bytes,
        driver_bytes=None if cuda is None else cuda.driver_bytes(),
    )


def hardware(device: str) -> str:
    """Name of the hardware."""
    if device == "cuda":
        return str(torch.cuda.get_device_name(0))
    return f"cpu {platform.machine()}"


def file_of(device: str, kind: str = "usual") -> Path:
    """Result file of this hardware; kinds other than the usual one have their own folders."""
    folder = RESULTS if kind == "usual" else RESULTS / kind
    return folder / f"{re.sub(r'[^a-z0-9]+', '-', hardware(device).lower()).strip('-')}.json"


def read_results(path: Path) -> list[Measured]:
    """Results measured before."""
    return [measured_from(measured) for measured in json.loads(path.read_text())["measured"]] if path.exists() else []


def write_results(path: Path, device: str, measurements: list[Measured]) -> None:
    """Write all results with a description of the hardware."""
    packages = {"torch": torch.__version__, "transformers": transformers.__version__}
    document = {"hardware": hardware(device), **packages, "measured": [outcome.as_json() for outcome in measurements]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings of the libraries about such cases."""
    transformers.utils.logging.set_verbosity_error()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what trainings really take.")
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--kind", choices=("usual", "families", "compiled"), default="usual")
    parser.add_argument("--only", default="", help="cases whose words hold this")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    path = chosen.out or file_of(chosen.device, chosen.kind)
    meter: Meter = CudaMeter() if chosen.device == "cuda" else CpuMeter()
    measurements = read_results(path)
    done = {outcome.case for outcome in measurements}
    with quiet():
        for case in cases({"usual": "cpu" if chosen.device == "cpu" else "gpu"}.get(chosen.kind, chosen.kind)):
            if case in done or chosen.only not in str(case):
                continue
            try:
                measurements.append(measure(case, chosen.device, meter))
            except (ValueError, TypeError, ImportError) as error:  # a model that cannot be trained so
                print(f"        –      {case}: {error}", flush=True)
                continue
            write_results(path, chosen.device, measurements)
            print(f"{(measurements[-1].peak_bytes or 0) / 2**20:9.1f} MiB  {case}", flush=True)
            torch.compiler.reset()
            gc.collect()


if __name__ == "__main__":
    main()
