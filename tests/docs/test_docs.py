"""The documentation agrees with the program and with itself."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.advice.crash.outputs import whole_logs
from tests.docs.reference import PAGES, ROOT, commands, findings, key_bindings

PROSE = sorted(
    Path(name)
    for name in subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
COMMAND = re.compile(r"\btuner-tui ([a-z]+)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
FOREIGN_OPTIONS = {
    "--per_device_train_batch_size", "--dist", "--key", "--hypothesis-profile",
}  # fmt: skip
"""Options of other programs that the documentation mentions."""


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a Markdown page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (ROOT / name).read_text("utf-8") == PAGES[name](), "run `python -m tests.docs.reference`"


@pytest.mark.parametrize("page", PROSE, ids=str)
def test_links_lead_to_files(page: Path) -> None:
    text = (ROOT / page).read_text("utf-8")
    for target in LINK.findall(text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = unquote(target).partition("#")
        path = (ROOT / page.parent / name) if name else ROOT / page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text("utf-8")), target


@pytest.mark.parametrize("page", [page for page in PROSE if page.as_posix() not in PAGES], ids=str)
def test_commands_and_options_exist(page: Path) -> None:
    reference = commands()
    code = "\n".join(CODE.findall((ROOT / page).read_text("utf-8")))
    command_names = {*re.findall(r"^## tuner-tui ([a-z]+)", reference, re.MULTILINE)}
    assert set(COMMAND.findall(code)) <= command_names
    options_used = {option for line in code.splitlines() if "tuner-tui" in line for option in OPTION.findall(line)}
    assert options_used - FOREIGN_OPTIONS <= set(OPTION.findall(reference))


CAUSE = re.compile(r"^\| `([\w-]+)` \|", re.MULTILINE)


def test_every_cause_that_a_finding_may_name_is_listed() -> None:
    listed = {*CAUSE.findall(findings())}
    reported = {output.cause for output in whole_logs() if output.cause is not None}  # a test of each checks it
    for path in (ROOT / "tuner_tui" / "advice").rglob("*.py"):
        reported.update(re.findall(r'\b(?:finding|CrashCause)\(\s*"([\w-]+)"', path.read_text("utf-8")))
    assert len(reported) > 40
    assert reported - listed == set()


def test_every_key_has_an_explanation() -> None:
    assert not re.findall(r"\| +\|$", key_bindings(), re.MULTILINE)
