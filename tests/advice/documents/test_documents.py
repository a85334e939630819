"""What the program says to each item of the field notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes import inventories, situations
from tuner_tui.advice import thresholds
from tuner_tui.advice.batch_scaling import scale_learning_rate
from tuner_tui.advice.diagnose import diagnose
from tuner_tui.advice.recommend.duration_estimate import estimate_duration
from tuner_tui.advice.recommend.recommendation import DEFAULT_JOB, Recommendation, recommend
from tuner_tui.advice.remedies.catalog import remedies_for
from tuner_tui.advice.settings_check import verify_settings
from tuner_tui.hardware.capabilities import abilities
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.known_gpus import known_gpus
from tuner_tui.settings.dialects.hf import from_hf
from tuner_tui.settings.job import BuiltinJob
from tuner_tui.settings.model import Settings
from tuner_tui.settings.preset_file import Preset
from tuner_tui.settings.presets import find_preset, shipped_folder
from tuner_tui.settings.resolve import resolve


@dataclass(frozen=True, slots=True)
class Item:
    """One item of `items.yaml`; `answer` is what the document says, or the truth where it errs."""

    document: str
    place: str
    ask: tuple[Any, ...]
    answer: Any

    @property
    def id(self) -> str:
        """`000 batch: preset rtx3070-8gb per_device_train_batch_size`."""
        return f"{self.document} {self.place}: {' '.join(str(word) for word in self.ask)}"


def frozen(value: Any) -> Any:
    """`value` with tuples for lists."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


ROWS = yaml.load(Path(__file__).with_name("items.yaml").read_text("utf-8"), yaml.CSafeLoader)
ITEMS = [Item(**{name: frozen(value) for name, value in row.items()}) for row in ROWS]
SIZES = {"K80": 11.2, "T4": 15.0, "V100": 15.8, "A10": 22.5, "A100": 39.4, "A100-80": 79.2}
"""GiB that the drivers of GPUs report that are sold with more."""


def recommendation(name: str, cores: int = 16, **given: Any) -> Recommendation:
    gpu = inventories.make_gpu(name.removesuffix("-80"), gib=SIZES.get(name))
    return recommend(inventories.box(gpu, cores=cores), inventories.python(), given=given)


def loaded(name: str) -> Preset:
    return find_preset(name, (shipped_folder(),)).preset


def capability(gpu: str) -> str:
    major, minor = next(known_gpu.capability for known_gpu in known_gpus() if known_gpu.name == gpu)
    return f"{major}.{minor}"


def memory(gpu: str) -> int:
    return next(known_gpu.memory_gib[0] for known_gpu in known_gpus() if known_gpu.name == gpu)


def able(gpu: str, name: str) -> bool | None:
    return next(ability.able for ability in abilities(inventories.make_gpu(gpu)) if ability.name == name)


def preset(name: str, key: str) -> Any:
    settings = resolve(preset=loaded(name)).settings
    return settings.effective_batch() if key == "effective_batch" else getattr(settings, key)


def job(name: str) -> str | None:
    preset_job = loaded(name).job
    return preset_job.model if isinstance(preset_job, BuiltinJob) else None


def recommended(gpu: str, key: str) -> Any:
    return getattr(recommendation(gpu).settings, key)


def reason(gpu: str, key: str) -> str:
    return next(value.reason for value in recommendation(gpu).advised if value.name == key)


def left(gpu: str, key: str, value: Any) -> str:
    return next(
        rejection.reason
        for rejection in recommendation(gpu).rejected
        if rejection.name == key and rejection.value in (value, bool(value))
    )


def split(gpu: str, optim: str | None = None) -> tuple[int, int]:
    given: dict[str, Any] = {} if optim is None else {"optim": optim}
    recommended = recommendation(gpu, **given).settings
    return recommended.per_device_train_batch_size, recommended.gradient_accumulation_steps


def most(gpu: str) -> Any:
    rejected = recommendation(gpu).rejected
    return next(rejection.value for rejection in rejected if rejection.name == "per_device_train_batch_size")


def workers(cores: int) -> int:
    return recommendation("T4", cores).settings.dataloader_num_workers


def scaled(optim: str, rate: float, ratio: float) -> float:
    return scale_learning_rate(rate, ratio, optim)[0]


def minutes(gpu: str, samples: int) -> tuple[float, float]:
    settings = resolve(preset=loaded("t4-16gb")).settings
    duration = estimate_duration(DEFAULT_JOB, settings, 1, (), [f"Tesla {gpu}"])
    assert duration is not None
    low, high = duration.seconds(3 * samples)
    return low / 60, high / 60


def imported(key: str, value: Any) -> str:
    return next(note for note in from_hf({key: value}).notes if key in note)


def setting_of(key: str, value: Any, name: str) -> Any:
    return from_hf({key: value}).settings[name]


