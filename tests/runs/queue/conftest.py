from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.queue.queue_box import QueueBox


@pytest.fixture
def box(tmp_path: Path) -> Iterator[QueueBox]:
    made = QueueBox(tmp_path)
    yield made
    made.close()
