"""Each script runs once a session; tests look at what it left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observer.observed import SCRIPTS, Observed, observe, run_python

Folders = pytest.TempPathFactory


@pytest.fixture(scope="session")
def plain(tmp_path_factory: Folders) -> Observed:
    """The plain loop, watched."""
    return observe(tmp_path_factory.mktemp("plain"), str(SCRIPTS / "plain_loop.py"))


@pytest.fixture(scope="session")
def plain_unwatched() -> str:
    """Output of the plain loop without the observer."""
    return run_python(str(SCRIPTS / "plain_loop.py")).stdout


@pytest.fixture(scope="session")
def sections(tmp_path_factory: Folders) -> Observed:
    """Many kinds of loops, each in a forked child."""
    return observe(tmp_path_factory.mktemp("sections"), str(SCRIPTS / "sections.py"))


@pytest.fixture(scope="session")
def trainer_output(tmp_path_factory: Folders) -> Path:
    """Where the watched Trainer leaves its checkpoints."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="session")
def trainer(tmp_path_factory: Folders, trainer_output: Path) -> Observed:
    """Hugging Face Trainer, watched."""
    return observe(tmp_path_factory.mktemp("trainer"), str(SCRIPTS / "hf_trainer.py"), str(trainer_output))


@pytest.fixture(scope="session")
def trainer_unwatched(tmp_path_factory: Folders) -> str:
    """Output of the same Trainer without the observer."""
    return run_python(str(SCRIPTS / "hf_trainer.py"), str(tmp_path_factory.mktemp("unwatched"))).stdout


@pytest.fixture(scope="session")
def resumed(tmp_path_factory: Folders, trainer: Observed, trainer_output: Path) -> Observed:
    """The watched Trainer again: from its first checkpoint, with injected settings, told to stop at once."""
    (trainer_output / "checkpoint-10").rename(trainer_output / "later")
    return observe(
        tmp_path_factory.mktemp("resumed"),
        *(str(SCRIPTS / "hf_trainer.py"), str(trainer_output), "resume", "order=stop"),
        settings={"TUNER_INJECT": '{"weight_decay": 0.25, "no_such_field": 1}'},
    )
