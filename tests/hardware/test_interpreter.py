from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tuner_tui.hardware.interpreter import (
    MARK,
    Interpreter,
    default_interpreter,
    is_cached,
    package_problem,
    probe_interpreter,
    probe_versions,
    run_interpreter,
)

VERSIONS: Mapping[str, object] = {"python_version": "3.12.0", "packages": {"torch": "2.9.0", "transformers": "5.0.0"}}
FIELDS: Mapping[str, object] = {
    "training_arguments": {"learning_rate": 5e-05},
    "torch_archs": ["sm_80"],
    "problem": None,
}


def script(path: Path, body: str) -> Path:
    """An executable that plays the interpreter."""
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def says(*answers: Mapping[str, object]) -> str:
    """Shell that reads its input and gives these answers among other output."""
    lines = "\n".join(f"echo '{MARK}{json.dumps(answer)}'" for answer in answers)
    return f"cat >/dev/null\necho noise\n{lines}"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_versions_of_this_very_python():
    probed = probe_versions(Path(sys.executable))
    assert probed.python_version == ".".join(map(str, sys.version_info[:3]))
    assert probed.training_arguments is None
    assert set(probed.packages) <= {
        "torch", "transformers", "accelerate", "datasets", "peft", "bitsandbytes", "flash-attn", "trl",
        "lightning", "deepspeed",
    }  # fmt: skip


@pytest.mark.train
def test_the_fields_of_training_arguments_come_from_the_interpreter_itself(cache: Path):
    probed = probe_interpreter(Path(sys.executable), cache)
    assert probed.problem is None
    assert probed.training_arguments is not None
    assert probed.training_arguments["per_device_train_batch_size"] == 8
    assert probed.training_arguments["learning_rate"] == 5e-05
    assert isinstance(probed.training_arguments["optim"], str)
    json.dumps(dict(probed.training_arguments))


def test_all_that_is_answered_is_told(tmp_path: Path, cache: Path):
    python = script(tmp_path / "python", says(VERSIONS, FIELDS))
    assert probe_interpreter(python, cache) == Interpreter(
        path=str(python),
        python_version="3.12.0",
        packages={"torch": "2.9.0", "transformers": "5.0.0"},
        torch_archs=("sm_80",),
        training_arguments={"learning_rate": 5e-05},
    )


def test_a_cached_answer_needs_no_interpreter_that_still_works(tmp_path: Path, cache: Path):
    python = script(tmp_path / "python", says(VERSIONS, FIELDS))
    assert not is_cached(python, cache)
    first = probe_interpreter(python, cache)
    assert is_cached(python, cache)
    stamp = python.stat()
    script(python, "exit 1")
    os.utime(python, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert probe_interpreter(python, cache) == first


def test_a_changed_interpreter_is_asked_again(tmp_path: Path, cache: Path):
    python = script(tmp_path / "python", says(VERSIONS, FIELDS))
    probe_interpreter(python, cache)
    script(python, says({**VERSIONS, "python_version": "3.13.0"}, FIELDS))
    os.utime(python, ns=(1, 1))
    assert probe_interpreter(python, cache).python_version == "3.13.0"


def test_a_package_installed_since_makes_it_ask_again(tmp_path: Path, cache: Path):
    site = tmp_path / "site-packages"
    site.mkdir()
    python = script(tmp_path / "python", says({**VERSIONS, "site_folders": [str(site)]}, FIELDS))
    stamp = python.stat()
    probe_interpreter(python, cache)
    script(python, says({**VERSIONS, "packages": {"torch": "2.10.0"}, "site_folders": [str(site)]}, FIELDS))
    os.utime(python, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert probe_interpreter(python, cache).packages["torch"] == "2.9.0"
    os.utime(site, ns=(1, 1))
    assert probe_interpreter(python, cache).packages["torch"] == "2.10.0"


def test_a_failed_import_of_transformers_is_told_and_not_cached(tmp_path: Path, cache: Path):
    broken: dict[str, object] = {
        "training_arguments": None,
        "torch_archs": [],
        "problem": "ImportError: libcudart.so.13: cannot open",
    }
    python = script(tmp_path / "python", says(VERSIONS, broken))
    probed = probe_interpreter(python, cache)
    assert probed.problem == f"{python} cannot import transformers: {broken['problem']}."
    assert probed.packages["torch"] == "2.9.0"
    assert not cache.exists()


def test_one_that_dies_while_importing_has_told_its_versions(tmp_path: Path, cache: Path):
    probed = probe_interpreter(script(tmp_path / "python", says(VERSIONS) + "\nkill -SEGV $$"), cache)
    assert probed.packages["torch"] == "2.9.0"
    assert probed.problem is not None
    assert "SIGSEGV" in probed.problem


def test_one_that_hangs_is_stopped_with_all_it_started(tmp_path: Path, cache: Path):
    python = script(tmp_path / "python", says(VERSIONS) + "\nsleep 300")
    probed = probe_interpreter(python, cache, timeout_s=5.0)
    assert probed.problem == f"{python} did not answer within 5 s and was stopped; is its disk slow?"
    assert probed.packages["torch"] == "2.9.0"


def test_one_that_says_nothing_is_waited_for_less_long():
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        run_interpreter(["sleep", "3600"], "", 3600.0, silent_s=0.5)
    assert caught.value.timeout == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("body", "words"),
    [("cat >/dev/null", "did not answer"), ("cat >/dev/null; exit 3", "code 3"), ("exit 0", "did not answer")],
)
def test_one_that_is_no_python(tmp_path: Path, body: str, words: str):
    assert words in (probe_versions(script(tmp_path / "python", body)).problem or "")


def test_one_that_prints_without_end():
    probed = probe_versions(Path("/usr/bin/yes"), timeout_s=60.0)
    assert "printed endless output" in (probed.problem or "")


def test_one_that_is_not_there_may_not_run_or_cannot(tmp_path: Path):
    missing = tmp_path / "none"
    assert probe_versions(missing).problem == f"{missing} does not exist: choose another interpreter."
    (tmp_path / "text").touch()
    assert "no permission to run" in (probe_versions(tmp_path / "text").problem or "")
    (tmp_path / "binary").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "binary").chmod(0o755)
    assert "cannot run on this machine" in (probe_versions(tmp_path / "binary").problem or "")


