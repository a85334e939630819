"""Processes of every sort: those that must stay silent, those that end badly, ranks, and those without torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.late_module import skip_without
from tests.observer.observed_process import (
    SCRIPTS,
    SITE,
    ObservedProcess,
    events_of,
    last_steps,
    observe,
    observe_forked,
    observed_in,
    run_python,
)
from tuner_tui.runs.events.fold import fold_all
from tuner_tui.runs.events.progress import seconds_left
from tuner_tui.runs.events.run_state import RunState
from tuner_tui.runs.events.types import Ended, Metrics, OutOfMemory, Phase, Plan, Raised, Started, Steps
from tuner_tui.view.cells import plain_text
from tuner_tui.view.status_line import StatusScene, status_line

UNTOUCHED = "import sys; print('torch' in sys.modules, 'json' in sys.modules, sys.flags.isolated)"


def test_process_without_torch_writes_and_imports_nothing(tmp_path: Path) -> None:
    result = observe(tmp_path, "-c", UNTOUCHED)
    assert (result.exit_code, result.files) == (0, {})
    assert result.output == "False False 0\n"


def test_without_a_run_folder_nothing_is_installed() -> None:
    code = "import sys; print('_tuner_observer' in sys.modules, len(sys.meta_path))"
    with_site = run_python("-c", code, settings={"PYTHONPATH": str(SITE)}).stdout.split()
    assert with_site == run_python("-c", code).stdout.split()


def test_isolated_interpreter_is_left_alone(tmp_path: Path) -> None:
    result = observe(tmp_path, "-I", "-c", "import sys; print('_tuner_observer' in sys.modules)")
    assert (result.output, result.files) == ("False\n", {})


def test_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    site_folder = tmp_path / "own"
    site_folder.mkdir()
    (site_folder / "sitecustomize.py").write_text("import builtins; builtins.mine = __file__\n")
    code = "import sitecustomize, sys; print(mine, sitecustomize.__file__, '_tuner_observer' in sys.modules)"
    result = observe(tmp_path, "-c", code, first=str(site_folder))
    assert result.output.split() == [str(site_folder / "sitecustomize.py")] * 2 + ["True"]


def test_error_in_own_sitecustomize_is_shown_as_ever(tmp_path: Path) -> None:
    site_folder = tmp_path / "own"
    site_folder.mkdir()
    (site_folder / "sitecustomize.py").write_text("raise RuntimeError('my own fault')\n")
    result = observe(tmp_path, "-c", "print('alive')", first=str(site_folder))
    assert result.output == "alive\n"
    assert "my own fault" in result.errors


def test_crash_at_import_is_reported_and_printed(tmp_path: Path) -> None:
    result = observe(tmp_path, "-c", "import no_such_module_at_all")
    assert result.exit_code == 1
    assert "ModuleNotFoundError: No module named 'no_such_module_at_all'" in result.errors
    [raised] = result.of(Raised)
    assert (raised.type, raised.where) == ("ModuleNotFoundError", "loading")


def test_crash_is_reported_if_the_script_replaces_the_excepthook(tmp_path: Path) -> None:
    code = "import sys; sys.excepthook = lambda *_: print('mine'); 1 / 0"
    result = observe(tmp_path, "-c", code)
    assert result.output == "mine\n"
    assert [event.type for event in result.of(Raised)] == ["ZeroDivisionError"]


def test_only_the_launched_process_reports_crashes(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', '1 / 0'])"
    result = observe(tmp_path, "-c", code)
    assert "ZeroDivisionError" in result.errors
    assert result.files == {}


def test_forked_child_is_silent(tmp_path: Path) -> None:
    code = "import os, sys\npid = os.fork()\nif not pid: raise KeyError('child')\nos.wait()"
    result = observe(tmp_path, "-c", code)
    assert "KeyError: 'child'" in result.errors
    assert (result.exit_code, result.files) == (0, {})


def test_exec_stays_the_launched_process(tmp_path: Path) -> None:
    code = "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'raise KeyError(1)'])"
    assert [event.type for event in observe(tmp_path, "-c", code).of(Raised)] == ["KeyError"]


def test_unwritable_run_folder_does_not_affect_the_training(tmp_path: Path) -> None:
    code = "import os, shutil; shutil.rmtree(os.environ['TUNER_RUN_DIR']); raise KeyError('mine')"
    result = observe(tmp_path, "-c", code)
    assert result.errors.strip().endswith("KeyError: 'mine'")
    assert "_tuner_observer" not in result.errors.replace("in excepthook", "")


@pytest.mark.train
def test_out_of_memory_in_the_optimizer_step(tmp_path: Path) -> None:
    result = observe(tmp_path, str(SCRIPTS / "out_of_memory.py"))
    assert result.exit_code == 1
    assert "DefaultCPUAllocator: can't allocate memory" in result.errors
    [error] = result.of(OutOfMemory)
    assert (error.where, error.step) == ("optimizer-step", 1)
    assert result.of(Ended) == []


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> ObservedProcess:
    """Two gloo ranks under torchrun."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    return observe(tmp_path_factory.mktemp("ranks"), *torchrun, str(SCRIPTS / "ranks.py"))


