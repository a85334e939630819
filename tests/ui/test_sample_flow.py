"""A figure of a GPU on its way from the driver to its cell: the functions called, in their order."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import FrameType

from tests.fakes.gpu_reader import FakeHandle, FakeReader
from tests.fakes.ui_backend import FakeBox
from tests.ui.pilots import screen_text, until
from tuner_tui.hardware.host_sampler import HostSampler
from tuner_tui.hardware.process_sampler import ProcessSampler
from tuner_tui.hardware.sampler import Sampler

FLOW = (
    ("hardware/sampler.py", "GpuMonitor.refresh"),
    ("hardware/nvml.py", "NvmlGpu.fast"),
    ("ui/feeds.py", "HardwareFeed.samples"),
    ("hardware/sampler.py", "Sampler.sample"),
    ("ui/panels/live.py", "LivePanel.watch_sample"),
    ("ui/panels/live.py", "LivePanel.rows"),
    ("view/live_rows.py", "live_rows"),
    ("view/gpu_rows.py", "gpu_rows"),
    ("ui/terminal/base_widgets.py", "Canvas.render_line"),
    ("ui/terminal/cell_writer.py", "TerminalCells.wrap"),
)
"""What formats a figure (`charts`, `cells`, `number_format`) is called on the way. `ui/README.md` shows this list."""
MOST_FILES = 9
ROOT = Path(__file__).parents[2]


async def test_a_figure_passes_few_files(tmp_path: Path) -> None:
    passed: list[str] = []
    names = {function for _, function in FLOW}

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (name := frame.f_code.co_qualname.replace("FakeHandle", "NvmlGpu")) in names:
            passed.append(name)

    sampler = Sampler(FakeReader(FakeHandle()), HostSampler(tmp_path, time.monotonic), ProcessSampler(time.monotonic))
    threading.setprofile(record)
    sys.setprofile(record)
    try:
        sampler.start()
        app = FakeBox().app(FakeBox().backend(open_sampler=lambda: sampler))
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: "61 °C" in screen_text(app) and in_order(passed))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        sampler.close()
    assert len({file for file, _ in FLOW}) <= MOST_FILES


def in_order(passed: list[str]) -> bool:
    """Whether all functions of the flow were called, each after the one before it."""
    calls = iter(list(passed))
    return all(function in calls for _, function in FLOW)


def test_the_readme_shows_the_flow() -> None:
    readme = (ROOT / "tuner_tui/ui/README.md").read_text()
    assert " → ".join(f"`{function}`" for _, function in FLOW) in " ".join(readme.split())