def threshold(name: str) -> float:
    return float(getattr(thresholds, name))


def finding(gpu: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    settings = situations.situation().settings
    assert settings is not None
    seen = situations.samples(gpu={"memory_used_bytes": 7 * situations.GB, **gpu}, workers=(50.0,) * 8)
    now = situations.situation(settings=settings.changed(**values), samples=seen)
    first = next(each for each in diagnose(now) if each.cause.startswith("gpu-"))
    return first.cause, dict(first.remedies[0].change)


def grows(utilisation_pct: float, batch: int) -> int:
    """The micro batch of the first remedy, where there is no accumulation to take it from."""
    values = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": 1}
    change = finding({"utilisation_pct": utilisation_pct}, values)[1]
    return int(change["per_device_train_batch_size"])


def waiting(share: float, values: Mapping[str, Any]) -> dict[str, Any]:
    settings = situations.situation().settings
    assert settings is not None
    now = situations.situation(
        state=situations.training(rates={"data_wait_share": share}), settings=settings.changed(**values)
    )
    return dict(next(finding for finding in diagnose(now) if finding.cause == "data-wait").remedies[0].change)


def unverified(name: str, wanted: Any, seen: Any) -> bool:
    state = situations.training(in_effect={name: seen})
    checks = verify_settings(situations.situation(state=state, settings=Settings(**{name: wanted})))
    return any(check.name == name and check.verdict == "differs" for check in checks)


def offered(cause: str, where: str | None, **values: Any) -> Any:
    fields: dict[str, Any] = {
        "per_device_train_batch_size": 8, "per_device_eval_batch_size": 128, "max_length": 192,
        "dataloader_num_workers": 6 if cause == "too-many-workers" else 8,
        "dataloader_prefetch_factor": 4 if cause == "too-many-workers" else 2,
        "torch_compile": cause == "compile-failed",
        "optim": {"missing-package": "adamw_bnb_8bit", "fused-unsupported": "adamw_torch_fused"}.get(
            cause, "adamw_torch"
        ),
    }  # fmt: skip
    python = Interpreter("/env/bin/python", packages={"torch": "2.13.0", "peft": "0.21", "bitsandbytes": "0.50"})
    settings = Settings(**{**fields, **values})
    small = situations.samples(gpu={"memory_used_bytes": 3 * situations.GB}, workers=(50.0,) * 4)
    now = situations.situation(settings=settings, interpreter=python, samples=small)
    return remedies_for(cause, now, where)


def oom(micro: int, accumulation: int) -> tuple[int, int]:
    change = offered("gpu-oom", None, per_device_train_batch_size=micro, gradient_accumulation_steps=accumulation)[0]
    return change.change["per_device_train_batch_size"], change.change["gradient_accumulation_steps"]


def ladder(cause: str, key: str, where: str | None = None) -> Any:
    return next(remedy.change[key] for remedy in offered(cause, where) if key in remedy.change)


def ladder_off(cause: str, key: str) -> bool:
    """Whether the ladder switches `key` off."""
    return any(remedy.change.get(key) is False for remedy in offered(cause, None, gradient_checkpointing=True))


def title(cause: str, where: str | None) -> list[str]:
    return [remedy.title for remedy in offered(cause, where)]


QUESTIONS: Mapping[str, Callable[..., Any]] = {
    "capability": capability, "memory": memory, "able": able, "preset": preset, "job": job, "recommend": recommended,
    "reason": reason, "left": left, "split": split, "most": most, "workers": workers, "scaled": scaled,
    "minutes": minutes, "imported": imported, "setting_of": setting_of, "threshold": threshold, "finding": finding,
    "grows": grows, "waiting": waiting, "unverified": unverified, "oom": oom, "ladder": ladder,
    "ladder_off": ladder_off, "title": title,
}  # fmt: skip
PART_OF_A_SENTENCE = frozenset({"reason", "left", "imported"})
ONE_OF_SEVERAL = frozenset({"title"})
"""Questions whose answer contains the document's."""


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.id)
def test_the_program_says_what_the_document_asks_for(item: Item) -> None:
    kind, *arguments = item.ask
    program_answer = QUESTIONS[kind](*arguments)
    if kind in PART_OF_A_SENTENCE | ONE_OF_SEVERAL:
        assert item.answer in program_answer
    elif kind == "minutes":
        assert program_answer == pytest.approx(item.answer, rel=0.2)
    elif kind == "grows":
        assert item.answer[0] <= program_answer <= item.answer[1]
    elif isinstance(item.answer, float):
        assert program_answer == pytest.approx(item.answer)
    else:
        assert program_answer == item.answer


def test_every_document_and_every_item_of_the_issue_is_here() -> None:
    assert {item.document for item in ITEMS} == {"000", "001", "002", "003", "004"}
    assert len({item.id for item in ITEMS}) == len(ITEMS) >= 113
