"""The changes worth a trial, ranked by the maximum gain of each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace

from tuner_tui.advice.finding import speed_words
from tuner_tui.core.units import format_share
from tuner_tui.settings.model import FIELDS, Settings
from tuner_tui.tuning.search import knobs
from tuner_tui.tuning.search.baseline import fields_not_applied
from tuner_tui.tuning.search.knobs import SAMPLING, KnobChange, knob_changes, loader_changes
from tuner_tui.tuning.search.micro_batch import MicroBatchSizes, group_by_knobs, knobs_of
from tuner_tui.tuning.search.results import MAX_SLOWDOWN, SearchContext, SettingsResult, is_better
from tuner_tui.tuning.search.space import CHECKPOINTING, MICRO, NOT_REACHED, PERSISTENT, PIN, PREFETCH, WORKERS
from tuner_tui.tuning.trial import SkippedChange, Trial

RETRY_BOUND_GROWTH = 2.0
"""Growth of the bound after which a rejected change is tried again: other changes have shifted the time of a step."""
RETRY_MICRO_GROWTH = 4
"""The same of the micro batch for knobs of the computation: small ones may be bound by the launches of kernels."""


SAME_WAIT = 0.9
"""The share of a wait for data from which another one is as long."""
SAME_SHARE = 0.02
"""Growth of a share of a step up to which it is the same."""
HARMLESS = {"precision", "tf32", "optim", SAMPLING, PREFETCH, PERSISTENT, PIN}
"""Knobs of which no value to be tried is much slower than the one before."""


class Candidates(Struct, frozen=True):
    """The changes away from the best settings of `context`, or from the start if nothing ran."""

    context: SearchContext

    def trials(self) -> list[Trial]:
        """Return a trial of each change worth trying, the most promising first."""
        return [
            Trial(
                number=0,
                purpose="batch" if change.knob == MICRO else "knob",
                settings=self._after(change),
                reason=change.reason
                if change.bound is None or math.isinf(change.bound)
                else f"at most {speed_words(1 + change.bound)}: {change.reason}",
                changed=tuple(change.values),
                bound=change.bound,
                base=self._base,
            )
            for change in self.changes()
        ]

    def repeats(self) -> list[Trial]:
        """Return the trials to run again: one that was slower than its change can make it may have been disturbed."""
        results, again = self.context.results, []
        for trial in (completed.trial for completed in self.context.trials):
            after, before = results.get(trial.settings), None if trial.base is None else results.get(trial.base)
            if not after or not before or not before.throughput or not after.rates:
                continue
            is_batch = self.context.space.on_gpu and _is_larger_batch_alone(before, after)
            if not (is_batch or HARMLESS.issuperset(trial.changed)):
                continue
            expected = before.throughput if len(after.runs) == 1 else max(after.rates)
            slowdown = results.noise if is_batch and len(after.runs) == 1 else MAX_SLOWDOWN
            if len(after.runs) < 3 and min(after.rates) < expected * (1 - slowdown):
                again.append(replace(trial, reason="slower than this change explains: measured again"))
        return again

    def changes(self) -> list[KnobChange]:
        """Return the changes worth a trial, in descending order of their bounds.

        Changes without a bound come last, except for the micro batch, which comes first.
        """
        return sorted((change for change in self._all_changes() if self.objection(change) is None), key=_rank)

    def skipped(self) -> tuple[SkippedChange, ...]:
        """Return the changes that are not worth a trial, and why."""
        best = self.context.best
        if best is None:
            return ()
        rejected = [
            SkippedChange(knob=change.knob, value=change.value, reason=objection)
            for change in self._all_changes()
            if not change.from_other and (objection := self.objection(change))
        ]
        return (*JointMoves(self.context, best).skipped(), *rejected)

    def objection(self, change: KnobChange) -> str | None:
        """Return why a change is not tried (empty if it was tried already), or None if it is worth a trial."""
        space, results = self.context.space, self.context.results
        fields = {name for name, value in change.values.items() if value != getattr(self._base, name)}
        if fields and fields <= space.unreachable:
            return NOT_REACHED
        if blocked := fields & space.unreachable:
            names = " and ".join(FIELDS[name].label for name in sorted(blocked))
            return f"{names} would have to change with it and cannot be passed to this command; --free-batch leaves it"
        for completed in self.context.trials:  # which showed that the training ignores a field, or gets other data
            is_refused = completed.measurement.outcome in ("not-applied", "other-data")
            if is_refused and fields & set(fields_not_applied(completed)):
                return completed.measurement.sentence or "it has no effect on this training"
        if results.get(self._after(change)) is not None or self._was_rejected(change):
            return ""
        refused = space.refusal(self._base, change.values)
        if refused is not None:
            return refused
        if change.bound is not None and change.bound <= 0:
            return f"no gain possible: {change.reason}"
        best, gain = self.context.best, change.bound
        if gain is not None and best is not None and not change.from_other:
            gain = best.gain(gain)  # of the whole job, if its time counts
        if gain is not None and gain <= results.noise:
            noise, whole = _format_bound(results.noise).lstrip("+"), " of the whole job" if results.job else ""
            return f"at most {_format_bound(gain)}{whole} ({change.reason}), within the noise of {noise}"
        return None

    def _all_changes(self) -> Iterator[KnobChange]:
        best = self.context.best
        if best is not None:
            yield from JointMoves(self.context, best).changes()
            yield from knob_changes(best, self.context.space)

    @property
    def _base(self) -> Settings:
        best = self.context.best
        return self.context.start if best is None else best.settings

    def _after(self, change: KnobChange) -> Settings:
        return self._base.changed(**change.values)

    def _was_rejected(self, change: KnobChange) -> bool:
        """Whether the change was tried with other settings, and its bound has not grown much since."""
        # A bound is the share of a step that the change concerns. Once the loader no longer waits, the share of the
        # computation grows, so compiling may pay that gained nothing before. Micro batches are not compared by their
        # values: each size is tried at most once with the same knobs, and its search has its own end.
        for completed in self.context.trials:
            if change.knob not in completed.trial.changed or change.knob == MICRO:
                continue
            if any(getattr(completed.trial.settings, name) != value for name, value in change.values.items()):
                continue
            grown = self._base.per_device_train_batch_size / completed.trial.settings.per_device_train_batch_size
            if change.knob in knobs.COMPUTE and grown >= RETRY_MICRO_GROWTH:
                continue
            if self._says_little(completed.trial):
                continue
            if completed.measurement.outcome != "measured" or completed.trial.bound is None or change.bound is None:
                return True
            if change.bound < RETRY_BOUND_GROWTH * completed.trial.bound:
                return True
        return False

    def _says_little(self, trial: Trial) -> bool:
        """Whether a trial, though it did not become the best, does not speak against its change: it was faster than the
        settings it changed, or these, as another GPU had it at that time, had another micro batch."""
        results, base = self.context.results, trial.base
        if base is None:
            return False
        before, after = results.get(base), results.get(trial.settings)
        if before is not None and after is not None and results.fits(after) and is_better(after, before, results.noise):
            return True
        return trial.gpu is not None and base.per_device_train_batch_size != self._base.per_device_train_batch_size


def _is_larger_batch_alone(before: SettingsResult, after: SettingsResult) -> bool:
    """Whether the micro batch grew and nothing else did: neither another setting nor the shares of padding and wait."""
    grew = after.micro > before.micro and knobs_of(after.settings) == knobs_of(before.settings)
    old, new = before.breakdown, after.breakdown
    parts = ((old.padding, new.padding), (old.data_wait, new.data_wait))
    return grew and all((later or 0.0) - (earlier or 0.0) <= SAME_SHARE for earlier, later in parts)


def _rank(change: KnobChange) -> tuple[float, int]:
    bound = change.bound
    if bound is None:
        bound = math.inf if change.knob == MICRO else 0.0
    return -bound, list(FIELDS).index(change.knob)


def _format_bound(bound: float) -> str:
    return format_share(bound, 1 if bound < 0.1 else 0, signed=True)


class JointMoves(Struct, frozen=True):
    """Changes away from `best`, the best result of `context`."""

    context: SearchContext
    best: SettingsResult

    def changes(self) -> Iterator[KnobChange]:
        """Yield other micro batches for the best knobs and for knobs that could overtake them, and joint changes."""
        sizes = MicroBatchSizes(self.context, self.best)
        for size in (sizes.larger(), sizes.doubled(), sizes.smaller(), sizes.whole_tiles()):
            if size is not None:
                yield self._change(MICRO, sizes.with_micro(size.micro), size.bound, size.reason)
        yield from self._overtaking()
        yield from self._without_padding()
        yield from self._checkpointing_on(sizes)
        yield from self._checkpointing_off(sizes)
        yield from self._smaller_after_failure()
        yield from self._without_workers()

    def skipped(self) -> tuple[SkippedChange, ...]:
        """Return the micro batches that cannot be tried, and why."""
        sizes, space = MicroBatchSizes(self.context, self.best), self.context.space
        if space.capacity_bytes is None and sizes.micro < sizes.largest:
            why = "the memory limit is unknown; set --memory-limit"
            return (SkippedChange(knob=MICRO, value=f"above {sizes.micro}", reason=why),)
        effective, allowed = self.context.start.effective_batch(), sizes.allowed
        if allowed is not None and effective > 3 and len(allowed) == 2:
            why = f"the effective batch of {effective} is prime: only 1 and {effective} divide it"
            return (SkippedChange(knob=MICRO, value=f"2 … {effective - 1}", reason=why),)
        if allowed is not None and sizes.micro == sizes.largest and sizes.largest < space.max_micro:
            why = f"no larger micro batch divides the effective batch of {effective} (--free-batch lets it change)"
            return (SkippedChange(knob=MICRO, value=f"above {sizes.micro}", reason=why),)
        return ()

    def _overtaking(self) -> Iterator[KnobChange]:
        """Larger sizes, and a faster loader, for knobs that were slower than the best at the sizes tried so far."""
        # Changing one knob at a time ends in a local optimum: bf16 at micro batch 8 may be slower than fp32 at 32,
        # while bf16 at 64 would be fastest. So the best result of each group of equal knobs is extended as well. The
        # bound is relative to the overall best: the present ratio to it times what the larger size can still gain.
        results = self.context.results
        for group in group_by_knobs(results.results):
            fastest = results.fastest_fitting(group)
            if fastest is None or knobs_of(fastest.settings) == knobs_of(self.best.settings):
                continue
            yield from self._faster_loader(fastest)
            sizes = MicroBatchSizes(self.context, fastest)
            size = sizes.larger()
            if size is not None:
                bound = None if size.bound is None else self._ratio_to_best(fastest) * (1 + size.bound) - 1
                reason = f"slower at {fastest.micro}, but leaves room: {size.reason}"
                yield self._change(MICRO, sizes.with_micro(size.micro), bound, reason)

    def _faster_loader(self, result: SettingsResult) -> Iterator[KnobChange]:
        """A faster loader for knobs that compute faster than the best, but waited for data."""
        # Of two results that both wait for data, the one that computes faster wins once nothing waits.
        gain, best_gain = (knobs.gain_without(measured.breakdown.data_wait) or 0.0 for measured in (result, self.best))
        if self._ratio_to_best(result) * (1 + gain) <= (1 + best_gain) * (1 + self.context.results.noise):
            return
        for change in loader_changes(result.settings, result.breakdown, self.context.space):
            if change.bound is not None:
                bound = self._ratio_to_best(result) * (1 + change.bound) - 1
                reason = "computation was faster, but waited for data"
                yield self._change(change.knob, result.settings.changed(**change.values), bound, reason)

    def _without_padding(self) -> Iterator[KnobChange]:
        """Samples of similar lengths, for the result that would be fastest if nothing were padded.

        A larger micro batch is padded more, so that it may be slower until its samples have similar lengths.
        """
        bounds = []
        for result in self.context.results.results:
            change = knobs.sampling_change(result.settings, result.breakdown, self.context.space)
            if change is not None and change.bound is not None and self.context.results.fits(result):
                bounds.append((self._ratio_to_best(result) * (1 + change.bound) - 1, result.settings))
        if bounds:
            bound, settings = max(bounds, key=itemgetter(0))
            if settings != self.best.settings:
                reason = f"it is padded more at {settings.per_device_train_batch_size}, and would be faster without"
                yield self._change(SAMPLING, settings.changed(**{SAMPLING: "group_by_length"}), bound, reason)

    def _smaller_after_failure(self) -> Iterator[KnobChange]:
        """A smaller size for knobs that ran out of memory at the only size tried."""
        results = self.context.results
        for trial in (completed.trial for completed in self.context.trials if completed.trial.purpose == "knob"):
            result, base = results.get(trial.settings), None if trial.base is None else results.get(trial.base)
            if result is None or base is None or not results.exceeds_memory(result) or trial.bound is None:
                continue
            sizes = MicroBatchSizes(self.context, result)
            between = math.isqrt(base.micro * result.micro) if base.micro < result.micro else result.micro // 2
            micro = sizes.largest_allowed(between)
            if micro and len(sizes.same_knobs) == 1:
                bound = self._ratio_to_best(base) * (1 + trial.bound) - 1
                reason = f"it ran out of memory at micro batch {result.micro}"
                yield self._change(trial.changed[0], sizes.with_micro(micro), bound, reason)

    def _without_workers(self) -> Iterator[KnobChange]:
        """No workers, where loading ahead more did not shorten the wait for data: handing batches over may take it."""
        best, none = self.best, knobs.with_workers(0, self.best.settings, self.context.space)
        if best.settings.dataloader_num_workers == 0:
            return
        alone, counts = best.settings.changed(**none), self.context.space.candidates.get(WORKERS, ())
        waits = {}
        for result in self.context.results.results:
            now = result.settings
            if now.dataloader_num_workers > 0 and now.changed(**none) == alone:
                waits[now.dataloader_num_workers, knobs.prefetched(now)] = result.breakdown.data_wait or 0.0
        for (workers, prefetch), wait in waits.items():
            is_last = all(int(count) <= workers for count in counts if isinstance(count, int))
            if any(
                longer >= SAME_WAIT * wait and (more > workers or (is_last and more == workers and further > prefetch))
                for (more, further), longer in waits.items()
            ):
                gain = knobs.gain_without(best.breakdown.data_wait)
                yield KnobChange(WORKERS, none, gain, "loading ahead more did not shorten the wait for data")
                return

    def _checkpointing_on(self, sizes: MicroBatchSizes) -> Iterator[KnobChange]:
        """Gradient checkpointing for a larger micro batch, if memory limits the size and a larger one would pay."""
        search, growth = sizes.search(), sizes.growth_bound()
        memory_limits = search is not None and search.propose() is None and search.best is not None
        if not memory_limits or sizes.micro >= sizes.largest or not self._may_switch_checkpointing(True):
            return
        micro = max(sizes.micro, self._size_with_checkpointing(sizes))
        after = sizes.with_micro(micro).changed(**{CHECKPOINTING: True})
        bound = None if growth is None else (1 + growth) / knobs.factor("checkpointing-cost").value - 1
        yield self._change(CHECKPOINTING, after, bound, "gradient checkpointing makes room for a larger micro batch")

    def _size_with_checkpointing(self, sizes: MicroBatchSizes) -> int:
        """The size that fits with the usual saving; without a memory model, at most twice the present size."""
        saving, model = knobs.factor("checkpointing-activations").value, sizes.memory_model()
        if model is not None:
            return sizes.largest_allowed(model.steeper(saving).largest_batch(self._limit_bytes))
        twice = (self.best.peak_bytes or 0) * 2 * saving  # as if all memory were activations
        return sizes.largest_allowed(2 * sizes.micro if twice <= self._limit_bytes else sizes.micro)

    def _checkpointing_off(self, sizes: MicroBatchSizes) -> Iterator[KnobChange]:
        """No recomputing, with the micro batch that fits when activations are kept."""
        if not self._may_switch_checkpointing(False):
            return
        model, micro = sizes.memory_model(), sizes.micro
        if model is not None and self.context.space.limit_bytes is not None:
            steeper = model.steeper(knobs.factor("kept-activations").value)
            micro = max(1, min(micro, sizes.largest_allowed(steeper.largest_batch(self._limit_bytes))))
        micro = self._below_failed(sizes, sizes.with_micro(micro).changed(**{CHECKPOINTING: False}))
        recomputing = knobs.factor("recomputing")
        bound = knobs.compute_bound(self.best.breakdown, recomputing)
        reason = f"saves the recomputation ({recomputing.source})"
        yield self._change(CHECKPOINTING, sizes.with_micro(micro).changed(**{CHECKPOINTING: False}), bound, reason)

    def _may_switch_checkpointing(self, on: bool) -> bool:
        return on in knobs.other_values(CHECKPOINTING, self.best.settings, self.context.space)

    def _below_failed(self, sizes: MicroBatchSizes, settings: Settings) -> int:
        """The micro batch of `settings`; if that or a smaller one failed, the largest that fitted, else half."""
        results = self.context.results
        line = list(results.on_line(settings))
        micro = settings.per_device_train_batch_size
        failed = min((result.micro for result in line if results.exceeds_memory(result)), default=micro + 1)
        if micro < failed:
            return micro
        fitting = (result.micro for result in line if results.fits(result))
        return max(fitting, default=max(1, sizes.largest_allowed(failed // 2)))

    @property
    def _limit_bytes(self) -> float:
        return self.context.space.limit_bytes or 0.0

    def _ratio_to_best(self, result: SettingsResult) -> float:
        return (result.speed or 0.0) / (self.best.speed or 1.0)

    def _change(self, knob: str, after: Settings, bound: float | None, reason: str) -> KnobChange:
        before = self.best.settings
        differing = [name for name in FIELDS if getattr(after, name) != getattr(before, name)]
        values = {name: getattr(after, name) for name in dict.fromkeys((knob, *differing))}
        from_other = knobs_of(after) != knobs_of(before) and knob != CHECKPOINTING
        return KnobChange(knob, values, bound, reason, from_other)
