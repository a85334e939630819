"""Shape, samples, tokens and padding of a batch, at a few microseconds and without touching anything on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Measured = tuple[tuple[int, ...], Any, int | None]
    """Shape, tokens and padding of a batch; what is not known is None (and an empty shape).

    Or shape, mask (some of its rows where it is large) and the elements of the whole mask; the mask is None where it
    was passed over. `sources.Source.counted` makes the one of the other.
    """

COUNTED_ELEMENTS = 8192
"""Mask elements counted a batch. Of a larger mask every k-th row is, from another first row in each batch."""
COUNTED_FIRST = 64
"""Masks of a process that are counted however fast they come: what is short is exact."""
COUNT_EVERY_S = 0.05
"""A count takes as long as all the rest that is done at a step: where batches come faster, some are passed over."""

MASK_NAMES = ("attention_mask", "decoder_attention_mask", "padding_mask", "mask")
TOKEN_NAMES = ("input_ids", "tokens", "token_ids")
PACKED_NAMES = ("cu_seqlens", "cu_seq_lens_q", "seq_idx", "flash_attn_kwargs")


class Layout:
    """Where in the batches of one loader shape and mask are. Found at the first one, used for those that follow."""

    __slots__ = ("batch_type", "due_s", "first", "inside", "mask_at", "packed", "shape_at", "tokens", "turn")

    def __init__(self, batch: Any, tensor_type: type, first: int = COUNTED_FIRST) -> None:
        """`first` masks are taken each; after them one is when `due_s` has come."""
        self.batch_type = type(batch)
        self.turn = 0
        self.due_s = 0.0
        self.mask_at: Any = None
        self.shape_at: Any = None
        self.tokens = self.packed = False
        self.inside = _inside(batch)
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
        shape = (batch if self.shape_at is WHOLE else batch[self.shape_at]).shape
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
            self.due_s = now + COUNT_EVERY_S
        if elements <= COUNTED_ELEMENTS:
            return shape, mask, elements
        stride = min(shape[0], -(-elements // COUNTED_ELEMENTS))
        self.turn = (self.turn + 1) % stride
        return shape, mask[self.turn :: stride], elements


def _inside(batch: Any) -> Any:
    """Where in a pair such as `(inputs, targets)` the named inputs are; None where the batch is not nested."""
    for place, value in _entries(batch):
        if hasattr(value, "keys") and hasattr(value, "__getitem__") and any(name in value for name in TOKEN_NAMES):
            return place
    return None


WHOLE = object()
"""The place of a tensor that is the whole batch."""


def _entries(batch: Any) -> list[tuple[Any, Any]]:
    """`(place, value)` pairs of the first level, and nothing for what is neither a mapping nor a sequence."""
    if hasattr(batch, "shape") and hasattr(batch, "dim"):
        return [(WHOLE, batch)]
    if hasattr(batch, "keys") and hasattr(batch, "__getitem__"):
        return [(key, batch[key]) for key in list(batch.keys())]
    if isinstance(batch, (tuple, list)):
        return list(enumerate(batch))
    return []


NO_LAYOUT = Layout(None, type(None))
"""That of a source before its first batch."""
