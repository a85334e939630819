"""What does not fit between the box and the Python that trains, as findings: known before any run."""

from __future__ import annotations

from tuner_tui.advice.finding import Finding, Remedy
from tuner_tui.hardware.compatibility import misfits
from tuner_tui.hardware.interpreter import Interpreter
from tuner_tui.hardware.inventory import Inventory


def box_findings(inventory: Inventory | None, interpreter: Interpreter | None) -> tuple[Finding, ...]:
    """A finding for each misfit; none where box or interpreter is not known."""
    if inventory is None or interpreter is None:
        return ()
    return tuple(
        Finding(
            cause=f"misfit-{number}",
            severity="warning",
            sentence=misfit.sentence,
            evidence=(interpreter.path,),
            confidence="certain",
            where="interpreter",
            remedies=(Remedy(misfit.advice, "The settings cannot make up for it."),),
        )
        for number, misfit in enumerate(misfits(inventory, interpreter))
    )
