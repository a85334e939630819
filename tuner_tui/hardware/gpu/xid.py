"""The driver's critical errors (Xid): what each number means, and whether program or card is the likely cause.

Sources: NVIDIA's catalogue, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, and
the names in the driver's source (`nverror.h` of open-gpu-kernel-modules), which still has 61. A number alone rarely
proves a cause: errors that a program's bug brings about can come from broken memory too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fault = Literal["program", "card", "unknown"]


@dataclass(frozen=True, slots=True)
class XidMeaning:
    """`text` names the error; `fault` is where to look first."""

    text: str
    fault: Fault = "unknown"


XID_MEANINGS = {
    8: XidMeaning("the GPU stopped processing", "program"),
    13: XidMeaning("exception in a kernel, such as an index out of bounds", "program"),
    31: XidMeaning("page fault: a kernel used an illegal address", "program"),
    32: XidMeaning("corrupted command stream"),
    38: XidMeaning("driver firmware error"),
    43: XidMeaning("a program was stopped after its own error", "program"),
    45: XidMeaning("a program was cleaned up after an earlier error", "program"),
    46: XidMeaning("the GPU stopped processing and needs a reset"),
    48: XidMeaning("uncorrectable ECC memory error (double bit)", "card"),
    61: XidMeaning("breakpoint in an internal microcontroller, not fatal"),
    62: XidMeaning("internal microcontroller halted", "card"),
    63: XidMeaning("bad memory was retired or remapped; takes effect after a reset", "card"),
    64: XidMeaning("bad memory could not be retired or remapped", "card"),
    69: XidMeaning("graphics engine class error"),
    74: XidMeaning("NVLink error", "card"),
    79: XidMeaning("the GPU has fallen off the bus", "card"),
    92: XidMeaning("many corrected ECC memory errors", "card"),
    94: XidMeaning("contained memory error: ends the program that hit it", "card"),
    95: XidMeaning("uncontained memory error: the GPU needs a reset", "card"),
    109: XidMeaning("context switch timed out"),
    119: XidMeaning("the GPU System Processor (GSP) does not respond", "card"),
    120: XidMeaning("error in the GPU System Processor (GSP)", "card"),
    121: XidMeaning("corrected error on the CPU link (C2C), harmless", "card"),
    140: XidMeaning("unrecovered memory error", "card"),
}


def xid_meaning(number: int) -> XidMeaning:
    """The meaning of an Xid; also of an unknown one."""
    return XID_MEANINGS.get(number, XidMeaning("see NVIDIA's list of Xid errors"))


def format_xid(number: int) -> str:
    """`Xid 79: the GPU has fallen off the bus`."""
    return f"Xid {number}: {xid_meaning(number).text}"
