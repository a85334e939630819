"""The search with several trials at once, one on each card, whose measurements arrive in any order.

It takes the same decisions as the search with one trial at a time: it replays that on the trials that were measured.
Cards that would be idle run what that search will propose if the trials under way bring what such changes usually
bring, the likeliest first. What it does not come to is not used.

Each card runs the start first: what it measures later is taken relative to that. The starts themselves are taken as
they are, so that the difference between the cards counts as noise. Both runs of a pair are made on the same card.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tuner_tui.settings.model import Settings
from tuner_tui.tuning.search.conclusion import Confirmation, median_run
from tuner_tui.tuning.search.micro_batch import MicroBatchSizes
from tuner_tui.tuning.search.results import SearchContext, same_memory_line
from tuner_tui.tuning.search.search import Search
from tuner_tui.tuning.search.space import PERSISTENT, PIN, PREFETCH, WORKERS, SearchSpace
from tuner_tui.tuning.trial import CompletedTrial, Measurement, SkippedChange, Trial, TuningConclusion

MAX_LOSSES = 2
"""Times that a trial is proposed again because its card or worker was lost; the next time it has failed."""
# Assumptions, not measurements. They decide only which trial is started early on an idle card, never what wins: a wrong
# one wastes a trial. tests/benchmarks/tuning/parallel_speed.py shows how much faster several cards are with them.
CHANCE = 0.6
"""Chance that a change becomes part of the best settings, if it was not tried with others."""
KNOWN_CHANCE = 0.85
"""Chance that a change does again what it did with other settings."""
USUAL_SHARE = 0.4
"""Usual share of its bound that a change of the computation gains."""
LEFT = 0.2
"""Share of a step's part (data wait, optimizer, padding) that is left after a change that makes it shorter."""
UNBOUNDED_GAIN = 0.1
"""What a change without a bound is assumed to gain."""
MAX_BRANCHES = 16
"""Number of imagined courses of the search that are looked at for the next trial."""


LOADER = frozenset({WORKERS, PREFETCH, PERSISTENT, PIN})