LOOP = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def {name}():
    model.eval()
    with torch.no_grad():
        model(torch.ones(1, 2))
    model.train()
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    if step == 3:
        {name}()
"""
GENERATES = {"generate_text": True, "validate": False, "look_at": False}


def loop_script(folder: Path, name: str) -> str:
    """The path of a loop whose function `name` calls the model without gradients."""
    path = folder / f"{name}.py"
    path.write_text(LOOP.format(name=name))
    return str(path)


DEVICES = {"any device": (False, 1), "cpu": (True, 2)}
"""Whether the ranks of a Trainer are connected then, and how many copies of the model train."""


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of loops, and of two ranks that nothing connects or that a Trainer may connect."""
    skip_without("transformers")
    folder, ranks = tmp_path_factory.mktemp("forked"), str(SCRIPTS / "forked_ranks.py")
    cases: dict[str, tuple[str, ...]] = {name: (loop_script(folder, name),) for name in GENERATES}
    cases["ranks"] = (ranks, loop_script(folder, "validate"))
    cases |= {device: (ranks, str(SCRIPTS / "hf_trainer.py"), "output-files", device) for device in DEVICES}
    return observe_forked(folder / "runs", cases, "transformers.trainer", "transformers.models.bert.modeling_bert")


def test_what_generates_samples_by_its_name_is_no_evaluation_on_the_screen(forked: dict[str, Path]) -> None:
    for name, generates in GENERATES.items():
        events = observed_in(forked[name]).events
        phases = [event for event in events_of(events, Phase) if event.phase == "evaluating"]
        assert [event.generates for event in phases] == [generates], name
        state = fold_all(RunState(), events[: events.index(phases[0]) + 1])
        text = plain_text(status_line(StatusScene(name="r001", state=state, now_s=state.phase_since_t or 0.0), 80))
        assert ("generating samples" if generates else "evaluating") in text


def state_of(process: ObservedProcess) -> RunState:
    """What the events of all ranks add up to; both have ended well."""
    assert process.exit_code == 0, process
    return fold_all(RunState(), (event for events in process.files.values() for event in events))


@pytest.mark.train
def test_ranks_that_nothing_connects_are_not_added_up(ranks: ObservedProcess, forked: dict[str, Path]) -> None:
    alone, connected = state_of(observed_in(forked["ranks"])), state_of(ranks)
    assert (len(alone.ranks), alone.unconnected, alone.replicas) == (2, True, 1)
    assert (len(connected.ranks), connected.unconnected, connected.replicas) == (2, False, 2)


@pytest.mark.train
@pytest.mark.parametrize("device", DEVICES)
def test_a_trainer_that_sets_up_a_group_and_does_not_use_it_trains_alone(forked: dict[str, Path], device: str) -> None:
    state = state_of(observed_in(forked[device]))
    assert (len(state.ranks), not state.unconnected, state.replicas) == (2, *DEVICES[device])


