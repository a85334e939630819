"""Which queued runs may start now, and where. Pure: the machine and the queue go in, decisions with a reason come out.

A run is admitted where its expected peak fits into what is really free: the memory of a card less what all processes
hold of it, and less what runs that have started will still take (`claimed_bytes`). First in, first out. A later entry
may pass an earlier one only if that delays none: whichever of the present holders of memory leave, the earlier entries
fit together with the later one exactly when they fit without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from tuner_tui.core.units import format_size

RESERVE_SHARE = 0.05
"""Share of the memory kept free, as the allocator's fragmentation grows over a long run (as in `memory.estimate`)."""
MAX_ENUMERATED = 8
"""Holders and earlier entries up to which every combination is looked at; with more, passing counts as a delay."""
MAX_NAMED = 3
SPARE_CORES = 0.5
"""Cores of others that do not count: their load is never exactly 0."""

PlaceKind = Literal["gpu", "host"]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds memory of a place, in words (`alice: python train.py`, `run r012`); bytes None where unknown.

    The bytes are all that leave with it: what it holds, and what it has still claimed.
    """

    name: str
    held_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A card, or the host of a machine without cards, at one moment.

    `claimed_bytes` is promised to runs that have started and have not taken it yet. A `whole` place belongs to one run
    alone, whose need is not known. `problem` says why nothing can start here. `cores` and `free_cores` are None for a
    card. `occupied`: a run or a program of some size is there.
    """

    key: str
    label: str
    kind: PlaceKind = "gpu"
    total_bytes: int | None = None
    used_bytes: int | None = None
    claimed_bytes: int = 0
    whole: bool = False
    occupied: bool = False
    holders: tuple[Holder, ...] = ()
    cores: int | None = None
    free_cores: float | None = None
    problem: str | None = None

    @property
    def usable_bytes(self) -> int | None:
        """The memory that runs may take in all; None where the card does not report it."""
        return None if self.total_bytes is None else int(self.total_bytes * (1 - RESERVE_SHARE))

    @property
    def free_bytes(self) -> int | None:
        """What a run that starts now may take; None where unknown."""
        left = self.left_bytes
        return None if left is None else 0 if self.whole else max(0, left)

    @property
    def left_bytes(self) -> int | None:
        """The same, below 0 where more is taken or promised than a place has."""
        if self.usable_bytes is None or self.used_bytes is None:
            return None
        return self.usable_bytes - self.used_bytes - self.claimed_bytes


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run needs: so many places with `peak_bytes` each; None, the need is not known, takes whole places.

    `peak_bytes` is the upper end of an estimate and `low_bytes` its lower end. `cores` are for a host; None takes all.
    """

    kind: PlaceKind = "gpu"
    count: int = 1
    peak_bytes: int | None = None
    low_bytes: int | None = None
    cores: int | None = None
    rests_on: str = ""


@dataclass(frozen=True, slots=True)
class Applicant:
    """A queued run. `allowed` are the keys of the places it may use; None: all. `not_ready` says what it waits for
    besides a place: it is held, or another run has to end first. Other entries then ignore it."""

    entry: str
    demand: Demand
    allowed: frozenset[str] | None = None
    not_ready: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether an entry starts now, on the places `keys`, and why it waits otherwise, as a sentence."""

    entry: str
    keys: tuple[str, ...] = ()
    reason: str = ""

    @property
    def starts(self) -> bool:
        """Whether it starts now."""
        return bool(self.keys)


def fitted(demand: Demand, places: Sequence[Place]) -> Demand:
    """The demand; one that fits no place for certain, and may well fit an empty one, takes whole places."""
    sizes = [place.usable_bytes for place in places if place.kind == demand.kind and place.usable_bytes is not None]
    largest = max(sizes, default=None)
    if largest is None or demand.peak_bytes is None or demand.peak_bytes <= largest:
        return demand
    # Only the upper end of the estimate does not fit: alone on a card the run may well succeed, so it is not refused.
    low = demand.peak_bytes if demand.low_bytes is None else demand.low_bytes
    return replace(demand, peak_bytes=None) if low <= largest else demand


