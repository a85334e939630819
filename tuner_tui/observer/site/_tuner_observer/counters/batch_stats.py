"""What batches hold: where shape and mask are, and counts of samples, tokens and padding per loader iterator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..import_hooks import call_safely

if TYPE_CHECKING:
    BatchMeasure = tuple[tuple[int, ...], Any, int | None]
    """`(shape, tokens, padding)` of a batch, with an empty shape and None for what is unknown.

    If tokens have to be counted in masks: `(shape, masks, elements)`. These may be a subset of their rows, or None if
    this batch was not sampled. `IteratorStats.count_tokens` converts it to the first form.
    """

MAX_COUNTED_ELEMENTS = 8192
"""Mask elements counted per batch. Of a larger mask every k-th row is counted, starting from a rotating offset."""
ALWAYS_COUNTED_MASKS = 64
"""Number of first masks of a process that are always counted, so that short runs are exact."""
COUNT_INTERVAL_S = 0.05
"""Minimum time between counted masks afterwards: counting costs as much as the rest of the step's overhead."""

MASK_NAMES = ("attention_mask", "decoder_attention_mask", "padding_mask", "mask")
TOKEN_NAMES = ("input_ids", "tokens", "token_ids")
PACKED_NAMES = ("cu_seqlens", "cu_seq_lens_q", "seq_idx", "flash_attn_kwargs")


