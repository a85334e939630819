"""Structure of the repository: imports, folders, names and the packages' READMEs."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

import pytest
import yaml

from tuner_tui.core.json_struct import Check
from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.events.types import EVENT_TYPES
from tuner_tui.runs.queue.queued_run import QueuedRun
from tuner_tui.runs.read.machine_monitor import MachineView
from tuner_tui.runs.slurm import JobList, SlurmJob
from tuner_tui.runs.store.folder import SupervisorState
from tuner_tui.runs.store.record import RunRecord
from tuner_tui.runs.supervise.training_process import LaunchSpec
from tuner_tui.settings.job import BuiltinJob, CommandJob
from tuner_tui.tuning.store import TuningRecord
from tuner_tui.tuning.trial_log import TrialCompleted, TrialStarted, TuningEnded, TuningStarted

MAX_README_LINES = 40

MIRRORED_MODULES = {
    *("main", "errors", "text"),  # standard names: each package has its own
    # A command, its output, its screen, its subject:
    *("diagnose", "recommend", "tune", "watch", "hardware", "hosts", "estimate", "presets", "slurm"),
    *("comparison", "job", "queue", "runs", "settings"),  # a panel or screen, and what it shows
    *("data_loading", "gpu", "host"),  # the findings, remedies, recommendations and rules of one domain
    *("import_footprint",),  # what runs in the training process, and who uses it
}
"""Basenames that occur in several packages and mean the same subject there."""

Graph = dict[str, set[str]]


def modules_after(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after `statement`."""
    script = f"{statement}\nimport sys\nprint('\\n'.join({{name.partition('.')[0] for name in sys.modules}}))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import tuner_tui.ui.app", {"torch", "transformers", "numpy"}),
        ("import tuner_tui.ui.watch_app, tuner_tui.runs.read.machine_monitor", {"torch", "typer", "pydantic"}),
        ("import tuner_tui.cli.main", {"torch", "transformers", "numpy", "textual", "pydantic"}),
        ("import tuner_tui.runs.supervise.supervisor", {"torch", "textual", "rich", "typer", "pydantic"}),
    ],
)
def test_heavy_packages_are_not_imported(statement: str, forbidden: set[str]) -> None:
    assert not forbidden & modules_after(statement)


@pytest.fixture(scope="module")
def modules(repository: Path) -> dict[str, Path]:
    """The modules of the package, `__init__` included under the package's name."""
    paths = sorted((repository / "tuner_tui").rglob("*.py"))
    return {
        ".".join(path.relative_to(repository).with_suffix("").parts).removesuffix(".__init__"): path for path in paths
    }


def imported_names(path: Path, module: str) -> Iterator[str]:
    """Absolute names that a file imports anywhere: at the top, in functions and under TYPE_CHECKING."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*parents, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def import_graph(modules: dict[str, Path]) -> Graph:
    """Which modules of the package each module imports."""
    graph: Graph = {}
    for module, path in modules.items():
        result = (
            next((each for each in (name, name.rpartition(".")[0]) if each in modules), None)
            for name in imported_names(path, module)
        )
        graph[module] = {each for each in result if each is not None and each != module}
    return graph


def test_no_import_cycles(modules: dict[str, Path]) -> None:
    try:
        graphlib.TopologicalSorter(import_graph(modules)).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_a_module_name_has_one_meaning(modules: dict[str, Path]) -> None:
    places = defaultdict(list)
    for module, path in modules.items():
        places[path.stem].append(module)
    expected = MIRRORED_MODULES | {"__init__", "__main__"}
    repeated = [
        f"{name}: {', '.join(paths)}" for name, paths in places.items() if len(paths) > 1 and name not in expected
    ]
    assert not repeated, "\n".join(repeated)


def test_a_class_name_has_one_meaning(modules: dict[str, Path]) -> None:
    places = defaultdict(list)
    for module, path in modules.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    repeated = [
        f"{name}: {', '.join(modules_of_name)}" for name, modules_of_name in places.items() if len(modules_of_name) > 1
    ]
    assert not repeated, "\n".join(repeated)


def test_every_package_has_a_short_readme_with_valid_links(repository: Path) -> None:
    packages = [path.parent for path in (repository / "tuner_tui").glob("*/__init__.py")]
    assert packages
    problems = []
    for readme in [package / "README.md" for package in packages]:
        if not readme.is_file():
            problems.append(f"{readme}: missing")
            continue
        text = readme.read_text()
        if len(text.splitlines()) > MAX_README_LINES:
            problems.append(f"{readme}: more than {MAX_README_LINES} lines")
        links = re.findall(r"\]\(([^)#:]+)\)", text)
        problems += [f"{readme}: broken link {link}" for link in links if not (readme.parent / link).exists()]
    assert not problems, "\n".join(problems)


def test_the_top_level_holds_nothing_else(repository: Path) -> None:
    files = subprocess.run(["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=False)
    if files.returncode != 0:
        pytest.skip("not a git checkout")
    top = {line.split("/")[0] for line in files.stdout.splitlines()}
    assert {name for name in top if not name.startswith(".")} == {
        "tuner_tui", "tests", "presets", "pyproject.toml", "README.md",
    }  # fmt: skip


PARSERS = re.compile(
    r"(json|yaml|tomllib)\.(safe_)?(loads?|compose)|ast\.literal_eval|(.*\.)?(from_json|validate_json)"
)
OPENERS = re.compile(r"read_regular|read_json|open(ed)?_regular|LineTail|.*\.(read_bytes|read_text)")


def reads_a_file(tree: ast.Module) -> bool:
    """Whether a module parses or opens what a file, another process or a host gives; not /proc, nor its own data."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and "__file__" not in ast.unparse(node))
    return any(
        PARSERS.fullmatch(name) or OPENERS.fullmatch(name) for name in (ast.unparse(call.func) for call in calls)
    )


