"""Fixtures that launch real processes."""

from tests.runs.sandbox import box, fifo

__all__ = ["box", "fifo"]