def test_it_may_be_given_from_here_or_by_its_bare_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    python = script(tmp_path / "bin-python", says(VERSIONS))
    monkeypatch.chdir(tmp_path)
    assert probe_versions(Path("./bin-python")).path == str(python)
    monkeypatch.chdir("/")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert probe_versions(Path("bin-python")) == probe_versions(python)
    assert probe_versions(python).problem is None


def test_a_link_is_not_followed(tmp_path: Path):
    script(tmp_path / "real", says(VERSIONS))
    (tmp_path / "python").symlink_to(tmp_path / "real")
    assert probe_versions(tmp_path / "python").path == str(tmp_path / "python")


def test_without_torch_it_says_so_and_still_tells_the_rest(tmp_path: Path):
    python = script(tmp_path / "python", says({"python_version": "3.12.0", "packages": {"peft": "0.21"}}))
    probed = probe_versions(python)
    assert probed.packages == {"peft": "0.21"}
    assert "has no torch" in (probed.problem or "")


def test_torch_without_transformers_is_no_problem():
    assert package_problem(Path("p"), {"torch": "2.9"}, "ModuleNotFoundError: No module named 'transformers'") is None


def test_the_activated_environment_is_the_default(tmp_path: Path):
    for name in ("venv", "conda"):
        (tmp_path / name / "bin").mkdir(parents=True)
        script(tmp_path / name / "bin" / "python", "")
    both = {"VIRTUAL_ENV": str(tmp_path / "venv"), "CONDA_PREFIX": str(tmp_path / "conda")}
    assert default_interpreter(both) == tmp_path / "venv/bin/python"
    assert default_interpreter({"CONDA_PREFIX": str(tmp_path / "conda")}) == tmp_path / "conda/bin/python"


def test_an_activated_environment_that_is_gone_is_passed_over(tmp_path: Path):
    assert default_interpreter({"VIRTUAL_ENV": str(tmp_path / "gone"), "PATH": ""}, has_torch=False) == Path(
        sys.executable
    )


def test_without_one_it_is_the_python_of_this_program_where_that_has_torch(tmp_path: Path):
    python3 = script(tmp_path / "python3", "")
    assert default_interpreter({"PATH": str(tmp_path)}, has_torch=True) == Path(sys.executable)
    assert default_interpreter({"PATH": str(tmp_path)}, has_torch=False) == python3
