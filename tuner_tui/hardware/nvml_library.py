"""The functions of NVIDIA's driver library (nvml.h) that are read here, through ctypes.

NVIDIA's own binding, `nvidia-ml-py`, defines all 450 functions and 370 structures, which takes 3 MB and 60 ms.
"""

from __future__ import annotations

from ctypes import CDLL, Structure, byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer
from functools import partial
from typing import Any

FUNCTION_NOT_FOUND, INSUFFICIENT_SIZE = 13, 7
NO_MEMORY_FIGURE = (1 << 64) - 1
"""NVML_VALUE_NOT_AVAILABLE: the memory of a process that the driver cannot tell."""
TEXT_BYTES = 96
"""NVML_DEVICE_NAME_V2_BUFFER_SIZE, the longest of the texts."""


class NvmlError(Exception):
    """An NVML function returned the error `code` (nvmlReturn_t)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class NvmlUtilization(Structure):
    """nvmlUtilization_t: percent."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class NvmlMemory(Structure):
    """nvmlMemory_t: bytes; what the driver reserves counts as used."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class NvmlMemoryV2(Structure):
    """nvmlMemory_v2_t: bytes."""

    _fields_ = (("version", c_uint), *((name, c_ulonglong) for name in ("total", "reserved", "free", "used")))


class NvmlTemperature(Structure):
    """nvmlTemperature_v1_t: degrees Celsius of a sensor; 0 is the GPU's."""

    _fields_ = (("version", c_uint), ("sensor", c_uint), ("celsius", c_int))


class NvmlProcess(Structure):
    """nvmlProcessInfo_t of version 3: bytes of a compute process."""

    _fields_ = (("pid", c_uint), ("used_bytes", c_ulonglong), ("gpu_instance", c_uint), ("compute_instance", c_uint))


class NvmlProcessShare(Structure):
    """nvmlProcessUtilizationSample_t: percent of a process in the moments before `time_us`."""

    _fields_ = (("pid", c_uint), ("time_us", c_ulonglong), *((name, c_uint) for name in ("sm", "memory", "enc", "dec")))


class NvmlEvent(Structure):
    """nvmlEventData_t: `data` is the number of the Xid."""

    _fields_ = (
        *(("device", c_void_p), ("kind", c_ulonglong), ("data", c_ulonglong)),
        *(("gpu_instance", c_uint), ("compute_instance", c_uint)),
    )


TEXTS = ("nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlSystemGetDriverVersion")
NEXT_EVENT = "nvmlEventSetWait_v2"
SHARES = "nvmlDeviceGetProcessUtilization"
LISTS = {"nvmlDeviceGetComputeRunningProcesses_v3": NvmlProcess, SHARES: NvmlProcessShare}
RESULTS: dict[str, tuple[Any, ...]] = {
    "nvmlInitWithFlags": (),
    "nvmlDeviceRegisterEvents": (),
    "nvmlDeviceGetHandleByIndex_v2": (c_void_p,),
    "nvmlDeviceGetMigDeviceHandleByIndex": (c_void_p,),
    "nvmlEventSetCreate": (c_void_p,),
    NEXT_EVENT: (NvmlEvent,),
    "nvmlDeviceGetCudaComputeCapability": (c_int, c_int),
    "nvmlDeviceGetMigMode": (c_uint, c_uint),
    "nvmlDeviceGetCurrentClocksEventReasons": (c_ulonglong,),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (c_ulonglong,),
    "nvmlDeviceGetUtilizationRates": (NvmlUtilization,),
    "nvmlDeviceGetMemoryInfo": (NvmlMemory,),
    "nvmlDeviceGetMemoryInfo_v2": (partial(NvmlMemoryV2, 0x02000028),),
    "nvmlDeviceGetTemperatureV": (partial(NvmlTemperature, 0x0100000C),),
}
"""What the functions write behind their inputs; one number, unless they stand here."""


class NvmlLibrary:
    """The driver's library at `path`. Raises OSError where it is missing. Any call may block as long as the driver."""

    def __init__(self, path: str) -> None:
        self._library = CDLL(path)
        self._library.nvmlErrorString.restype = c_char_p

    def read(self, function: str, *inputs: Any) -> Any:
        """What `function` of nvml.h answers: a number, a structure, a text, a list or a pair. Raises `NvmlError`."""
        if function in LISTS:
            return self._read_list(function, *inputs)
        if function in TEXTS:
            text = create_string_buffer(TEXT_BYTES)
            self._call(function, *inputs, text, c_uint(TEXT_BYTES))
            return text.value.decode(errors="replace")
        results = [kind() for kind in RESULTS.get(function, (c_uint,))]
        timeout_ms = (0,) if function == NEXT_EVENT else ()  # the one input that stands behind the result
        self._call(function, *inputs, *map(byref, results), *timeout_ms)
        values = [result.value if isinstance(result, (c_int, c_uint, c_ulonglong)) else result for result in results]
        return values[0] if len(values) == 1 else tuple(values)

    def _read_list(self, function: str, handle: c_void_p, *inputs: Any) -> list[Any]:
        """The rows of a function that answers how many there are as long as there is no room for them."""
        count, rows = c_uint(0), None
        while True:
            try:
                table = (rows, byref(count)) if function == SHARES else (byref(count), rows)
                self._call(function, handle, *table, *inputs)
            except NvmlError as error:
                if error.code != INSUFFICIENT_SIZE or rows is not None:
                    raise
                count.value = 2 * count.value + 5  # more may start before the second call
                rows = (LISTS[function] * count.value)()
            else:
                return list(rows[: count.value]) if rows is not None else []

    def _call(self, function: str, *arguments: Any) -> None:
        try:
            code = getattr(self._library, function)(*arguments)
        except AttributeError:
            raise NvmlError(FUNCTION_NOT_FOUND, "Function Not Found") from None
        if code:
            raise NvmlError(code, self._library.nvmlErrorString(code).decode(errors="replace"))
