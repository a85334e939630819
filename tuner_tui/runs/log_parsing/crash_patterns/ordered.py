"""Every crash pattern, in the order tried: look-alikes come before the cause they resemble."""

from __future__ import annotations

from tuner_tui.runs.log_parsing.crash_patterns import (
    gpu_errors,
    memory_errors,
    precision_errors,
    program_errors,
    storage_errors,
)
from tuner_tui.runs.log_parsing.crash_patterns.pattern import CrashPattern

PATTERNS: tuple[CrashPattern, ...] = (
    *memory_errors.LOOK_ALIKES,
    *memory_errors.GPU_MEMORY,
    *memory_errors.HOST_MEMORY,
    *storage_errors.PATTERNS,
    *gpu_errors.ATTENTION_PATTERNS,
    *gpu_errors.FUSED_PATTERNS,
    *gpu_errors.ASSERTS,
    *gpu_errors.ILLEGALS,
    *precision_errors.PRECISION,
    *gpu_errors.COMPILE_PATTERNS,
    *precision_errors.NOT_FINITE,
    *gpu_errors.NETWORK,
    *program_errors.PACKAGES,
    *program_errors.WORKERS,
    *program_errors.USAGE,
    *program_errors.CODE,
    *gpu_errors.COLLECTIVES,
    *gpu_errors.UNEXPLAINED,
)
BARE: tuple[CrashPattern, ...] = tuple(pattern for pattern in PATTERNS if pattern.bare)
