"""NVIDIA GPUs through NVML; the only module that imports `pynvml`, and only once the driver's library is there.

A greedy monitor takes driver locks that a training needs, so only calls that cost microseconds are made each second;
PCIe throughput (20 ms a call by definition) and graphics processes (4.5 ms measured) are never asked for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from tuner_tui.hardware.driver import GpuUnavailable
from tuner_tui.hardware.inventory import Gpu, GpuProblemKind, GpuProcess, MigSlice
from tuner_tui.hardware.sample import GpuSample

THROTTLE_REASONS: tuple[tuple[int, str], ...] = (
    (0x040, "thermal slowdown (hardware)"),
    (0x020, "thermal slowdown (driver)"),
    (0x080, "power brake (power supply)"),
    (0x004, "power cap"),
    (0x008, "hardware slowdown"),
    (0x200, "board limit"),
    (0x400, "reliability limit"),
    (0x002, "application clocks set"),
    (0x010, "sync boost"),
    (0x100, "display clock setting"),
)
"""`nvmlClocksEventReasons` of nvml.h, most urgent first. Bit 0x001, an idle GPU, is no throttling."""

THROTTLE_CALLS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
"""The second is for drivers before 535."""
HARDWARE_SLOWDOWN = 0x008
HARDWARE_CAUSES = 0x040 | 0x080


def throttle_reasons(reasons: int) -> tuple[str, ...]:
    """The names of the bits set in `reasons`, most urgent first; empty when the clocks are not throttled."""
    if reasons & HARDWARE_CAUSES:
        # NVML sets "hardware slowdown" together with its cause; alone it means that the cause is unknown.
        reasons &= ~HARDWARE_SLOWDOWN
    return tuple(words for bit, words in THROTTLE_REASONS if reasons & bit)


LIBRARY = "libnvidia-ml.so.1"
ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper",
    10: "Blackwell", 13: "Rubin",
}  # fmt: skip
"""NVML_DEVICE_ARCH_* of nvml.h."""

# NVML error codes (nvmlReturn_t in nvml.h).
NO_PERMISSION, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, GPU_IS_LOST = 4, 9, 12, 15
TIMEOUT, RESET_REQUIRED, VERSION_MISMATCH, GPU_NOT_FOUND = 10, 16, 18, 28
PROBLEM_KINDS = {
    NO_PERMISSION: GpuProblemKind.NO_PERMISSION,
    DRIVER_NOT_LOADED: GpuProblemKind.NO_DRIVER,
    LIBRARY_NOT_FOUND: GpuProblemKind.NO_LIBRARY,
    GPU_IS_LOST: GpuProblemKind.GPU_LOST,
    RESET_REQUIRED: GpuProblemKind.GPU_LOST,
    VERSION_MISMATCH: GpuProblemKind.VERSION_MISMATCH,
    GPU_NOT_FOUND: GpuProblemKind.GPU_LOST,
}
LOST_CODES = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})
CLOCK_SM, SENSOR_GPU = 1, 0
MEMORY_V2 = 0x02000028
EVENT_XID = 0x8
MAX_XIDS = 64


class NvmlReader:
    """Opens the GPUs that NVML reports. Every call may block for as long as the driver does."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._library = library
        self._nvml: Any = None

    def open(self) -> Sequence[NvmlGpu]:
        """Start the driver's library; return the GPUs, at least one, in its order. Raises `GpuUnavailable`."""
        try:
            ctypes.CDLL(self._library)
        except OSError as error:
            raise GpuUnavailable(GpuProblemKind.NO_LIBRARY) from error
        import pynvml as nvml

        try:
            nvml.nvmlInit()
            count = int(nvml.nvmlDeviceGetCount())
        except nvml.NVMLError as error:
            kind = PROBLEM_KINDS.get(error.value, GpuProblemKind.UNKNOWN)
            raise GpuUnavailable(kind, None, str(error)) from error
        if count == 0:
            raise GpuUnavailable(GpuProblemKind.NO_GPU)
        self._nvml = nvml
        return [NvmlGpu(nvml, index) for index in range(count)]

    def driver(self) -> tuple[str | None, str | None]:
        """The driver's version (`580.65.06`) and the newest CUDA it supports (`13.0`); None where not reported."""
        nvml = self._nvml
        try:
            cuda = int(nvml.nvmlSystemGetCudaDriverVersion())
            return decode_text(nvml.nvmlSystemGetDriverVersion()), f"{cuda // 1000}.{cuda % 1000 // 10}"
        except nvml.NVMLError:
            return None, None