def decide(places: Sequence[Place], queue: Sequence[Applicant]) -> tuple[Decision, ...]:
    """One decision for each entry of the queue, in its order. What is admitted is taken from the places at once."""
    now = {place.key: place for place in places}
    earlier: list[Applicant] = []
    decisions = []
    for applicant in queue:
        decision = _decide(tuple(now.values()), applicant, earlier)
        # Later entries are judged as if this run had started already: two entries never get the same memory.
        for key in decision.keys:
            now[key] = _with_run(now[key], applicant)
        if not decision.starts and applicant.not_ready is None:
            earlier.append(applicant)
        decisions.append(decision)
    return tuple(decisions)


def _decide(places: Sequence[Place], applicant: Applicant, earlier: Sequence[Applicant]) -> Decision:
    if applicant.not_ready is not None:
        return Decision(applicant.entry, reason=applicant.not_ready)
    demand = applicant.demand
    candidates = [place for place in places if _could_ever_use(place, applicant)]
    if len(candidates) < demand.count:
        return Decision(applicant.entry, reason=_too_few(places, applicant, len(candidates)))
    free = [place for place in candidates if _fits(place, demand)]
    if len(free) < demand.count:
        return Decision(applicant.entry, reason=_waits_for_room(candidates, demand, len(free)))
    harmless = [place for place in free if not _delays(place, demand, _rivals(place, places, earlier))]
    if len(harmless) < demand.count:
        return Decision(applicant.entry, reason=_waits_its_turn(places, free, demand, earlier))
    best = sorted(harmless, key=_preference)[: demand.count]
    return Decision(applicant.entry, tuple(place.key for place in best), f"starts on {_labels(best)}")


def _preference(place: Place) -> tuple[bool, int, str]:
    """A place of its own first, as two trainings on one card slow each other down; then where it fits most tightly."""
    return place.occupied, place.free_bytes or 0, place.key


def _with_run(place: Place, applicant: Applicant) -> Place:
    """The place once the run has started there and taken nothing yet."""
    demand = applicant.demand
    holder = Holder(f"queued {applicant.entry}", demand.peak_bytes)
    cores = place.free_cores
    if cores is not None:
        cores = 0.0 if demand.cores is None else cores - demand.cores
    place = replace(place, holders=(*place.holders, holder), occupied=True, free_cores=cores)
    if demand.peak_bytes is None or place.free_bytes is None:
        return replace(place, whole=True)
    return replace(place, claimed_bytes=place.claimed_bytes + demand.peak_bytes)


def _could_ever_use(place: Place, applicant: Applicant) -> bool:
    """Whether the run could start there if the place were empty."""
    demand = applicant.demand
    if place.kind != demand.kind or place.problem is not None:
        return False
    if applicant.allowed is not None and place.key not in applicant.allowed:
        return False
    if demand.cores is not None and place.cores is not None and demand.cores > place.cores:
        return False
    usable = place.usable_bytes
    return usable is None or demand.peak_bytes is None or demand.peak_bytes <= usable


def _fits(place: Place, demand: Demand) -> bool:
    if place.whole or not _cores_fit(place, demand):
        return False
    if demand.peak_bytes is None or place.free_bytes is None:
        return not place.occupied
    return demand.peak_bytes <= place.free_bytes


def _cores_fit(place: Place, demand: Demand) -> bool:
    """Whether enough cores are left by those that other runs hold and other processes keep busy.

    The only run starts whatever others use: cores are shared by time, and one that waited until a shared machine is
    idle might never start.
    """
    if place.cores is None or place.free_cores is None or not place.occupied:
        return True
    return demand.cores is not None and demand.cores <= place.free_cores + SPARE_CORES


def _rivals(place: Place, places: Sequence[Place], earlier: Sequence[Applicant]) -> list[Demand]:
    """The demands of earlier entries that could use `place`; those that can start nowhere are no rivals."""
    found = []
    for one in earlier:
        candidates = [each.key for each in places if _could_ever_use(each, one)]
        if place.key in candidates and len(candidates) >= one.demand.count:
            found.append(one.demand)
    return found


