"""Hardware samples as lines of `samples.jsonl`, written by the supervisor once a second."""

from __future__ import annotations

import json
import math
from typing import Any

from tuner_tui.hardware.sample import Sample
from tuner_tui.runs.codec import LONGEST_LINE
from tuner_tui.runs.typed import build, plain

SAMPLE_VERSION = 1


def encode_sample(sample: Sample) -> bytes:
    """The sample as one line, newline included. Unknown fields are left out; figures keep three decimals."""
    body = {"v": SAMPLE_VERSION} | _rounded(plain(sample))
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def decode_sample(line: bytes) -> Sample | None:
    """The sample of one line, or None where the line is torn, newer than this program or of wrong types."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        data = json.loads(line)
        if not isinstance(data, dict) or data.get("v") != SAMPLE_VERSION:
            return None
        sample = build(Sample, data)
    except (ValueError, RecursionError):
        return None
    return sample if math.isfinite(sample.time_s) else None


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value