@dataclass(frozen=True)
class ParallelSearch:
    """A search from `start` within `space` on `cards`, after `trials`, while those `under_way` run.

    `lost` has a trial each time its card or worker was lost. With `compare_only`, nothing more is changed.
    """

    start: Settings
    space: SearchSpace
    cards: tuple[str, ...]
    trials: tuple[CompletedTrial, ...] = ()
    compare_only: bool = False
    under_way: tuple[Trial, ...] = ()
    lost: tuple[Trial, ...] = ()

    def propose(self, idle: Sequence[str]) -> tuple[Trial, ...]:
        """Return the next trials for the `idle` cards, at most one each; none at the end of the search."""
        if self.finished:
            return ()
        number = 1 + max((one.number for one in (*self._started, *self.lost)), default=0)
        found = tuple(self._next_trials(idle))
        new = [one for one in found if not one.number]
        return tuple(one if one.number else replace(one, number=number + new.index(one)) for one in found)

    def started(self, trial: Trial) -> ParallelSearch:
        """Return the search while `trial` is under way."""
        return replace(self, under_way=(*self.under_way, trial))

    def record(self, trial: Trial, measurement: Measurement) -> ParallelSearch:
        """Return the search with the measurement of `trial`, which is no longer under way."""
        return replace(self._without(trial), trials=(*self.trials, CompletedTrial(trial, measurement)))

    def lose(self, trial: Trial) -> ParallelSearch:
        """Return the search after the card or the worker of `trial` was lost: it is proposed again, or has failed."""
        if sum(one.number == trial.number for one in self.lost) < MAX_LOSSES:
            return replace(self._without(trial), lost=(*self.lost, trial))
        sentence = f"Its worker was lost {MAX_LOSSES + 1} times."
        return self.record(trial, Measurement(outcome="failed", seconds=0.0, sentence=sentence, passing=True))

    @property
    def finished(self) -> bool:
        """Whether the search is at its end, so that what is still under way is not needed."""
        return not self.proposals

    @property
    def proposals(self) -> tuple[Trial, ...]:
        """What the search waits for, whether it is under way or not; empty at the end."""
        return self.path.proposals

    @property
    def best(self) -> CompletedTrial | None:
        """The latest trial of the fastest settings that fit, or None."""
        return self.path.best

    @property
    def skipped(self) -> tuple[SkippedChange, ...]:
        """The changes that are not tried, and why."""
        return self.path.skipped

    @property
    def conclusion(self) -> TuningConclusion:
        """The conclusion from the trials so far, as if the search ended here."""
        return self.path.conclusion

    def remaining_s(self) -> tuple[float, float] | None:
        """Return the minimum and maximum seconds still needed; None before the first measurement."""
        return self.path.remaining_s()

    @cached_property
    def path(self) -> Search:
        """The search with one trial at a time, as far as the trials it proposes were measured."""
        return self._replayed[0]

    @cached_property
    def _replayed(self) -> tuple[Search, tuple[CompletedTrial, ...]]:
        """The path, and the trials that are not on it."""
        search, spare = Search(self.start, self.space, (), self.compare_only), list(self._comparable)
        # The order in which trials ended does not matter: the replay takes of all measurements the one that the search
        # asks for next, and stops where it has to wait for one.
        while (trial := search.propose()) is not None:
            wanted = _wanted(trial, search)
            found = next((one for one in spare if _answers(one.trial, wanted)), None)
            if found is None:
                break
            spare.remove(found)
            search = search.record(trial, found.measurement)
        return search, tuple(spare)

    @cached_property
    def _comparable(self) -> tuple[CompletedTrial, ...]:
        """The completed trials, comparable, without halves of pairs that lost their card."""
        halves = [(one.trial.card, one.trial.base, _pair_of(one.trial)) for one in self.trials]
        kept = (
            one
            for one, half in zip(self.trials, halves, strict=True)
            if one.trial.pair is None or one.trial.card in self.cards or halves.count(half) > 1
        )
        return comparable(tuple(kept), self._reference)

    @property
    def _started(self) -> tuple[Trial, ...]:
        return (*self.under_way, *(one.trial for one in self.trials))

    def _without(self, trial: Trial) -> ParallelSearch:
        return replace(self, under_way=tuple(one for one in self.under_way if one.number != trial.number))

    @property
    def _waiting(self) -> list[Trial]:
        """The lost trials that have not been started again."""
        started = {one.number for one in self._started}
        return list(dict.fromkeys(one for one in self.lost if one.number not in started))

    @property
    def _reference(self) -> Settings | None:
        """The settings that each card runs first: the start, or the first that run; None if none are known to."""
        if not self.trials:
            return SearchContext(self.start, self.space).start
        return next((one.trial.settings for one in self.trials if one.measurement.outcome == "measured"), None)

    def _next_trials(self, idle: Sequence[str]) -> Iterator[Trial]:
        """What to run on the idle cards: lost trials, the reference where it has not run, and what may be needed."""
        left, reference = list(idle), self._reference
        for trial in self._waiting:
            card = next((one for one in left if self._may_run(trial, one)), None)
            if card is not None:
                left.remove(card)
                yield replace(trial, card=card)
        ran = {one.card for one in (*self._started, *self._waiting) if one.settings == reference}
        for card in tuple(left):
            if reference is not None and card not in ran:
                left.remove(card)
                yield self._reference_trial(reference, card)
        if self.trials:  # nothing can be imagined before the first measurement
            yield from self._ahead(left)

    def _reference_trial(self, reference: Settings, card: str) -> Trial:
        if card == self.cards[0]:
            return Trial(number=0, purpose="start", settings=reference, reason="the settings as given", card=card)
        reason = "the same on this GPU, to compare its other runs with"
        return Trial(number=0, purpose="noise", settings=reference, reason=reason, card=card)

    def _ahead(self, idle: Sequence[str]) -> Iterator[Trial]:
        """The trials that may be needed and are not under way, the likeliest first, as many as can run."""
        # A tree of courses that the search may take, the likeliest first (a heap by negative chance). At each course
        # the search proposes its next trial. If that was measured or runs already, the course goes on with its result
        # (or with imagined ones); if not, it is started on an idle card, which is what the search would do next if that
        # course came true. The number in each item keeps the order of equal chances, since searches cannot be compared.
        search, spare = self._replayed
        left, known = list(idle), Effects(self._comparable)
        runs: list[tuple[Trial, Measurement | None]] = [(one.trial, one.measurement) for one in spare]
        runs += [(one, None) for one in (*self.under_way, *self._waiting)]
        branches: list[tuple[float, int, Search, frozenset[int]]] = [(-1.0, 0, search, frozenset())]
        for count in range(MAX_BRANCHES):
            if not branches or not left:
                return
            chance, _, search, used = heapq.heappop(branches)
            trial = search.propose()
            if trial is None:
                continue
            wanted = _wanted(trial, search)
            place = next((n for n, (one, _) in enumerate(runs) if n not in used and _answers(one, wanted)), None)
            if place is None:
                card = next((one for one in left if self._may_run(wanted, one)), None)
                if card is not None:
                    left.remove(card)
                    place = len(runs)
                    runs.append((replace(wanted, card=card, number=0), None))
                    yield runs[-1][0]
            measured = None if place is None else runs[place][1]
            outcomes = imagine(trial, search, known) if measured is None else [(1.0, measured)]
            used = used if place is None else used | {place}
            for branch, (likely, found) in enumerate(outcomes):
                heapq.heappush(branches, (chance * likely, 2 * count + branch + 1, search.record(trial, found), used))

    def _may_run(self, trial: Trial, card: str) -> bool:
        """Whether the trial may run on this card: the second run of a pair follows the first on the same card."""
        if trial.settings == self._reference and trial.pair is None and trial.card is not None:
            return trial.card == card or trial.card not in self.cards
        # The first run of a pair may be made anywhere. The second one has to follow it on its card, which is measured
        # against itself: cards of one kind differ by some percent, as much as the gains that are to be confirmed.
        if trial.pair is None or trial.pair % 2 == 0:
            return True
        return any((one.pair, one.base, one.card) == (trial.pair - 1, trial.base, card) for one in self._started)


