"""The structures and sizes of the binding, against NVIDIA's own."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml
import pytest

from tuner_tui.hardware import nvml_library
from tuner_tui.hardware.nvml_library import (
    RESULTS,
    NvmlEvent,
    NvmlMemory,
    NvmlMemoryV2,
    NvmlProcess,
    NvmlProcessShare,
    NvmlTemperature,
)

THEIRS: dict[Any, Any] = {
    nvml_library.NvmlUtilization: pynvml.c_nvmlUtilization_t,
    NvmlMemory: pynvml.c_nvmlMemory_t,
    NvmlMemoryV2: pynvml.c_nvmlMemory_v2_t,
    NvmlTemperature: pynvml.c_nvmlTemperature_v1_t,
    NvmlProcess: pynvml.c_nvmlProcessInfo_v3_t,
    NvmlProcessShare: pynvml.c_nvmlProcessUtilizationSample_t,
    NvmlEvent: pynvml.c_nvmlEventData_t,
}


def layout(structure: Any) -> list[tuple[int, int]]:
    """Offset and size of each field."""
    fields = [getattr(structure, name) for name, _ in structure._fields_]
    return [(field.offset, field.size) for field in fields]


@pytest.mark.parametrize("structure", THEIRS)
def test_structures_lie_in_memory_as_those_of_nvidia(structure: Any) -> None:
    theirs = THEIRS[structure]
    assert layout(structure) == layout(theirs)
    assert ctypes.sizeof(structure) == ctypes.sizeof(theirs)


def test_versions_and_codes_are_those_of_nvidia() -> None:
    memory, temperature = RESULTS["nvmlDeviceGetMemoryInfo_v2"][0](), RESULTS["nvmlDeviceGetTemperatureV"][0]()
    assert memory.version == pynvml.nvmlMemory_v2
    assert temperature.version == pynvml.nvmlTemperature_v1
    assert nvml_library.FUNCTION_NOT_FOUND == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert nvml_library.INSUFFICIENT_SIZE == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value == nvml_library.NO_MEMORY_FIGURE
    assert nvml_library.TEXT_BYTES >= pynvml.NVML_DEVICE_NAME_V2_BUFFER_SIZE
    assert nvml_library.TEXT_BYTES >= pynvml.NVML_DEVICE_UUID_V2_BUFFER_SIZE
    assert nvml_library.TEXT_BYTES >= pynvml.NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
