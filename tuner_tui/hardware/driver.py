"""The errors of a GPU driver, the meaning of each Xid, and what to do about them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from tuner_tui.core.files import parse_data_file, read_data_file
from tuner_tui.hardware.inventory import GpuProblem, GpuProblemKind

XIDS_FILE = Path(__file__).with_name("xids.yaml")
PROBLEMS_FILE = Path(__file__).with_name("gpu_problems.yaml")


class GpuUnavailable(Exception):
    """A GPU does not answer (it fell off the bus, or its driver hangs), or none of this machine can be read.

    Raised with the arguments of `gpu_problem`, which reads its words only when someone asks for them.
    """

    @property
    def problem(self) -> GpuProblem:
        return gpu_problem(*self.args)


def gpu_problem(kind: GpuProblemKind, index: int | None = None, error: str = "unknown error") -> GpuProblem:
    """The problem of this kind with the GPU `index`, or with all GPUs; `error` is the driver's message."""
    sentence, advice = (read_data_file(PROBLEMS_FILE)[kind][part] for part in ("sentence", "advice"))
    who = "The NVIDIA driver" if index is None else f"GPU {index}"
    if index is not None and "{who}" not in sentence:
        sentence = f"{{who}}: {sentence[0].lower()}{sentence[1:]}"
    number = 0 if index is None else index
    return GpuProblem(kind, sentence.format(who=who, error=error), advice.format(index=number, error=error), index)


Fault = Literal["program", "gpu", "unknown"]


class XidMeaning(NamedTuple):
    """`text` names the error; `fault` is where to look first."""

    text: str
    fault: Fault = "unknown"


@cache
def xid_meanings() -> dict[int, XidMeaning]:
    return {number: XidMeaning(**row) for number, row in parse_data_file(XIDS_FILE).items()}


def xid_meaning(number: int) -> XidMeaning:
    """The meaning of an Xid; also of an unknown one."""
    return xid_meanings().get(number, XidMeaning("see NVIDIA's list of Xid errors"))


def format_xid(number: int) -> str:
    """`Xid 79: the GPU has fallen off the bus`."""
    return f"Xid {number}: {xid_meaning(number).text}"