class NvmlGpu:
    """One GPU; `index` counts from 0 as the driver does, not as CUDA_VISIBLE_DEVICES does.

    Every call may block, so callers keep each GPU in a thread of its own; a figure that it does not give is `None`.
    Its handle is requested once, as a hanging GPU makes even that slow.
    """

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        self.index = index
        self._handle: Any = None
        self._newest_share_us = 0
        self._events: Any = None
        self._supports_events = True

    def describe(self) -> Gpu:
        """The GPU, without its abilities. Raises `GpuUnavailable`, as `fast` and `slow` do."""
        total, used = self._memory()
        capability = self._query("nvmlDeviceGetCudaComputeCapability")
        mig = self._query("nvmlDeviceGetMigMode")
        return Gpu(
            index=self.index,
            name=decode_text(self._query("nvmlDeviceGetName")) or f"GPU {self.index}",
            uuid=decode_text(self._query("nvmlDeviceGetUUID")),
            architecture=ARCHITECTURES.get(self._query("nvmlDeviceGetArchitecture")),
            capability=None if capability is None else (int(capability[0]), int(capability[1])),
            memory_total_bytes=total,
            memory_used_bytes=used,
            power_limit_w=to_watts(self._query("nvmlDeviceGetPowerManagementLimit")),
            mig=None if mig is None else bool(mig[0]),
            processes=self._processes() or (),
            slices=tuple(self._slices()) if mig is not None and mig[0] else (),
        )

    def _slices(self) -> Iterator[MigSlice]:
        """The slices of a GPU in MIG mode, each described by its own handle."""
        for number in range(self._query("nvmlDeviceGetMaxMigDeviceCount") or 0):
            handle = self._query("nvmlDeviceGetMigDeviceHandleByIndex", number)
            if handle is None:
                continue
            memory = self._ask(handle, "nvmlDeviceGetMemoryInfo")
            yield MigSlice(
                decode_text(self._ask(handle, "nvmlDeviceGetName")) or f"MIG slice {number}",
                decode_text(self._ask(handle, "nvmlDeviceGetUUID")),
                None if memory is None else int(memory.total),
                None if memory is None else int(memory.used),
            )

    def _ask(self, handle: Any, function: str) -> Any:
        """The result of an NVML function on a slice, or None where it fails."""
        try:
            return getattr(self._nvml, function)(handle)
        except (UnicodeDecodeError, self._nvml.NVMLError):
            return None

    def fast(self) -> GpuSample:
        """The figures for every second, which cost the driver microseconds."""
        rates = self._query("nvmlDeviceGetUtilizationRates")
        total, used = self._memory()
        return GpuSample(
            self.index,
            f"GPU {self.index}",
            utilisation_pct=None if rates is None else float(rates.gpu),
            memory_used_bytes=used,
            memory_total_bytes=total,
            power_w=to_watts(self._query("nvmlDeviceGetPowerUsage")),
            clock_sm_mhz=self._query("nvmlDeviceGetClockInfo", CLOCK_SM),
            throttle=throttle_reasons(int(self._newest(THROTTLE_CALLS) or 0)),
        )

    def slow(self) -> GpuSample:
        """The figures that change slowly or cost the driver more: temperature, fan, processes."""
        celsius = self._newest(("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"), SENSOR_GPU)  # before 560
        fan, processes = self._query("nvmlDeviceGetFanSpeed"), self._with_shares(self._processes())
        return GpuSample(self.index, f"GPU {self.index}", temperature_c=celsius, fan_pct=fan, processes=processes)

    def xids(self) -> tuple[int, ...]:
        """The Xids since the previous call, oldest first: none at the first one, or where they are not reported."""
        codes: list[int] = []
        # Xids are queued from the registration on. A timeout of 0 returns what is queued; NVML reports an empty queue
        # as the error TIMEOUT. Any other error means that the GPU is gone or was reset: register again at the next
        # call. If already the registration failed, the GPU has no such events and is not asked again.
        try:
            if self._events is None and self._supports_events and self._handle is not None:
                events = self._nvml.nvmlEventSetCreate()
                self._nvml.nvmlDeviceRegisterEvents(self._handle, EVENT_XID, events)
                self._events = events
            while self._events is not None and len(codes) < MAX_XIDS:
                codes.append(int(self._nvml.nvmlEventSetWait_v2(self._events, 0).eventData))
        except self._nvml.NVMLError as error:  # a timeout: the queue is empty
            self._supports_events = self._events is not None
            if error.value != TIMEOUT:
                self._events = None
        return tuple(codes)

    def _memory(self) -> tuple[int | None, int | None]:
        """Total and used bytes. Version 1 of the interface, for older drivers, counts reserved memory as used."""
        memory = self._query("nvmlDeviceGetMemoryInfo", MEMORY_V2) or self._query("nvmlDeviceGetMemoryInfo")
        return (None, None) if memory is None else (int(memory.total), int(memory.used))

    def _newest(self, functions: Sequence[str], *arguments: Any) -> Any:
        """The answer to the first of `functions` that the driver has, newest first; None without any."""
        answers = (self._query(function, *arguments) for function in functions)
        return next((answer for answer in answers if answer is not None), None)

    def _processes(self) -> tuple[GpuProcess, ...] | None:
        """The compute processes, largest first; None where the driver does not report them."""
        rows = self._query("nvmlDeviceGetComputeRunningProcesses")
        if rows is None:
            return None
        processes = [GpuProcess(int(row.pid), row.usedGpuMemory) for row in rows]
        return tuple(sorted(processes, key=lambda process: -(process.memory_bytes or 0)))

    def _with_shares(self, processes: tuple[GpuProcess, ...] | None) -> tuple[GpuProcess, ...] | None:
        """The processes with their share of the GPU since the previous call.

        The driver keeps a ring of samples, each over a sixth of a second to a second, and returns those newer than a
        time stamp; a process without a sample was idle. Before the first sample of any process the shares are unknown,
        since the driver may not count them at all (it does not on MIG slices).
        """
        if not processes:
            return processes
        samples = self._query("nvmlDeviceGetProcessUtilization", self._newest_share_us) or ()
        shares: dict[int, list[int]] = {}
        # The time stamp of the newest sample is kept and given at the next call, so that each sample counts once.
        for sample in samples:
            if sample.smUtil <= 100:  # stale entries of the ring hold garbage, in the time stamp too
                self._newest_share_us = max(self._newest_share_us, int(sample.timeStamp))
                shares.setdefault(int(sample.pid), []).append(int(sample.smUtil))
        if not self._newest_share_us:
            return processes
        means = {pid: sum(percents) / len(percents) for pid, percents in shares.items()}
        return tuple(replace(process, sm_pct=means.get(process.pid, 0.0)) for process in processes)

    def _query(self, function: str, *arguments: Any) -> Any:
        """The result of an NVML function, or None where it fails. Raises `GpuUnavailable` when the GPU is gone."""
        try:
            if self._handle is None:
                self._handle = self._nvml.nvmlDeviceGetHandleByIndex(self.index)
            return getattr(self._nvml, function)(self._handle, *arguments)
        except UnicodeDecodeError:  # a garbled name
            return None
        except self._nvml.NVMLError as error:
            # An error about one figure means that this GPU does not have it. Without a handle, or with a code of a lost
            # GPU, nothing of the GPU can be read: the handle is dropped, so that a GPU that returns is opened anew.
            if self._handle is not None and error.value not in LOST_CODES:
                return None
            self._handle = None
            kind = PROBLEM_KINDS.get(error.value, GpuProblemKind.UNKNOWN)
            raise GpuUnavailable(kind, self.index, str(error)) from error


def decode_text(answer: Any) -> str | None:
    """A string of NVML: older bindings return `bytes`."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


def to_watts(milliwatts: Any) -> float | None:
    return None if milliwatts is None else milliwatts / 1000