def _delays(place: Place, demand: Demand, rivals: Sequence[Demand]) -> bool:
    """Whether a run with `demand` on `place` could make one of the `rivals` start later there."""
    if not rivals:
        return False
    free = place.left_bytes
    sizes = [rival.peak_bytes for rival in rivals if rival.peak_bytes is not None]
    if demand.peak_bytes is None or free is None or len(sizes) < len(rivals):
        return True
    if place.cores is not None:
        wanted = [demand.cores, *(rival.cores for rival in rivals)]
        if None in wanted or sum(each or 0 for each in wanted) > (place.free_cores or 0.0) + SPARE_CORES:
            return True
    # Memory comes free when holders leave, in an order that nobody knows. Each set of them that may have left gives a
    # level of free memory, and each set of rivals a need. The run delays somebody if at one level a set fits without it
    # and not with it: level - demand < need <= level. With many holders the sets are too many (2 to their number), and
    # with unknown ones the levels are unknown: then the run may pass only if all rivals fit beside it right now.
    leaving = [holder.held_bytes for holder in place.holders]
    known = [each for each in leaving if each is not None]
    if len(known) < len(leaving) or max(len(leaving), len(sizes)) > MAX_ENUMERATED:
        return free - demand.peak_bytes < sum(sizes)
    levels = {free + freed for freed in _sums(known)}
    needs = set(_sums(sizes)) - {0}
    return any(level - demand.peak_bytes < need <= level for level in levels for need in needs)


def _sums(sizes: Sequence[int]) -> Iterator[int]:
    """The sums of all subsets."""
    for count in range(len(sizes) + 1):
        yield from (sum(chosen) for chosen in combinations(sizes, count))


# Reasons


def describe_demand(demand: Demand) -> str:
    """`2 GPUs with 21.4 GiB each`, `1 whole GPU`, `3.1 GiB and 4 cores`."""
    size = None if demand.peak_bytes is None else format_size(demand.peak_bytes)
    if demand.kind == "host":
        cores = "all cores" if demand.cores is None else f"{demand.cores} core{'s' if demand.cores > 1 else ''}"
        return cores if size is None else f"{size} and {cores}"
    cards = f"{demand.count} {'' if size else 'whole '}GPU{'s' if demand.count > 1 else ''}"
    return cards if size is None else f"{cards} with {size}" + (" each" if demand.count > 1 else "")


def _too_few(places: Sequence[Place], applicant: Applicant, found: int) -> str:
    demand = applicant.demand
    known = [place for place in places if place.kind == demand.kind]
    broken = [place.problem for place in known if place.problem is not None]
    if demand.kind == "gpu" and not known:
        return f"It needs {describe_demand(demand)}; no GPU can be seen now."
    there = "this machine's memory and cores do not suffice" if demand.kind == "host" else f"{found} would do"
    why = f" ({'; '.join(broken)})" if broken else ""
    return f"It needs {describe_demand(demand)}; {there}, even empty{why}."


def _waits_for_room(candidates: Sequence[Place], demand: Demand, found: int) -> str:
    full = [place for place in candidates if not _fits(place, demand)]
    where = "; ".join(_occupation(place, demand) for place in full[:MAX_NAMED])
    where = where[:1].upper() + where[1:]
    more = f"; and {len(full) - MAX_NAMED} more" if len(full) > MAX_NAMED else ""
    ready = f", {found} would do now" if found else ""
    return f"It needs {describe_demand(demand)}{ready}. {where}{more}."


def _occupation(place: Place, demand: Demand) -> str:
    """`GPU 0 has 3.2 GiB free (alice: python train.py 61 GiB, run r012 14 GiB)`."""
    holders = sorted(place.holders, key=lambda holder: -(holder.held_bytes or 0))
    named = [
        holder.name + ("" if holder.held_bytes is None else f" {format_size(holder.held_bytes)}")
        for holder in holders[:MAX_NAMED]
    ]
    if len(holders) > MAX_NAMED:
        named.append(f"{len(holders) - MAX_NAMED} more")
    who = f" ({', '.join(named)})" if named else ""
    if place.whole:
        return f"{place.label} is taken as a whole{who}"
    if place.free_cores is not None and not _cores_fit(place, demand):
        if demand.cores is None:
            return f"{place.label} is in use{who}"
        return f"{place.label} has {max(0.0, place.free_cores):.1f} of {place.cores} cores free{who}"
    if place.free_bytes is None or demand.peak_bytes is None:
        return f"{place.label} is in use{who}"
    return f"{place.label} has {format_size(place.free_bytes)} free{who}"


def _waits_its_turn(
    places: Sequence[Place], free: Sequence[Place], demand: Demand, earlier: Sequence[Applicant]
) -> str:
    place = next(place for place in free if _delays(place, demand, _rivals(place, places, earlier)))
    first = next(one.entry for one in earlier if _rivals(place, places, [one]))
    return f"There is room on {_labels(free)}, but starting now would delay {first}, which came first."


def _labels(places: Sequence[Place]) -> str:
    return ", ".join(place.label for place in places)