def _pair_of(trial: Trial) -> int | None:
    return None if trial.pair is None else trial.pair // 2


def _wanted(trial: Trial, search: Search) -> Trial:
    """The trial that `search` proposes; if it confirms, with its place in the comparison."""
    if trial.purpose != "confirm":
        return trial
    confirmed = [one for one in search.trials if one.trial.purpose == "confirm"]
    winner = Confirmation(SearchContext(search.start, search.space, search.trials)).candidate
    return replace(trial, pair=len(confirmed), base=None if winner is None else winner.settings)


def _answers(ran: Trial, wanted: Trial) -> bool:
    """Whether a trial is what is wanted: of these settings, and in the same place if it is part of a comparison."""
    return (ran.settings, ran.pair, ran.base) == (wanted.settings, wanted.pair, wanted.base)


def comparable(trials: Sequence[CompletedTrial], reference: Settings | None) -> tuple[CompletedTrial, ...]:
    """Return the trials with the throughput that they would have on the average card, by its run of `reference`.

    These first runs stay as they are, so that the difference between the cards counts as noise.
    """
    first: dict[str, int] = {}
    for place, one in enumerate(trials):
        if one.trial.card is not None and one.trial.settings == reference and one.measurement.throughput:
            first.setdefault(one.trial.card, place)
    rates = {card: trials[place].measurement.throughput or 1.0 for card, place in first.items()}
    mean = statistics.geometric_mean(rates.values()) if rates else 1.0
    kept = set(first.values())
    return tuple(
        one
        if place in kept or one.trial.card not in rates
        else replace(one, measurement=_scaled(one.measurement, mean / rates[one.trial.card]))
        for place, one in enumerate(trials)
    )


