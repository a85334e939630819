"""The cards on which nothing runs, as the queue sees them, for trials side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner_tui.hardware.environment import visible_cards
from tuner_tui.hardware.inventory import Inventory
from tuner_tui.runs.queue.cards import cards_now
from tuner_tui.runs.queue.turns import Card
from tuner_tui.runs.store.folder import runs_dir
from tuner_tui.settings.distributed import best_kind, process_count
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.job import Job

NO_CARDS = (
    "Trials side by side need GPUs: those that share the cores and the memory bus of one processor slow each other "
    "down, so that their figures would not compare."
)


def free_cards(job: Job, inventory: Inventory, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the UUIDs of the free cards that trials of `job` may use.

    Raises `SettingsError` if there are none, or a trial takes several.
    """
    ensure_one_process(job)
    if not inventory.gpus:
        raise SettingsError(NO_CARDS)
    return choose_cards(inventory, cards_now(runs_dir(environ)))


def ensure_one_process(job: Job) -> None:
    """Raise `SettingsError` if a trial of `job` takes several GPUs."""
    processes = process_count(job, 1)
    if processes > 1:
        raise SettingsError(f"Trials side by side get one GPU each, but this training starts {processes} processes.")


def choose_cards(inventory: Inventory, cards: Sequence[Card]) -> tuple[str, ...]:
    """Return the UUIDs of the free cards of the best kind. Raises `SettingsError` if there are none."""
    free = {card.uuid for card in cards if card.holder is None}
    gpus = tuple(gpu for gpu in visible_cards(inventory) if gpu.uuid in free)
    if not gpus:
        holders = [f"{card.label}: {card.holder}" for card in cards if card.holder is not None]
        raise SettingsError(f"No GPU is free for trials ({'; '.join(holders) or 'none is visible here'}).")
    return tuple(gpu.uuid for gpu in best_kind(gpus) if gpu.uuid is not None)