class BatchLayout:
    """Where the batches of one loader hold their shape and mask. Determined from the first batch."""

    __slots__ = ("batch_type", "due_s", "first", "inside", "mask_at", "packed", "parts", "shape_at", "tokens", "turn")

    def __init__(self, batch: Any, tensor_type: type, first: int = ALWAYS_COUNTED_MASKS) -> None:
        """`first` masks are counted without regard to time, later ones when `due_s` has passed."""
        self.batch_type = type(batch)
        self.turn = 0
        self.due_s = 0.0
        self.mask_at: Any = None
        self.shape_at: Any = None
        self.tokens = self.packed = False
        self.parts: list[tuple[Any, Any]] = []
        inputs = [
            key
            for key, value in _entries(batch)
            if hasattr(value, "keys") and hasattr(value, "__getitem__") and any(name in value for name in TOKEN_NAMES)
        ]
        self.inside = inputs[0] if inputs else None
        entries = _entries(batch if self.inside is None else batch[self.inside])
        tensors: dict[Any, Any] = {key: value for key, value in entries if isinstance(value, tensor_type)}
        self._find_by_name(tensors)
        if self.shape_at is None and len(tensors) > 1:
            self._find_by_kind(tensors)
        if self.shape_at is None:
            self.shape_at = next((key for key, value in tensors.items() if value.dim() > 0), None)
        if len(inputs) > 1:  # the questions and the answers, each with tokens of its own
            self.tokens, self.mask_at = False, None
        self.first = 0 if self.mask_at is None else first

    def _find_by_name(self, tensors: dict[Any, Any]) -> None:
        """Mappings: `input_ids` are tokens, and `attention_mask` marks the real ones.

        Some have several of both, such as `anchor_input_ids` and `positive_input_ids`: `parts`.
        """
        # The captions of images that a model learns to draw or to match are short and no measure of its work.
        media = any(each.dim() > 2 and each.is_floating_point() for each in tensors.values())
        for key in () if media and "labels" not in tensors else TOKEN_NAMES:
            if key in tensors and tensors[key].dim() == 2:
                self.shape_at, self.tokens = key, True
                self.packed = any(name in tensors for name in PACKED_NAMES)
                break
        for key in MASK_NAMES:
            mask = tensors.get(key)
            if self.tokens and mask is not None and mask.shape == tensors[self.shape_at].shape:
                self.mask_at = key
                break
        if not self.tokens:
            self._find_parts(tensors)

    def _find_parts(self, tensors: dict[Any, Any]) -> None:
        names = [name for name in tensors if str(name).endswith("_input_ids") and tensors[name].dim() == 2]
        self.parts = [(name, name[: -len("input_ids")] + "attention_mask") for name in names]
        if names:
            self.shape_at, self.tokens = names[0], True
            self.mask_at = self.parts[0][1] if all(mask in tensors for _, mask in self.parts) else None

    def _find_by_kind(self, tensors: dict[Any, Any]) -> None:
        """Sequences: two integer matrices of equal shape are tokens and mask (if only 0 and 1) or targets."""
        keys = list(tensors)[:2]
        first, second = (tensors[key] for key in keys)
        if first.dim() != 2 or first.shape != second.shape or first.is_floating_point() or second.is_floating_point():
            return
        self.shape_at, self.tokens = keys[0], True
        # Of a pair of equal integer matrices the second is a mask only if it holds nothing but 0 and 1; otherwise it
        # holds the targets of a language model. Read once per loader, and not from a GPU.
        if second.is_cpu and second.numel() and int(second.max()) <= 1 and int(second.min()) >= 0:
            self.mask_at = keys[1]

    def measure(self, batch: Any, now: float) -> BatchMeasure:
        """Measure one batch; `now` is a time of `perf_counter`."""
        if self.shape_at is None:
            return (), None, None
        if self.inside is not None:
            batch = batch[self.inside]
        shape = (batch if self.shape_at is WHOLE_BATCH else batch[self.shape_at]).shape
        if not self.tokens:
            return shape, None, None
        elements = sum(batch[name].numel() for name, _ in self.parts) if self.parts else shape[0] * shape[1]
        if self.mask_at is None:
            return shape, elements, 0 if self.packed else None
        if now < self.due_s:
            return shape, None, elements
        masks = [batch[name] for _, name in self.parts] or [batch[self.mask_at]]
        return self._take(masks, shape, elements, now)

    def _take(self, masks: list[Any], shape: tuple[int, ...], elements: int, now: float) -> BatchMeasure:
        """Keep the masks: counting them later, many at a time with warm caches, costs a fraction of doing it here."""
        if not masks[0].is_cpu:
            return shape, elements, None
        if self.first:
            self.first -= 1
        else:
            self.due_s = now + COUNT_INTERVAL_S
        if elements <= MAX_COUNTED_ELEMENTS:
            return shape, masks, elements
        # Every k-th row, from a row that moves with each batch: sorted batches have their longest rows at one end.
        stride = min(shape[0], -(-elements // MAX_COUNTED_ELEMENTS))
        self.turn = (self.turn + 1) % stride
        return shape, [mask[self.turn :: stride] for mask in masks], elements


WHOLE_BATCH = object()
"""Key of a tensor that is the whole batch."""


def _entries(batch: Any) -> list[tuple[Any, Any]]:
    """`(key, value)` pairs of a mapping or sequence, empty for anything else."""
    if hasattr(batch, "shape") and hasattr(batch, "dim"):
        return [(WHOLE_BATCH, batch)]
    if hasattr(batch, "keys") and hasattr(batch, "__getitem__"):
        keys = batch.keys  # a property of the graphs of older releases of PyTorch Geometric
        return [(key, batch[key]) for key in list(keys() if callable(keys) else keys)]
    if isinstance(batch, (tuple, list)):
        return list(enumerate(batch))
    return []


EMPTY_LAYOUT = BatchLayout(None, type(None))
"""Layout before the first batch."""


MASK_SHARE_DECAY = 63 / 64
"""Weight of earlier masks relative to the newest one."""


class IteratorStats:
    """Batches of one DataLoader iterator since the last optimizer step.

    `prefetches`: its consumer fetches one batch ahead (as accelerate does); that batch is kept in `prefetched`.
    `has_trained`: an optimizer step has consumed its batches. `other_thread`: it is not read by the training's thread.
    `estimated`: some tokens were estimated instead of counted. `on_trained` is called once, at the first step made with
    its batches. `position`: batches of this epoch so far. `epoch` counts the epochs of its loader that trained, from 1;
    `on_epoch` gives it at the first such step. `length` is the number of batches of an epoch, if known; `batch_size` is
    the loader's. `in_eval_mode`: batches not counted, because they seemed to be an evaluation's. `rows`: what the
    sampler has drawn for batches that are not delivered yet; `rows_taken`: for those since the last step. `exists`
    tells whether the iterator still does, `loader` refers to its loader. Times are those of `perf_counter`.
    """

    __slots__ = (
        "_elements", "_real", "batch_size", "batches", "epoch", "estimated", "exhausted", "exists", "first_s",
        "has_trained", "in_eval_mode", "last_s", "layout", "length", "loader", "on_epoch", "on_trained", "other_thread",
        "padding", "position", "prefetched", "prefetches", "rows", "rows_in_eval_mode", "rows_per_sample",
        "rows_taken", "samples", "shape", "tokens", "wait_s",
    )  # fmt: skip

    def __init__(self, prefetches: bool = False) -> None:
        self.layout: BatchLayout = EMPTY_LAYOUT
        self.prefetched: BatchMeasure | None = None
        self.prefetches = prefetches
        self.on_trained: Callable[[], None] | None = None
        self.exists: Callable[[], object] = lambda: True
        self.loader: Any = None
        self.shape: tuple[int, ...] = ()
        self.has_trained = self.exhausted = self.estimated = self.other_thread = False
        self._real = self._elements = 0.0
        self.position = self.epoch = self.in_eval_mode = 0
        self.on_epoch: Callable[[], int] | None = None
        self.length: int | None = None
        self.batch_size: int | None = None
        self.rows_per_sample = 1
        self.rows: deque[Any] | None = None
        self.rows_in_eval_mode: deque[Any] = deque(maxlen=1)
        self.clear()

    def clear(self) -> None:
        """Reset the counts after a step."""
        self.rows_taken: list[Any] = []
        self.batches = self.samples = 0
        self.tokens: int | None = None
        self.padding: int | None = None
        self.wait_s = self.last_s = 0.0
        self.first_s: float | None = None

    def start_epoch(self, on_epoch: Callable[[], int], length: int | None, rows: deque[Any] | None) -> None:
        """Start an epoch of `length` batches. `rows`: what the sampler has drawn for batches not delivered yet."""
        self.rows = rows
        self.position = self.epoch = self.in_eval_mode = 0
        self.on_epoch, self.length = on_epoch, length
        self.exhausted = False
        self.prefetched = None

    def count_tokens(self, measured: BatchMeasure) -> BatchMeasure:
        """Count the tokens of a measured batch: mask elements other than 0 (a packed mask may number its samples).

        A mask that was sampled by rows is extrapolated; one that was not sampled is estimated by the share of real
        tokens in recent masks.
        """
        shape, masks, elements = measured
        if not elements or type(masks) is int:
            return measured
        if masks is None:
            self.estimated = True
            real = round(elements * self._real / self._elements) if self._elements else elements
        else:
            taken = sum(mask.numel() for mask in masks)
            self.estimated = self.estimated or taken < elements
            real = int(sum(int(mask.count_nonzero()) for mask in masks) * elements / taken + 0.5)
            self._real = self._real * MASK_SHARE_DECAY + real
            self._elements = self._elements * MASK_SHARE_DECAY + elements
        return shape, real, elements - real

    def deliver(self, measured: BatchMeasure) -> None:
        """Add a fetched batch. If the consumer prefetches, add the one before it instead."""
        if not self.prefetches:
            self._add(measured)
            return
        before, self.prefetched = self.prefetched, measured
        if before is not None:
            self._add(before)

    def end(self) -> None:
        self.exhausted = True
        if self.prefetched is not None:
            self._add(self.prefetched)
            self.prefetched = None

    def keep_last(self, batches: int) -> None:
        """Scale the counts to the last `batches`: the others were skipped when resuming."""
        if self.batches > batches:
            share = batches / self.batches
            self.batches = batches
            self.samples = round(self.samples * share)
            self.tokens = None if self.tokens is None else round(self.tokens * share)
            self.padding = None if self.padding is None else round(self.padding * share)
            self.wait_s *= share
            self.rows_taken = self.rows_taken[-batches:]

    def _add(self, measured: BatchMeasure) -> None:
        shape, tokens, padding = measured
        self.batches += 1
        self.position += 1
        drawn = None
        if self.rows:
            drawn = self.rows.popleft()
            self.rows_taken.append(drawn)
        if shape:
            self.shape = shape
            rows = shape[0]
            if rows == self.batch_size and self.rows_per_sample == 1:
                self.samples += rows
            elif type(drawn) is list and drawn and drawn[0] is not None:  # of an IterableDataset there are no numbers
                self.samples += len(drawn)
            else:
                self.samples += self._samples_in(rows)
        if tokens is not None:
            self.tokens = tokens + (self.tokens or 0)
        if padding is not None:
            self.padding = padding + (self.padding or 0)

    def loading_failed(self) -> None:
        """Loading the batch raised an error that is next to be delivered."""
        ahead = int(self.prefetched is not None)
        if self.rows is not None and len(self.rows) > ahead:
            self.rows_taken = [self.rows[ahead]]

    def evaluated(self) -> None:
        """A batch was delivered to what seems to be an evaluation."""
        if self.rows:
            self.rows_in_eval_mode.append(self.rows.popleft())

    def add_in_eval_mode(self) -> None:
        """Add the batches that seemed to be an evaluation's. Nothing is known of their contents."""
        self.batches += self.in_eval_mode
        self.position += self.in_eval_mode
        self.samples += self.in_eval_mode * (self.batch_size or 0)
        self.rows_taken += self.rows_in_eval_mode
        self.in_eval_mode = 0

    def _samples_in(self, rows: int) -> int:
        """Samples in a batch of so many rows: a collator may make several of one (the chosen and the rejected answer of
        a pair), or one of all (padding-free), and the rows of a graph are its nodes."""
        size = self.batch_size or rows
        if rows == 1 and self.layout.packed:
            return size
        if rows > size and rows % size == 0:
            self.rows_per_sample = max(self.rows_per_sample, rows // size)
        return min(size, -(-rows // self.rows_per_sample))


class TrainingTotals:
    """Totals of all batches trained on since the start of this process. `has_loader`: any came from a loader.

    `batches` includes those that come from no loader; `rows` is how many samples each of these has, if known. `lengths`
    are those of the epochs since the loop began; they are `uneven` if a later one differs by more than a twentieth, as
    where the data grows from epoch to epoch.
    """

    def __init__(self) -> None:
        self.batches = self._samples = 0
        self.rows: int | None = None
        self.has_loader = self.uneven = False
        self.lengths: list[int] = []
        self._tokens: int | None = None
        self._padding: int | None = None
        self._estimated = False
        self._wait_s = self._epoch_wait_s = 0.0
        self._shape: tuple[int, ...] = ()
        self._position: tuple[int | None, ...] = (None, None, None)

    def add(self, iterator: IteratorStats) -> None:
        """Add the batches of one step."""
        iterator.has_trained = self.has_loader = True
        if iterator.on_epoch is not None:
            iterator.epoch, iterator.on_epoch = iterator.on_epoch(), None
            self._epoch_wait_s += iterator.wait_s
            length = iterator.length
            if length and not any(abs(length - each) <= max(1, each // 20) for each in self.lengths):
                self.uneven = self.uneven or (bool(self.lengths) and self.batches >= self.lengths[0])
                self.lengths.append(length)
        if iterator.epoch:
            # Of an iterator that its loader keeps for all epochs, as ultralytics' does, the position goes on.
            passed, length = max(0, iterator.position - 1), iterator.length or iterator.position + 1
            self._position = (passed % length + 1, iterator.length, iterator.epoch + passed // length)
        if iterator.on_trained is not None:
            call_safely(iterator.on_trained)
            iterator.on_trained = None
        self.batches += iterator.batches
        self._samples += iterator.samples
        self._wait_s += iterator.wait_s
        if iterator.shape:
            self._shape = iterator.shape
        if iterator.tokens is not None:
            self._tokens = iterator.tokens + (self._tokens or 0)
        if iterator.padding is not None:
            self._padding = iterator.padding + (self._padding or 0)
        self._estimated = self._estimated or iterator.estimated

    def count_without_loader(self, batches: int) -> None:
        """Set the number of micro batches of a training without a loader."""
        self._samples += (batches - self.batches) * (self.rows or 0)
        self.batches = batches

    def set_rows(self, rows: int | None) -> None:
        """Set how many samples each batch without a loader has, those so far included."""
        self.rows, self._samples = rows, self.batches * (rows or 0)

    def forget_loader(self) -> tuple[int, int]:
        """Forget a loader that was read before the first step alone. Returns the samples of a batch, and of all."""
        samples = self._samples // max(1, self.batches), self._samples
        self.batches, self.has_loader, self._tokens, self._padding = 0, False, None, None
        self._position, self._shape = (None, None, None), ()
        return samples

    @property
    def epoch(self) -> int | None:
        """The epoch of the loader that was read last, None without one."""
        return self._position[2]

    def fields(self) -> dict[str, Any]:
        """Fields of a `steps` event."""
        return {
            "micro_steps": self.batches,
            "epoch_batch": self._position[0],
            "epoch_batches": self._position[1],
            "samples": self._samples,
            "tokens": self._tokens,
            "padding_tokens": self._padding,
            "tokens_estimated": self._estimated or None,
            "data_wait_s": round(self._wait_s, 6),
            "epoch_wait_s": round(self._epoch_wait_s, 6),
            "batch_shape": [int(size) for size in self._shape] or None,
        }
