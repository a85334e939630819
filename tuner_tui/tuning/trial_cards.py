"""Where trials run: on this machine, one at a time or one on each of its cards, or on the workers of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tuner_tui.hardware.detect import read_inventory
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.tuning.trial import Trial
from tuner_tui.tuning.trial_runner import TrialCallbacks, TrialReport, TrialRunner
from tuner_tui.tuning.trial_share import bind

NO_CARD_LEFT = "All GPUs or workers that trials ran on are gone."


class CardLostError(Exception):
    """The card or the worker of a trial is gone."""


class TrialCards(Protocol):
    """Runs trials, at most one at a time on each of `cards`; several threads call it."""

    @property
    def cards(self) -> tuple[str | None, ...]:
        """The names of the cards or workers; (None,) if trials run one at a time on the whole machine."""

    @property
    def inventory(self) -> Inventory:
        """The machine as each of the trials sees it."""

    def run(self, card: str | None, runner: TrialRunner, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        """Run a trial to its end. Raises `CardLostError` if its card is gone, `LaunchError`."""


@dataclass(frozen=True)
class LocalCards:
    """The cards of this machine. `inventory` is what each trial sees of it."""

    inventory: Inventory
    cards: tuple[str | None, ...] = (None,)

    def run(self, card: str | None, runner: TrialRunner, trial: Trial, callbacks: TrialCallbacks) -> TrialReport:
        """See `TrialCards.run`."""
        if card is None:
            return runner.run(trial, callbacks)
        bound = bind(runner.base, card, self.inventory.cpu.usable_cores)
        report = replace(runner, base=bound).run(trial, callbacks)
        if report.measurement.outcome not in ("measured", "aborted") and not self.is_present(card):
            raise CardLostError(card)
        return report

    def is_present(self, card: str) -> bool:
        """Return whether the driver shows the card; true if it shows none, as when it does not answer."""
        shown = {gpu.uuid for gpu in read_inventory(Path("/")).gpus}
        return not shown or card in shown
