"""Where the memory of a step's peak goes, by module and kind, as the memory tracer finds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.memory.device import Device
from tuner_tui.memory.trace import ask_trainer, trace_cache_entry, trace_request
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings

PHASES = {"batch": "forward and backward", "step": "optimizer step", "evaluation": "evaluation"}


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Bytes of one kind in one module; `*` in its name stands for all blocks, an empty name for none."""

    module: str
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class MemoryBreakdown:
    """All tensors at the highest peak of a step, in the phase `phase`; the largest part first."""

    phase: str
    parts: tuple[MemoryPart, ...]

    @property
    def total(self) -> int:
        """The peak in bytes, without context and allocator."""
        return sum(part.size for part in self.parts)

    def by(self, key: Callable[[MemoryPart], str]) -> dict[str, int]:
        """The bytes of all parts with the same key, the largest first."""
        sums: Counter[str] = Counter()
        for part in self.parts:
            sums[key(part)] += part.size
        return dict(sums.most_common())


def trace_breakdown(
    interpreter: Interpreter, job: BuiltinJob, settings: Settings, device: Device, cache_folder: Path | None = None
) -> MemoryBreakdown:
    """The breakdown at the micro batch of `settings`, from the cache or within seconds. Raises `TraceError`."""
    question = trace_request(job, settings, device, 2) | {
        "by_module": True,
        "batches": (settings.per_device_train_batch_size,),
        "eval_batches": (settings.per_device_eval_batch_size,),
    }
    entry = trace_cache_entry(interpreter, question, cache_folder)
    answer = entry.read()
    if answer is None:
        answer = ask_trainer(Path(interpreter.path), question)
        entry.write(answer)
    parts = sorted((MemoryPart(**one) for one in answer["parts"]), key=lambda part: -part.size)
    return MemoryBreakdown(PHASES[answer["phase"]], tuple(parts))
