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

import pytest

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
        found = (
            next((each for each in (name, name.rpartition(".")[0]) if each in modules), None)
            for name in imported_names(path, module)
        )
        graph[module] = {each for each in found if each is not None and each != module}
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
    repeated = [f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1]
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