class Effects:
    """What changes of single values did to the throughput in the trials so far."""

    def __init__(self, trials: Sequence[CompletedTrial]) -> None:
        self._rates: dict[Settings, float] = {}
        for one in trials:
            if one.measurement.throughput:
                self._rates.setdefault(one.trial.settings, one.measurement.throughput)

    def ratio(self, before: Settings, after: Settings) -> float | None:
        """Return what the change from `before` to `after` did with other settings; None if it was not tried."""
        names = [name for name in Settings.model_fields if getattr(after, name) != getattr(before, name)]
        changed = {name: getattr(after, name) for name in names}
        undone = {name: getattr(before, name) for name in names}
        for settings, rate in self._rates.items():
            if all(getattr(settings, name) == value for name, value in changed.items()):
                other = self._rates.get(settings.changed(**undone))
                if other is not None:
                    return rate / other
        return None


def imagine(trial: Trial, search: Search, known: Effects) -> list[tuple[float, Measurement]]:
    """Return what `trial` may measure after the trials of `search`, with the chance of each."""
    context = SearchContext(search.start, search.space, search.trials)
    same = context.results.get(trial.settings)
    if same is not None and same.throughput:
        return [(1.0, median_run(same))]
    best = context.best
    if best is None or not best.throughput:
        return [(1.0, Measurement(outcome="out-of-memory", seconds=0.0))]
    run, noise = _with_memory(median_run(best), trial, MicroBatchSizes(context, best)), context.results.noise
    ratio = known.ratio(best.settings, trial.settings)
    chance = CHANCE if ratio is None else KNOWN_CHANCE if ratio > 1 + noise else 1 - KNOWN_CHANCE
    faster = _faster(run, trial, None if ratio is None else ratio - 1, 2 * noise)
    slower = _scaled(run, 1 / (1 + noise) if ratio is None else min(ratio, 1 / (1 + noise)))
    return [(chance, faster), (1 - chance, slower)]


def _with_memory(run: Measurement, trial: Trial, sizes: MicroBatchSizes) -> Measurement:
    """The run with the memory of another micro batch by the memory model; unknown if there is none or knobs differ."""
    micro, model = trial.settings.per_device_train_batch_size, sizes.memory_model()
    expected = 0.0 if model is None else model.peak_bytes(sizes.micro)
    if (
        model is None
        or run.peak_bytes is None
        or expected <= 0
        or not same_memory_line(trial.settings, sizes.current.settings)
    ):
        return replace(run, peak_bytes=None, batch_peak_bytes=None, resident_bytes=None)
    scale = run.peak_bytes / expected
    line = int(scale * (model.base_bytes + model.slope_bytes * micro))
    return replace(run, peak_bytes=int(scale * model.peak_bytes(micro)), batch_peak_bytes=run.batch_peak_bytes and line)


def _faster(run: Measurement, trial: Trial, gain: float | None, least: float) -> Measurement:
    """The run after a change that gains this, or what is usual, and at least `least`, with the step's new parts."""
    parts, knob = run.breakdown, trial.changed[0] if trial.changed else ""
    wait, optimizer, padding = parts.data_wait or 0.0, parts.optimizer or 0.0, parts.padding
    computing = 1 - wait - optimizer
    if knob in LOADER:
        wait *= LEFT
    elif knob == "optim":
        optimizer *= LEFT
    elif knob == "train_sampling_strategy" and padding is not None:
        computing, padding = computing * (1 - padding * (1 - LEFT)), padding * LEFT
    else:
        usual = UNBOUNDED_GAIN if trial.bound is None or math.isinf(trial.bound) else trial.bound * USUAL_SHARE
        computing = max(computing * LEFT, computing - (1 - 1 / (1 + (usual if gain is None else max(0.0, gain)))))
    total = wait + optimizer + computing
    found = 1 / total - 1 if gain is None else gain
    breakdown = replace(parts, data_wait=wait / total, optimizer=optimizer / total, padding=padding)
    return replace(_scaled(run, 1 + max(found, least)), breakdown=breakdown)


def _scaled(run: Measurement, factor: float) -> Measurement:
    """The measurement with `factor` times the throughput."""
    return replace(
        run,
        samples_s=None if run.samples_s is None else run.samples_s * factor,
        tokens_s=None if run.tokens_s is None else run.tokens_s * factor,
        step_time_s=None if run.step_time_s is None else run.step_time_s / factor,
    )
