"""Notes on the box that matter before any setting: hidden, different, shared or sliced GPUs, a Python that cannot
train."""

from __future__ import annotations

from tuner_tui.advice.recommend.draft import RecommendationDraft
from tuner_tui.advice.recommend.target import GIB, other_processes_bytes
from tuner_tui.hardware.interpreter.compatibility import find_incompatibilities
from tuner_tui.settings.job import CommandJob


def note_environment(draft: RecommendationDraft) -> None:
    """Cards that torch cannot use, that differ, that are shared or sliced; a Python that cannot train."""
    _note_interpreter(draft)
    _note_gpus(draft)
    _note_shared_gpus(draft)


def _note_interpreter(draft: RecommendationDraft) -> None:
    interpreter = draft.target.interpreter
    if interpreter is None:
        draft.note("The Python that trains is not known: only what runs on every torch is recommended.")
        return
    if interpreter.problem is not None:
        draft.note(interpreter.problem)
    for misfit in find_incompatibilities(draft.target.inventory, interpreter):
        draft.note(f"{misfit.sentence} {misfit.advice}")
    build = draft.target.box.version_text("torch") or ""
    if not draft.target.on_gpu and ("rocm" in build or "xpu" in build):
        draft.note(f"torch {build} may use a card this program cannot see; what is recommended runs without one.")


def _note_gpus(draft: RecommendationDraft) -> None:
    target = draft.target
    inventory = target.inventory
    names = sorted({card.name for card in target.cards})
    if len(names) > 1:
        draft.note(f"Different cards ({', '.join(names)}): the weakest decides what all run, the smallest the batch.")
    if target.replicas > 1 and not isinstance(target.job, CommandJob):
        draft.note(
            f"One process spreads each batch over {target.replicas} cards; a command started by torchrun, one process "
            "a card, is faster."
        )
    if not target.spread_known:
        draft.note(
            "The batch counts for one card. Where the command holds a Trainer, its one process shares each step among "
            f"{len(target.cards)} cards, and the effective batch is as many times as large: its first steps tell."
        )
    if inventory.gpus and not target.cards and inventory.cuda_visible_devices is not None:
        draft.note(f"CUDA_VISIBLE_DEVICES={inventory.cuda_visible_devices} hides every card: this is for the CPU.")
    for card in target.cards:
        if card.mig:
            draft.note(f"{card.name} is sliced (MIG): the driver tells the memory of the whole card, not of the slice.")
        elif card.memory_total_bytes is None:
            draft.note(f"The driver does not tell the memory of {card.name}, which may share it with the processor.")


def _note_shared_gpus(draft: RecommendationDraft) -> None:
    for card in draft.target.cards:
        held = other_processes_bytes(card)
        if held and card.memory_total_bytes is not None:
            total = card.memory_total_bytes / GIB
            draft.note(
                f"Other programs hold {held / GIB:.1f} of {total:.1f} GiB of GPU {card.index}: the batch goes by the "
                "rest. Close other notebooks."
            )
