"""What batches hold: where shape and mask are, and counts of samples, tokens and padding per loader iterator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..import_hooks import call_safely

if TYPE_CHECKING:
    from collections.abc import Callable


if TYPE_CHECKING:
    Measured = tuple[tuple[int, ...], Any, int | None]
    """Shape, tokens and padding of a batch; what is not known is None (and an empty shape).

    Or shape, mask (some of its rows where it is large) and the elements of the whole mask; the mask is None where it
    was passed over. `sources.Source.counted` makes the one of the other.
    """

MAX_COUNTED_ELEMENTS = 8192
"""Mask elements counted a batch. Of a larger mask every k-th row is, from another first row in each batch."""
ALWAYS_COUNTED_MASKS = 64
"""Masks of a process that are counted however fast they come: what is short is exact."""
COUNT_INTERVAL_S = 0.05
"""A count takes as long as all the rest that is done at a step: where batches come faster, some are passed over."""

MASK_NAMES = ("attention_mask", "decoder_attention_mask", "padding_mask", "mask")
TOKEN_NAMES = ("input_ids", "tokens", "token_ids")
PACKED_NAMES = ("cu_seqlens", "cu_seq_lens_q", "seq_idx", "flash_attn_kwargs")


class BatchLayout:
    """Where in the batches of one loader shape and mask are. Found at the first one, used for those that follow."""

    __slots__ = ("batch_type", "due_s", "first", "inside", "mask_at", "packed", "shape_at", "tokens", "turn")

    def __init__(self, batch: Any, tensor_type: type, first: int = ALWAYS_COUNTED_MASKS) -> None:
        """`first` masks are taken each; after them one is when `due_s` has come."""
        self.batch_type = type(batch)
        self.turn = 0
        self.due_s = 0.0
        self.mask_at: Any = None
        self.shape_at: Any = None
        self.tokens = self.packed = False
        self.inside = _inputs_key(batch)
        entries = _entries(batch if self.inside is None else batch[self.inside])
        tensors: dict[Any, Any] = {place: value for place, value in entries if isinstance(value, tensor_type)}
        self._find_by_name(tensors)
        if self.shape_at is None and len(tensors) > 1:
            self._find_by_kind(tensors)
        if self.shape_at is None:
            self.shape_at = next((place for place, value in tensors.items() if value.dim() > 0), None)
        self.first = 0 if self.mask_at is None else first

    def _find_by_name(self, tensors: dict[Any, Any]) -> None:
        """Named batches: `input_ids` are tokens, `attention_mask` tells which are real."""
        for place in TOKEN_NAMES:
            if place in tensors and tensors[place].dim() == 2:
                self.shape_at, self.tokens = place, True
                self.packed = any(name in tensors for name in PACKED_NAMES)
                break
        for place in MASK_NAMES:
            mask = tensors.get(place)
            if self.tokens and mask is not None and mask.shape == tensors[self.shape_at].shape:
                self.mask_at = place
                break

    def _find_by_kind(self, tensors: dict[Any, Any]) -> None:
        """Unnamed batches: two integer matrices of one shape are tokens with a mask (only 0 and 1), or with targets."""
        places = list(tensors)[:2]
        first, second = (tensors[place] for place in places)
        if first.dim() != 2 or first.shape != second.shape or first.is_floating_point() or second.is_floating_point():
            return
        self.shape_at, self.tokens = places[0], True
        if second.is_cpu and second.numel() and int(second.max()) <= 1 and int(second.min()) >= 0:
            self.mask_at = places[1]

    def measure(self, batch: Any, now: float) -> Measured:
        """This batch, by what is known of its kind; `now` by `perf_counter`."""
        if self.shape_at is None:
            return (), None, None
        if self.inside is not None:
            batch = batch[self.inside]
        shape = (batch if self.shape_at is WHOLE_BATCH else batch[self.shape_at]).shape
        if not self.tokens:
            return shape, None, None
        elements = shape[0] * shape[1]
        if self.mask_at is None:
            return shape, elements, 0 if self.packed else None
        if now < self.due_s:
            return shape, None, elements
        return self._take(batch[self.mask_at], shape, elements, now)

    def _take(self, mask: Any, shape: tuple[int, ...], elements: int, now: float) -> Measured:
        """With the mask, which is counted later: the first count among a model's work costs several times the next."""
        if not mask.is_cpu:
            return shape, elements, None
        if self.first:
            self.first -= 1
        else:
            self.due_s = now + COUNT_INTERVAL_S
        if elements <= MAX_COUNTED_ELEMENTS:
            return shape, mask, elements
        stride = min(shape[0], -(-elements // MAX_COUNTED_ELEMENTS))
        self.turn = (self.turn + 1) % stride
        return shape, mask[self.turn :: stride], elements


def _inputs_key(batch: Any) -> Any:
    """Where in a pair such as `(inputs, targets)` the named inputs are; None where the batch is not nested."""
    for place, value in _entries(batch):
        if hasattr(value, "keys") and hasattr(value, "__getitem__") and any(name in value for name in TOKEN_NAMES):
            return place
    return None


WHOLE_BATCH = object()
"""The place of a tensor that is the whole batch."""


def _entries(batch: Any) -> list[tuple[Any, Any]]:
    """`(place, value)` pairs of the first level, and nothing for what is neither a mapping nor a sequence."""
    if hasattr(batch, "shape") and hasattr(batch, "dim"):
        return [(WHOLE_BATCH, batch)]
    if hasattr(batch, "keys") and hasattr(batch, "__getitem__"):
        return [(key, batch[key]) for key in list(batch.keys())]
    if isinstance(batch, (tuple, list)):
        return list(enumerate(batch))
    return []


EMPTY_LAYOUT = BatchLayout(None, type(None))
"""That of a source before its first batch."""


MASK_SHARE_DECAY = 63 / 64
"""What a mask counted before weighs beside the newest."""


class IteratorStats:
    """One iterator of a loader.

    `looks_ahead`: its reader fetches one batch more than it hands on (accelerate does); that batch waits in `ahead`.
    `stepped`: an optimizer step followed one of its batches at some time. `elsewhere`: another thread than the
    training's reads it. `estimated`: not all its tokens were counted, some were estimated. `on_trained` is called once
    when its batches prove to be training's. Times are those of `perf_counter`.
    """

    __slots__ = ("_elements", "_real", "ahead", "batches", "elsewhere", "estimated", "exhausted", "first_s", "last_s",
                 "layout", "looks_ahead", "on_trained", "padding", "samples", "shape", "stepped", "tokens",
                 "wait_s")  # fmt: skip

    def __init__(self, looks_ahead: bool = False) -> None:
        self.layout: BatchLayout = EMPTY_LAYOUT
        self.ahead: Measured | None = None
        self.looks_ahead = looks_ahead
        self.on_trained: Callable[[], None] | None = None
        self.shape: tuple[int, ...] = ()
        self.stepped = self.exhausted = self.estimated = self.elsewhere = False
        self._real = self._elements = 0.0
        self.clear()

    def clear(self) -> None:
        """What was delivered has been counted."""
        self.batches = self.samples = 0
        self.tokens: int | None = None
        self.padding: int | None = None
        self.wait_s = self.last_s = 0.0
        self.first_s: float | None = None

    def began(self) -> None:
        """A new epoch begins."""
        self.exhausted = False
        self.ahead = None

    def counted(self, measured: Measured) -> Measured:
        """With its tokens counted where it holds a mask: elements that are not 0, for a packed mask may number samples.

        A mask that was taken in part or passed over is estimated: by its own rows, or by the share of real tokens in
        those counted lately.
        """
        shape, mask, elements = measured
        if not elements or type(mask) is int:
            return measured
        if mask is None:
            self.estimated = True
            real = round(elements * self._real / self._elements) if self._elements else elements
        else:
            taken = mask.numel()
            self.estimated = self.estimated or taken < elements
            real = int(int(mask.count_nonzero()) * elements / taken + 0.5)
            self._real, self._elements = (
                self._real * MASK_SHARE_DECAY + real,
                self._elements * MASK_SHARE_DECAY + elements,
            )
        return shape, real, elements - real

    def deliver(self, measured: Measured) -> None:
        """A batch was fetched; with a reader that looks ahead, the one before it was handed on."""
        if not self.looks_ahead:
            self._add(measured)
            return
        before, self.ahead = self.ahead, measured
        if before is not None:
            self._add(before)

    def end(self) -> None:
        """There are no more batches: the one that waited is handed on."""
        self.exhausted = True
        if self.ahead is not None:
            self._add(self.ahead)
            self.ahead = None

    def keep_last(self, batches: int) -> None:
        """All but the last few were skipped on resume: keep their share."""
        if self.batches > batches:
            share = batches / self.batches
            self.batches = batches
            self.samples = round(self.samples * share)
            self.tokens = None if self.tokens is None else round(self.tokens * share)
            self.padding = None if self.padding is None else round(self.padding * share)
            self.wait_s *= share

    def _add(self, measured: Measured) -> None:
        shape, tokens, padding = measured
        self.batches += 1
        if shape:
            self.shape = shape
            self.samples += shape[0]
        if tokens is not None:
            self.tokens = tokens + (self.tokens or 0)
        if padding is not None:
            self.padding = padding + (self.padding or 0)


class TrainingTotals:
    """What was trained on since the start of this process."""

    def __init__(self) -> None:
        self._batches = self._samples = 0
        self._tokens: int | None = None
        self._padding: int | None = None
        self._estimated = False
        self._wait_s = 0.0
        self._shape: tuple[int, ...] = ()

    def add(self, source: IteratorStats) -> None:
        """A step was made with what this source delivered."""
        source.stepped = True
        if source.on_trained is not None:
            call_safely(source.on_trained)
            source.on_trained = None
        self._batches += source.batches
        self._samples += source.samples
        self._wait_s += source.wait_s
        if source.shape:
            self._shape = source.shape
        if source.tokens is not None:
            self._tokens = source.tokens + (self._tokens or 0)
        if source.padding is not None:
            self._padding = source.padding + (self._padding or 0)
        self._estimated = self._estimated or source.estimated

    def fields(self) -> dict[str, Any]:
        """Those of a `steps` line."""
        return {
            "micro_steps": self._batches,
            "samples": self._samples,
            "tokens": self._tokens,
            "padding_tokens": self._padding,
            "tokens_estimated": self._estimated or None,
            "data_wait_s": round(self._wait_s, 6),
            "batch_shape": [int(size) for size in self._shape] or None,
        }
