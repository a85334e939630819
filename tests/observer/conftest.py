"""Each script runs once a session; tests look at what it left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.late_module import skip_without
from tests.observer.observed_process import SCRIPTS, ObservedProcess, observe, run_python

Folders = pytest.TempPathFactory


@pytest.fixture(scope="session")
def plain(tmp_path_factory: Folders) -> ObservedProcess:
    """The plain loop, watched."""
    return observe(tmp_path_factory.mktemp("plain"), str(SCRIPTS / "plain_loop.py"))


@pytest.fixture(scope="session")
def plain_unwatched() -> str:
    """Output of the plain loop without the observer."""
    return run_python(str(SCRIPTS / "plain_loop.py")).stdout


@pytest.fixture(scope="session")
def sections(tmp_path_factory: Folders) -> ObservedProcess:
    """Many kinds of loops, each in a forked child."""
    return observe(tmp_path_factory.mktemp("sections"), str(SCRIPTS / "loop_variants.py"))


@pytest.fixture(scope="session")
def trainer_output(tmp_path_factory: Folders) -> Path:
    """Where the watched Trainer leaves its checkpoints."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="session")
def trainer(tmp_path_factory: Folders, trainer_output: Path) -> ObservedProcess:
    """Hugging Face Trainer, watched."""
    return observe(tmp_path_factory.mktemp("trainer"), str(SCRIPTS / "hf_trainer.py"), str(trainer_output))


@pytest.fixture(scope="session")
def trainer_unwatched(tmp_path_factory: Folders) -> str:
    """Output of the same Trainer without the observer."""
    return run_python(str(SCRIPTS / "hf_trainer.py"), str(tmp_path_factory.mktemp("unwatched"))).stdout


@pytest.fixture(scope="session")
def trainer_resumed(tmp_path_factory: Folders, trainer: ObservedProcess, trainer_output: Path) -> ObservedProcess:
    """The watched Trainer again: from its first checkpoint, with injected settings, and asked to stop at once."""
    (trainer_output / "checkpoint-10").rename(trainer_output / "later")
    return observe(
        tmp_path_factory.mktemp("resumed"),
        *(str(SCRIPTS / "hf_trainer.py"), str(trainer_output), "resume", "order=stop"),
        settings={"TUNER_INJECT": '{"weight_decay": 0.25, "no_such_field": 1}'},
    )


@pytest.fixture(scope="session")
def lightning_output(tmp_path_factory: Folders) -> Path:
    """Where the watched Lightning leaves its checkpoints."""
    return tmp_path_factory.mktemp("lightning-checkpoints")


@pytest.fixture(scope="session")
def lightning(tmp_path_factory: Folders, lightning_output: Path) -> ObservedProcess:
    """Lightning, watched."""
    skip_without("lightning")
    return observe(tmp_path_factory.mktemp("lightning"), str(SCRIPTS / "lightning_fit.py"), str(lightning_output))


@pytest.fixture(scope="session")
def lightning_unwatched(tmp_path_factory: Folders) -> str:
    """Output of the same without the observer."""
    return run_python(str(SCRIPTS / "lightning_fit.py"), str(tmp_path_factory.mktemp("unwatched"))).stdout


@pytest.fixture(scope="session")
def lightning_resumed(tmp_path_factory: Folders, lightning: ObservedProcess, lightning_output: Path) -> ObservedProcess:
    """The watched Lightning again: from its last checkpoint, on a stream, with injected settings, and asked to stop."""
    return observe(
        tmp_path_factory.mktemp("lightning-resumed"),
        *(str(SCRIPTS / "lightning_fit.py"), str(lightning_output), "resume", "stream", "order=stop"),
        settings={"TUNER_INJECT": '{"per_device_train_batch_size": 3, "learning_rate": 0.5}'},
    )


@pytest.fixture(scope="session")
def trl(tmp_path_factory: Folders) -> ObservedProcess:
    """TRL's SFTTrainer twice in one process, watched, with injected settings."""
    skip_without("trl")
    injected = {"weight_decay": 0.25, "max_length": 12, "max_grad_norm": 2.0, "no_such_field": 1}
    return observe(
        tmp_path_factory.mktemp("trl"),
        *(str(SCRIPTS / "trl_sft.py"), str(tmp_path_factory.mktemp("trl-output"))),
        settings={"TUNER_INJECT": json.dumps(injected)},
    )
