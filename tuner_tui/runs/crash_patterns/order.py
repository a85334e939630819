"""Every message form, in the order tried: what only looks like a cause before the cause it looks like."""

from __future__ import annotations

from tuner_tui.runs.crash_patterns import device, gpu_memory, host_memory, kernels, numbers, programs, storage
from tuner_tui.runs.crash_patterns.pattern import Pattern

PATTERNS: tuple[Pattern, ...] = (
    *gpu_memory.LOOK_ALIKES,
    *gpu_memory.PATTERNS,
    *host_memory.PATTERNS,
    *storage.PATTERNS,
    *kernels.ATTENTION_FORMS,
    *kernels.FUSED_FORMS,
    *device.ASSERTS,
    *device.ILLEGALS,
    *numbers.PRECISION,
    *kernels.COMPILE_FORMS,
    *numbers.NOT_FINITE,
    *device.NETWORK,
    *programs.PACKAGES,
    *programs.WORKERS,
    *programs.USAGE,
    *device.COLLECTIVES,
    *device.UNEXPLAINED,
)
BARE: tuple[Pattern, ...] = tuple(pattern for pattern in PATTERNS if pattern.bare)
