"""A CUDA allocator whose snapshots are like those of `torch.cuda.memory`, and whose peak is known exactly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SEGMENT_BYTES = 2**20
Calls = tuple[str, ...]
"""`function file:line`, the innermost first."""


def frames_of(calls: Calls) -> list[dict[str, Any]]:
    """The calls as PyTorch writes them."""
    parts = [(call.partition(" ")[0], *call.partition(" ")[2].rsplit(":", 1)) for call in calls]
    return [{"name": name, "filename": file, "line": int(line)} for name, file, line in parts]


@dataclass
class FakeAllocator:
    """One GPU. `max_events`: the length of the ring; `is_recording`: whether events and stacks are kept."""

    max_events: int = 10**9
    device: int = 0
    is_recording: bool = True
    now_us: int = 1_000
    live: dict[int, tuple[int, Calls, str, bool]] = field(default_factory=dict)
    pending: dict[int, tuple[int, Calls, str, bool]] = field(default_factory=dict)
    segments: list[tuple[int, list[tuple[int, int]]]] = field(default_factory=list)
    trace: list[dict[str, Any]] = field(default_factory=list)
    totals: list[int] = field(default_factory=lambda: [0])
    """The bytes in use before the first event, and after each."""

    @property
    def used(self) -> int:
        return sum(size for size, *_ in (*self.live.values(), *self.pending.values()))

    @property
    def peak(self) -> int:
        """The most bytes in use at any time that the ring still tells of."""
        kept = min(len(self.trace), self.max_events)
        return max(self.totals[-kept - 1 :])

    def allocate(self, size: int, calls: Calls = (), label: str = "", stream: int = 0) -> int:
        """The address. Each fourth block begins a segment, so that several lie in one."""
        if not self.segments or len(self.segments[-1][1]) == 4:
            start = (len(self.segments) + 1) * 2**32
            self.segments.append((start, []))
            self._event("segment_alloc", start, 4 * SEGMENT_BYTES, calls, "", stream)
        start, blocks = self.segments[-1]
        address = start + len(blocks) * SEGMENT_BYTES
        blocks.append((address, SEGMENT_BYTES))
        self.reuse(address, size, calls, label, stream)
        return address

    def reuse(self, address: int, size: int, calls: Calls = (), label: str = "", stream: int = 0) -> None:
        """Allocate at an address that was freed."""
        self.live[address] = size, calls, label, self.is_recording
        self._event("alloc", address, size, calls, label, stream)

    def free(self, address: int, awaits_stream: bool = False, stream: int = 0) -> None:
        """Free a block; with `awaits_stream` another stream uses it until `complete`."""
        self.pending[address] = self.live.pop(address)
        self._event("free_requested", address, *self.pending[address][:3], stream)
        if not awaits_stream:
            self.complete(address)

    def complete(self, address: int) -> None:
        """The stream that used a freed block has passed it."""
        size, calls, label, _ = self.pending.pop(address)
        self._event("free_completed", address, size, calls, label, 0)

    def fail(self, size: int, calls: Calls = (), label: str = "") -> None:
        """An allocation that fails."""
        self._event("oom", 0, size, calls, label, 0)

    def _event(self, action: str, address: int, size: int, calls: Calls, label: str, stream: int) -> None:
        self.now_us += 1
        if self.is_recording:
            event = {"action": action, "addr": address, "size": size, "stream": stream, "time_us": self.now_us}
            if action == "oom":
                event["device_free"] = event.pop("addr")
            self.trace.append({**event, "frames": frames_of(calls), "user_metadata": label})
            self.totals.append(self.used)
        else:
            self.totals[-1] = self.used

    def snapshot(self) -> dict[str, Any]:
        """As PyTorch returns it, of a machine with the GPUs up to this one."""
        segments = []
        for start, addresses in self.segments:
            blocks = [self._block(address, size) for address, size in addresses]
            segments.append({
                "device": self.device, "address": start, "total_size": 4 * SEGMENT_BYTES, "stream": 0, "blocks": blocks,
            })  # fmt: skip
        kept = self.trace[-self.max_events :]
        return {"segments": segments, "device_traces": [*([] for _ in range(self.device)), kept]}

    def _block(self, address: int, size: int) -> dict[str, Any]:
        held = self.live.get(address) or self.pending.get(address)
        block = {"address": address, "size": size, "frames": [], "state": "inactive"}
        if held is None:
            return block
        requested, calls, _, recorded = held
        state = "active_allocated" if address in self.live else "active_awaiting_free"
        return {**block, "requested_size": requested, "state": state, "frames": frames_of(calls) if recorded else []}
