"""Tunings for the screen: one running, one finished, one aborted; and a backend that records requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.fakes.live_run import START_S
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.trial import CompletedTrial, Measurement, Purpose, SkippedChange, Trial, TuningConclusion
from tuner_tui.tuning.trial_log import TrialStarted, TuningView
from tuner_tui.ui.records import TrainingConfig, TrialPlacement, TuningPlan, TuningSnapshot, TuningWish
from tuner_tui.ui.tunings import Tunings

GIB = 2**30
START = Settings(per_device_train_batch_size=8, gradient_accumulation_steps=4, precision="fp32")
LARGE = START.changed(per_device_train_batch_size=32, gradient_accumulation_steps=1)
HALF = LARGE.changed(precision="bf16")
COMPILED = HALF.changed(torch_compile=True)
BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps")


def trial(number: int, purpose: Purpose, settings: Settings, reason: str, *changed: str, **more: Any) -> Trial:
    return Trial(number=number, purpose=purpose, settings=settings, reason=reason, changed=changed, **more)


def measured(tokens_s: float, peak_gib: float, seconds: float = 41.0, **more: Any) -> Measurement:
    return Measurement(
        outcome="measured", seconds=seconds, run_id="r031", steps=40, samples_s=tokens_s / 240, tokens_s=tokens_s,
        spread=0.011, step_time_s=0.4, peak_bytes=int(peak_gib * GIB), **more,
    )  # fmt: skip


WHY = "at most 11 % faster: kernels are launched one by one for 11 % of a step"
SIZE = "twice the micro batch; the memory model expects 61 GiB"
TRIED = (
    CompletedTrial(trial(1, "start", START, "the settings as given"), measured(21_400, 24.1)),
    CompletedTrial(trial(2, "noise", START, "what a difference must exceed"), measured(21_250, 24.1)),
    CompletedTrial(
        trial(3, "batch", START.changed(per_device_train_batch_size=16, gradient_accumulation_steps=2), SIZE, *BATCH),
        measured(26_900, 37.9),
    ),
    CompletedTrial(trial(4, "batch", LARGE, SIZE, *BATCH), measured(30_100, 65.2)),
    CompletedTrial(
        trial(5, "batch", START.changed(per_device_train_batch_size=40), "a fifth more", *BATCH),
        Measurement(outcome="out-of-memory", seconds=22.0, run_id="r035", sentence="The GPU ran out of memory."),
    ),
    CompletedTrial(trial(6, "knob", HALF, "fp32 takes the slow path", "precision", bound=1.4), measured(52_600, 44.0)),
    CompletedTrial(
        trial(7, "knob", HALF.changed(attn_implementation="flash_attention_2"), "attention", "attn_implementation"),
        Measurement(
            outcome="not-applied", seconds=30.0, run_id="r037", not_applied=("attn_implementation",),
            sentence="The training went on with sdpa.",
        ),
    ),
)  # fmt: skip
SKIPPED = (
    SkippedChange(
        knob="dataloader_num_workers", value="4", reason="the data wait is 0.4 % of a step, below the noise of 1.2 %"
    ),
    SkippedChange(knob="optim", value="adamw_bnb_8bit", reason="bitsandbytes is not installed"),
)

EIGHTH = TrialStarted(
    t=START_S - 43, trial=trial(8, "knob", COMPILED, WHY, "torch_compile", bound=0.11), run="r038",
    left_low_s=240.0, left_high_s=420.0,
)  # fmt: skip


def under_way(**changes: Any) -> TuningView:
    """A tuning at its eighth trial."""
    fields: dict[str, Any] = {
        "id": "t003", "title": "llama-1b-sft", "status": "running", "created_t": START_S - 400, "tried": TRIED,
        "running": (EIGHTH,), "skipped": SKIPPED,
        "capacity_bytes": int(79.6 * GIB), "limit_bytes": int(75.6 * GIB),
    }  # fmt: skip
    return TuningView(**{**fields, **changes})


def at_its_end(**changes: Any) -> TuningView:
    """A tuning with a verdict."""
    confirmed = (
        CompletedTrial(trial(9, "confirm", START, "start and winner, alternating"), measured(21_300, 24.1)),
        CompletedTrial(trial(10, "confirm", COMPILED, "start and winner, alternating"), measured(57_300, 44.2)),
    )
    last = CompletedTrial(
        trial(8, "knob", COMPILED, "kernels", "torch_compile", bound=0.11), measured(57_100, 44.2, seconds=88.0)
    )
    verdict = TuningConclusion(
        winner=COMPILED,
        sentence="Micro batch 32 in bf16 with compile trains 2.69 times as many tokens a second as the start, "
        "in 44 of 80 GiB.",
        ratio=2.69, ratio_low=2.64, ratio_high=2.73, start=confirmed[0].measurement, best=confirmed[1].measurement,
    )  # fmt: skip
    fields: dict[str, Any] = {
        "status": "finished", "tried": (*TRIED, last, *confirmed), "running": (), "verdict": verdict,
        "preset": "/home/me/.config/tuner-tui/presets/llama-1b-sft-tuned.yaml",
    }  # fmt: skip
    return under_way(**{**fields, **changes})


def aborted() -> TuningView:
    """A tuning that somebody ended."""
    return under_way(status="aborted", running=())


@dataclass
class FakeTunings(Tunings):
    """Tunings by their name, newest first, and what was asked of them."""

    views: dict[str, TuningView] = field(default_factory=dict)
    same_job: bool = True
    begins: TuningView = field(default_factory=under_way)
    asked: list[tuple[str, str]] = field(default_factory=list)
    minutes: list[float] = field(default_factory=list)
    placed: list[TrialPlacement] = field(default_factory=list)
    gpus: list[tuple[str, ...]] = field(default_factory=list)
    placements: Mapping[TrialPlacement, str] = field(default_factory=dict)
    least_minutes: float = 1.0
    seen: TuningView | None = None

    def plan(
        self, config: TrainingConfig, inventory: object = None, interpreter: object = None, sample: object = None
    ) -> TuningPlan:
        tunes = f"{config.preset}, from the settings shown"
        return TuningPlan(
            (("Tunes", tunes), ("Runs", "short real runs")), self.least_minutes, self.placements, ("GPU-a",)
        )

    def start(self, config: TrainingConfig, wish: TuningWish) -> Path:
        self.asked.append(("start", config.preset or ""))
        self.minutes.append(wish.minutes)
        self.placed.append(wish.placement)
        self.gpus.append(wish.gpus)
        self.views = {"t004": self.begins, **self.views}
        return Path("/tunings/t004")

    def list_newest(self) -> Mapping[Path, TuningView]:
        return {Path("/tunings", name): replace(view, id=name) for name, view in self.views.items()}

    def watch_running(self) -> Iterator[TuningView | None]:
        while True:
            yield self.seen

    def follow(self, folder: Path) -> Iterator[TuningSnapshot]:
        view = replace(self.views[folder.name], id=folder.name)
        while True:
            yield TuningSnapshot(view, START_S if view.status == "running" else None)

    def is_same_job(self, folder: Path, config: TrainingConfig) -> bool:
        return self.same_job

    def abort(self, folder: Path) -> None:
        self.asked.append(("abort", folder.name))

    def resume(self, folder: Path, config: TrainingConfig | None, minutes: float) -> None:
        self.asked.append(("resume", folder.name))
        self.minutes.append(minutes)
        self.views[folder.name] = self.begins
