"""What is wrong with the Python that trains, by itself or beside the cards, as findings: known before any run."""

from __future__ import annotations

from collections.abc import Iterator

from tuner_tui.advice.checkup import missing_packages
from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.hardware.interpreter.compatibility import find_incompatibilities
from tuner_tui.hardware.interpreter.probe import Interpreter
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.settings.job import BuiltinJob, CommandJob

ANOTHER = Remedy(
    "choose another Python: e edits the job", "It is the Python of your training environment that is needed."
)


def box_findings(
    inventory: Inventory | None, interpreter: Interpreter | None, job: BuiltinJob | CommandJob | None
) -> tuple[Finding, ...]:
    """A finding for each package that is missing or does not fit; none where box or interpreter is not known."""
    if inventory is None or interpreter is None:
        return ()
    return (*_missing(interpreter, job), *_unfit(inventory, interpreter))


def _missing(interpreter: Interpreter, job: BuiltinJob | CommandJob | None) -> Iterator[Finding]:
    names = () if job is None else missing_packages(interpreter, job)
    if names and interpreter.python_version is not None:
        install = Remedy(
            f"{interpreter.path} -m pip install {' '.join(names)}", "Without these packages the training cannot begin."
        )
        yield _finding("missing-package", f"{interpreter.path} has no {' and no '.join(names)}.", (install, ANOTHER))
    elif interpreter.problem is not None:
        yield _finding("interpreter", interpreter.problem, (ANOTHER,))


def _unfit(inventory: Inventory, interpreter: Interpreter) -> Iterator[Finding]:
    for number, misfit in enumerate(find_incompatibilities(inventory, interpreter)):
        remedy = Remedy(misfit.advice, "The settings cannot make up for it.")
        yield _finding(f"misfit-{number}", misfit.sentence, (remedy,), interpreter.path)


def _finding(cause: str, sentence: str, remedies: tuple[Remedy, ...], *evidence: str) -> Finding:
    return Finding(cause, "warning", sentence, evidence, "certain", "interpreter", remedies)
