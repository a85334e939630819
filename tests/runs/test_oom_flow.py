"""The files that an out-of-memory error passes from the training to its row on the screen, as the README draws them."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import FrameType

from tests.fakes.ui_backend import FakeBox
from tests.runs.sandbox import Sandbox, wait_ended
from tests.ui.pilots import until
from tuner_tui.runs.store.folder import RunFolder
from tuner_tui.ui.followed_run import follow_run

ERRORS = {"OutOfMemoryError", "OutOfMemory", "Failure", "FailureMatch", "Judgement", "CrashCause", "Finding"}
"""The types of the error on its way."""
PACKAGE = "/tuner_tui/"
TRAINING = """
    import sys
    class OutOfMemoryError(RuntimeError): pass
    def note(frame, event, returned):
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if event == "call" and any(isinstance(frame.f_locals.get(name), OutOfMemoryError) for name in names):
            print("passed", code.co_filename, flush=True)
    sys.setprofile(note)
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
"""


class Flow:
    """Notes the files whose functions take or return the error; Python calls it for each call and return."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, None]] = {}

    def __call__(self, frame: FrameType, event: str, returned: object) -> None:
        code = frame.f_code
        if event not in ("call", "return") or PACKAGE not in code.co_filename or "<" in code.co_name:
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        values = [frame.f_locals[name] for name in names if name in frame.f_locals] if event == "call" else [returned]
        flat = [item for value in values for item in (value if isinstance(value, (tuple, list)) else (value,))]
        if any(type(value).__name__ in ERRORS for value in flat):
            file = code.co_filename.rpartition(PACKAGE)[2]
            self.files.setdefault(file, {})[code.co_name] = None


async def test_the_files_that_an_out_of_memory_error_passes(box: Sandbox, repository: Path) -> None:
    folder = box.launch(TRAINING)
    assert wait_ended(folder).outcome == "out-of-memory"
    flow = Flow()
    for file in re.findall(rf"^passed .*{PACKAGE}(\S+)$", folder.output_log.read_text(), re.MULTILINE):
        flow.files[file] = {}
    machine = FakeBox()
    app = machine.app(machine.backend(follow_run=lambda path: follow_run(RunFolder(path))), folder=folder.path)
    threading.setprofile(flow)
    sys.setprofile(flow)
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: "view/end_card.py" in flow.files)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    drawing = "\n".join(f"{file}: {', '.join(functions)}" for file, functions in flow.files.items())
    readme = (repository / "tuner_tui" / "runs" / "log_parsing" / "README.md").read_text("utf-8")
    drawn = readme.partition("An out-of-memory error passes")[2].partition(". ")[0]
    assert [f"{word}.py" for word in re.findall(r"`([\w/]+)`", drawn)] == list(flow.files), drawing
