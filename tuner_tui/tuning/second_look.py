"""A second look, once every change was tried: beside other settings a change may do what it did not do at first.

Compiling that gained nothing while the training waited for its data, recomputing that made room nobody could use yet,
16 bit that was put in early: each is weighed again beside the best settings, by what it did to the parts of a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuner_tui.settings.fields import Value
from tuner_tui.settings.model import Settings
from tuner_tui.tuning.effects import Effects, Parts
from tuner_tui.tuning.knobs import CHECKPOINTING, Option
from tuner_tui.tuning.objective import Result, Results, same_memory
from tuner_tui.tuning.sizes import Sizes, fastest_of, groups_of, micro_of
from tuner_tui.tuning.space import MICRO, SearchSpace
from tuner_tui.tuning.trading import difference

COMPUTING = (("precision", "tf32"), ("attn_implementation",), ("torch_compile",), (CHECKPOINTING,))
"""Fields that change together; what they do shows in the time of computing."""
SURE = 1.02
"""A change that takes more memory may take so many times what it is believed to."""
CASTING = 1 / 1.15
"""TF32 may compute as fast as that beside 16 bit, which casts at every operation."""
TENSOR_FLOAT = ("fp32", True)
WORTH_DARING = 0.15
"""What a run that may not fit must promise."""
SAMPLING, OPTIMIZER = "train_sampling_strategy", "optim"


@dataclass(frozen=True, slots=True)
class SecondLook:
    """What may be gained beside `best` by changes that were tried beside other settings."""

    start: Settings
    best: Result
    results: Results
    space: SearchSpace

    def options(self) -> Iterator[Option]:
        """A change of one knob, at each size that is believed to fit; the bound is what its trials promise."""
        for change in self._changes():
            after = self.best.settings.changed(**change)
            for micro in sorted(self._fitting(after, change)):
                gain = self._gain(after, change, self._room(change, micro))
                if gain is not None:
                    sized = self.space.with_micro(after, self.start, micro)
                    knob = next(iter(change))
                    yield Option(
                        knob,
                        difference(sized, self.best.settings, knob),
                        gain,
                        "what it did beside other settings",
                        True,
                    )
        yield from self._daring()

    def _daring(self) -> Iterator[Option]:
        """A larger micro batch that may not fit, beside any settings with which it promises much."""
        for group in groups_of(self.results.results):
            fastest = fastest_of(group, self.results)
            size = None if fastest is None else self._sizes(fastest).daring()
            if fastest is None or size is None or not fastest.throughput or not self.best.throughput:
                continue
            most = size.micro / micro_of(fastest) - 1 if size.bound is None else size.bound
            gain = fastest.throughput / self.best.throughput * (1 + most) - 1
            if gain >= WORTH_DARING:
                after = self._sizes(fastest).after(size.micro)
                yield Option(MICRO, difference(after, self.best.settings, MICRO), gain, size.reason, True)

    def _room(self, change: Mapping[str, Value], micro: int) -> int:
        """The size that counts for the gain: a larger one where memory ended the growth and the change takes less."""
        own = self._sizes(self.best)
        larger = own.next_above(micro)
        more = self._effects.more_bytes(self.best, change)
        if micro != own.micro or larger is None or more is None or more >= 0:
            return micro
        return larger

    def _changes(self) -> Iterator[dict[str, Value]]:
        """The values that the best settings do not have and some trial had."""
        for fields in (*COMPUTING, (SAMPLING,), (OPTIMIZER,)):
            present = self._values(self.best.settings, fields)
            seen = {self._values(one.settings, fields): None for one in self.results.results if one.measured}
            if "tf32" in fields and self._may_tensor_float(present):
                seen[TENSOR_FLOAT] = None
            yield from (dict(zip(fields, values, strict=True)) for values in seen if values != present)

    def _may_tensor_float(self, present: tuple[Value, ...]) -> bool:
        """Whether 16 bit may give way to TF32, which nobody tried."""
        return present[0] != "fp32" and self.start.precision == "fp32" and True in self.space.candidates.get("tf32", ())

    def _values(self, settings: Settings, fields: tuple[str, ...]) -> tuple[Value, ...]:
        return tuple(getattr(settings, name) for name in fields)

    def _gain(self, after: Settings, change: Mapping[str, Value], micro: int) -> float | None:
        """The share that is won at best, runs being so far apart by chance; None where nothing tells."""
        now, effects = Parts.of(self.best), self._effects
        computing, padding, optimizer = now.computing, now.padding, now.optimizer
        if SAMPLING in change:
            padding = self._padding(change, micro)
        elif OPTIMIZER in change:
            steps = [Parts.of(one).optimizer * one.settings.effective_batch() for one in self._with(change)]
            optimizer = min(steps) / self.best.settings.effective_batch()
        else:
            effect = effects.on_computing(self.best.settings, change)
            if effect is None and self._values(after, COMPUTING[0]) == TENSOR_FLOAT and "tf32" in change:
                effect = CASTING
            if effect is None:
                return None
            computing *= effect * (1 - self.results.noise)
        computing = effects.resized(computing, micro_of(self.best), micro)
        return now.seconds / Parts(computing, padding, optimizer, now.waiting).seconds - 1

    def _padding(self, change: Mapping[str, Value], micro: int) -> float:
        """The share that was seen at the size nearest to this one."""
        nearest = min(self._with(change), key=lambda one: abs(math.log(micro_of(one) / micro)))
        return Parts.of(nearest).padding

    def _with(self, change: Mapping[str, Value]) -> Iterator[Result]:
        for one in self.results.results:
            if one.throughput and all(getattr(one.settings, name) == value for name, value in change.items()):
                yield one

    @property
    def _effects(self) -> Effects:
        return Effects(self.results, self._sizes(self.best).once_s())

    def _fitting(self, after: Settings, change: Mapping[str, Value]) -> set[int]:
        """Micro batches believed to fit: the present one, what the line of memory bears out, what is next on it."""
        line = [one for one in self.results.results if same_memory(one.settings, after) and one.peak_bytes is not None]
        if not line:
            return self._by_effect(change)
        search = self._sizes(max(line, key=micro_of)).search()
        if search is None:
            return {micro_of(self.best)}
        found, proposal = search.best, search.propose()
        sizes = {found.batch} if found is not None else set()
        if found is not None and micro_of(self.best) <= found.batch:
            sizes.add(micro_of(self.best))
        if proposal is not None and proposal.batch > 0:
            sizes.add(proposal.batch)
        return sizes

    def _by_effect(self, change: Mapping[str, Value]) -> set[int]:
        """The present size, where it fits by what the change did to memory elsewhere."""
        limit, line = self.space.limit_bytes, self.best.line_bytes
        if limit is None or line is None:
            return {micro_of(self.best)}
        more = self._more_bytes(line, change)
        return set() if more is None or (more > 0 and (line + more) * SURE > limit) else {micro_of(self.best)}

    def _more_bytes(self, line: float, change: Mapping[str, Value]) -> float | None:
        """What the change adds to `line`, the bytes that the present micro batch takes; None where that is open."""
        if change.get(CHECKPOINTING) is True:
            return 0.0
        if change.get("precision") == "fp32":  # activations of twice the size
            model = self._sizes(self.best).model()
            return line if model is None else model.slope_bytes * micro_of(self.best)
        return self._effects.more_bytes(self.best, change)

    def _sizes(self, result: Result) -> Sizes:
        return Sizes(self.start, result, self.results, self.space)
