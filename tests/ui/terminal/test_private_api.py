"""The private attributes of Textual and Rich that the screen depends on, all of them used in `ui/terminal` only.

A new version of Textual that lacks one of them fails here, by name.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import textual._compositor
import textual._time
import textual._xterm_parser
from rich.console import Console
from textual._compositor import Compositor
from textual._styles_cache import StylesCache
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.css.stylesheet import Stylesheet
from textual.drivers.linux_driver import LinuxDriver
from textual.widget import Widget
from textual.widgets import Input

import tuner_tui.ui

UI = Path(tuner_tui.ui.__file__).parent
USED: dict[type, set[str]] = {
    App: {
        "_check_resize",
        "_close_messages_no_wait",
        "_display",
        "_driver",
        "_exit",
        "_exception",
        "_exit_renderables",
        "_fatal_error",
        "_handle_exception",
        "_notifications",
        "_background_screens",
        "_resize_timer",
    },
    Widget: {"_styles_cache", "_task"},
    StylesCache: {"_cache", "_dirty_lines"},
    Stylesheet: {"_parse_rules", "_variables"},
    Input: {"_on_paste"},
    XTermParser: {"_sequence_to_key_events", "_timeout_time"},
    LinuxDriver: {
        "_debug",
        "_file",
        "_key_thread",
        "_loop",
        "_must_signal_resume",
        "_sigcont_application",
        "_sigtstp_application",
        "_writer_thread",
    },
    Compositor: {"_dirty_regions", "_get_renders"},
    Console: {"_color_system"},
}
MODULES = {
    textual._compositor: {"ChopsUpdate", "Compositor", "CompositorUpdate", "LayoutUpdate"},
    textual._time: {"get_time"},
    textual._xterm_parser: {"BRACKETED_PASTE_END", "BRACKETED_PASTE_START"},
}


def assigned_names(tree: ast.AST) -> set[str]:
    """Names of the attributes that the code assigns."""
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


@cache
def private_names(owner: type) -> frozenset[str]:
    """Names with one underscore that the class or its bases define, or assign to `self`."""
    names: set[str] = set()
    for base in owner.__mro__[:-1]:
        names.update(vars(base))
        names.update(assigned_names(ast.parse(textwrap.dedent(inspect.getsource(base)))))
    return frozenset(name for name in names if name.startswith("_") and not name.startswith("__"))


def names_used(path: Path) -> Iterator[str]:
    """Attributes a file reads or defines but does not assign, and the private modules of Textual it imports."""
    tree = ast.parse(path.read_text())
    defined = assigned_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if node.attr in defined:
                continue
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("textual._"):
            yield node.module or ""


@pytest.mark.parametrize("owner", USED, ids=lambda owner: owner.__name__)
def test_textual_has_what_is_used(owner: type) -> None:
    assert USED[owner] - private_names(owner) == set()


def test_private_modules_have_what_is_used() -> None:
    for module, names in MODULES.items():
        assert names - set(vars(module)) == set(), module.__name__


def test_only_the_terminal_package_uses_private_attributes() -> None:
    listed = set[str]().union(*USED.values())
    private = listed.union(*(private_names(owner) for owner in USED if owner not in (Console, StylesCache, Stylesheet)))
    for path in sorted(UI.rglob("*.py")):
        if "textual" not in path.read_text():
            continue
        used = {name for name in names_used(path) if name in private or name.startswith("textual._")}
        if path.parent.name == "terminal":
            defined = {"_exit"}  # os._exit
            assert {name for name in used if not name.startswith("textual._")} - listed - defined == set(), path
        else:
            assert used == set(), path