def test_every_reader_is_known_with_what_checks_it(repository: Path, modules: dict[str, Path]) -> None:
    table = yaml.safe_load((repository / "tests" / "readers.yaml").read_text())
    texts = {module.removeprefix("tuner_tui."): path.read_text() for module, path in modules.items()}
    assert {module for module, text in texts.items() if reads_a_file(ast.parse(text))} == set(table["modules"])
    variables = {name for text in texts.values() for name in re.findall(r"[\"']_?(TUNER_[A-Z_]+)[\"']", text)}
    assert variables == set(table["variables"])


NAMES_OF_THINGS = {
    *("pid", "start_ticks", "signal", "exit_code", "host", "job_id", "into", "after", "continued_by", "parent"),
    *("lineage", "tuning", "run", "path", "cwd", "output_dir", "resumed_from", "interpreter", "allowed", "gpu_uuids"),
}
"""Fields that become part of a path or a command, or that name a process, in whatever file they are."""
READ_TYPES: tuple[type, ...] = (
    *EVENT_TYPES.values(), Sample, SupervisorState, QueuedRun, SlurmJob, JobList, LaunchSpec, MachineView,
    RunRecord, TuningRecord, TuningStarted, TrialStarted, TrialCompleted, TuningEnded,
)  # fmt: skip


def fields_of(cls: type, seen: set[type]) -> Iterator[tuple[str, Any]]:
    """The fields of a type that is read from a file, with those of the types in them. A job is the user's to choose."""
    seen.add(cls)
    for name, hint in get_type_hints(cls, include_extras=True).items():
        if not name.startswith("_") and get_origin(hint) is not ClassVar:
            yield f"{cls.__name__}.{name}", hint
        for inner in parts_of(hint):
            if (
                isinstance(inner, type)
                and inner.__module__.startswith("tuner_tui")
                and inner not in {*seen, BuiltinJob, CommandJob}
            ):
                yield from fields_of(inner, seen)


def parts_of(hint: Any) -> Iterator[Any]:
    """A type and the types that it is made of."""
    yield hint
    for argument in get_args(hint):
        yield from parts_of(argument)


def is_checked(hint: Any) -> bool:
    return any(isinstance(part, Check) for inner in parts_of(hint) for part in getattr(inner, "__metadata__", ()))


def test_what_names_a_path_or_a_process_has_a_checked_type() -> None:
    seen: set[type] = set()
    fields = {name: hint for cls in READ_TYPES for name, hint in fields_of(cls, seen)}
    bare = [
        name
        for name, hint in fields.items()
        if name.rpartition(".")[2] in NAMES_OF_THINGS and {str, int} & {*parts_of(hint)} and not is_checked(hint)
    ]
    assert len(fields) > 100
    assert not bare, bare