@pytest.mark.train
def test_each_rank_has_a_file_and_the_launcher_none(ranks: ObservedProcess) -> None:
    assert ranks.exit_code == 0, ranks.errors
    assert list(ranks.files) == ["events-rank0.jsonl", "events-rank1.jsonl"]
    for rank, events in enumerate(ranks.files.values()):
        [started] = events_of(events, Started)
        assert (started.rank, started.world_size) == (rank, 2)
        assert last_steps(events).own_steps == 3
        assert isinstance(events[-1], Ended)


def evaluated_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that Python evaluates: neither annotations nor what only a type checker sees."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    yield node
    skipped = {"annotation", "returns"}
    for name, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        if name not in skipped:
            yield from (each for child in children if isinstance(child, ast.AST) for each in evaluated_nodes(child))


def test_the_observer_runs_on_python_3_8() -> None:
    generic = {"list", "dict", "tuple", "set", "frozenset", "type", "deque", "Callable", "Iterator", "Sequence", "ref"}
    for file in SITE.rglob("*.py"):
        tree = ast.parse(file.read_text(), feature_version=(3, 8))
        if file.name == "sitecustomize.py":  # without annotations, for Python 2.7
            continue
        assert "from __future__ import annotations" in file.read_text() or file.stat().st_size < 2000, file
        for node in evaluated_nodes(tree):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                assert node.value.id not in generic, f"{file}:{node.lineno}"
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"removeprefix", "removesuffix", "pairwise", "cache"}, f"{file}:{node.lineno}"


@pytest.mark.full
@pytest.mark.train
def test_processes_without_ranks_that_train_together_are_all_counted(tmp_path: Path) -> None:
    result = observe(tmp_path, str(SCRIPTS / "hogwild.py"))
    assert result.exit_code == 0, result.errors
    assert list(result.files) == ["events-rank1.jsonl", "events.jsonl"]
    events = sorted((event for file in result.files.values() for event in file), key=lambda event: event.t)
    state = fold_all(RunState(), events)
    assert (state.step, sorted(rank.latest.own_steps for rank in state.ranks.values() if rank.latest)) == (15, [5, 10])
    assert state.independent
    assert state.replicas == 1
    assert state.phase == "ending"


def test_a_run_of_independent_processes_ends_with_the_last_of_them() -> None:
    leader, second = (Started(t=1.0, rank=rank, pid=rank + 1, independent=rank == 1) for rank in range(2))
    plans = [Plan(t=2.0, rank=rank, total_steps=30, guessed=True) for rank in range(2)]
    counters = [Steps(t=3.0, rank=rank, step=10, own_steps=10, train_s=1.0) for rank in range(2)]
    state = fold_all(RunState(), [leader, second, *plans, *counters])
    assert (state.step, state.total_steps) == (20, 60)
    assert state.rates.steps_s is None
    faster = fold_all(state, [Steps(t=4.0, rank=rank, step=20, own_steps=20, train_s=2.0) for rank in range(2)])
    assert faster.rates.steps_s == 20
    left = seconds_left(faster, 4.0)
    assert left is not None
    assert left == pytest.approx(1.0)  # ten steps each
    first_ended = fold_all(faster, [Phase(t=5.0, rank=0, phase="ending"), Ended(t=5.0, rank=0)])
    assert first_ended.phase == "training"
    loss = Metrics(t=6.0, rank=1, step=25, loss=0.5)
    assert fold_all(faster, [loss]).loss is None
    assert fold_all(first_ended, [loss]).loss == 0.5
    assert fold_all(first_ended, [Ended(t=7.0, rank=1)]).phase == "ending"


def test_loading_of_model_and_data_are_phases_of_the_start_only(tmp_path: Path) -> None:
    process = observe(tmp_path, str(SCRIPTS / "loading.py"), str(tmp_path), settings={"HF_DATASETS_OFFLINE": "1"})
    assert process.exit_code == 0, process.errors
    phases = [event.phase for event in process.of(Phase)]
    assert phases.index("loading-model") < phases.index("loading-data") < phases.index("training")
    assert "loading-data" not in phases[phases.index("training") :]
    state = fold_all(RunState(), process.events)
    names = [name for _, name in state.startup]
    assert {"starting", "loading-model", "loading-data", "training"} == set(names)
