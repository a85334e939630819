"""The least that a Textual application with two GPU rows is: the peer of `first_paint`."""

from __future__ import annotations

import pynvml
from textual.app import App, ComposeResult
from textual.widgets import Static


class BareApp(App[None]):
    """One row of text for each GPU, read once a second."""

    def compose(self) -> ComposeResult:
        pynvml.nvmlInit()
        self.handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        self.rows = [Static() for _ in self.handles]
        yield from self.rows

    def on_mount(self) -> None:
        self.read_gpus()
        self.set_interval(1.0, self.read_gpus)

    def read_gpus(self) -> None:
        for handle, row in zip(self.handles, self.rows, strict=True):
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            busy_pct = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
            row.update(f"{pynvml.nvmlDeviceGetName(handle)}  {busy_pct} %  {memory.used} of {memory.total} bytes")


if __name__ == "__main__":
    BareApp().run()
