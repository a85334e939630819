"""What the CUDA allocator says, once a second, without a synchronisation; and the cap of `TUNER_MEMORY_LIMIT_BYTES`."""

import os


class Peaks:
    """Allocator peaks since the process began (or since the training itself reset them: it is never reset from here)."""

    def __init__(self, torch):
        self._torch = torch
        self._step_peak = None
        self._due = True
        self._before = None

    def fields(self):
        """Memory fields of a `steps` line; empty without an initialised CUDA."""
        self._due = True
        if not self._started():
            return {}
        stats = self._torch.cuda.memory_stats_as_nested_dict()
        return {
            "allocated_peak_bytes": stats["allocated_bytes"]["all"]["peak"],
            "reserved_peak_bytes": stats["reserved_bytes"]["all"]["peak"],
            "alloc_retries": stats["num_alloc_retries"],
            "step_peak_bytes": self._step_peak,
        }

    def before_step(self, optimizer):
        """Once a second: where the peak stood when the optimizer began."""
        if self._due and self._started():
            self._before = self._torch.cuda.max_memory_allocated()

    def after_step(self, optimizer):
        """The optimizer set the peak if the peak rose while it stepped."""
        if self._before is None:
            return
        peak = self._torch.cuda.max_memory_allocated()
        if peak > self._before:
            self._step_peak = peak
        self._before = None
        self._due = False

    def _started(self):
        cuda = self._torch.cuda
        return cuda.is_initialized()


def limit(torch):
    """Cap this process at `TUNER_MEMORY_LIMIT_BYTES` on its GPU, once CUDA starts. Nothing on a CPU."""
    wanted = os.environ.get("TUNER_MEMORY_LIMIT_BYTES")
    if not wanted or not torch.backends.cuda.is_built():
        return
    original = torch.cuda._lazy_init

    def _lazy_init():
        starting = not torch.cuda.is_initialized()
        original()
        if starting and torch.cuda.is_initialized():
            _cap(torch, int(wanted))

    torch.cuda._lazy_init = _lazy_init


def _cap(torch, wanted_bytes):
    """The fraction is of the device's total; more than the total is no cap."""
    for index in range(torch.cuda.device_count()):
        total = torch.cuda.get_device_properties(index).total_memory
        if wanted_bytes < total:
            torch.cuda.set_per_process_memory_fraction(wanted_bytes / total, index)
