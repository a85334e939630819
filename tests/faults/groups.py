"""The tests of faults, by what they hold; their counts are printed at the end of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

GROUPS: Mapping[str, tuple[str, ...]] = {
    "a run obeys": ("tests/faults/test_stop_obeys.py", "tests/faults/test_duplicate_launches.py"),
    "true states": (
        "tests/faults/test_clocks.py",
        "tests/faults/test_false_events.py",
        "tests/runs/read/test_status.py",
    ),
    "one bad folder, one line": ("tests/faults/test_damaged_folders.py",),
    "nothing raw": ("tests/cli/test_hostile_text.py", "tests/core/test_text.py"),
    "nothing secret": ("tests/core/test_redaction.py",),
    "nobody else": ("tests/faults/test_permissions.py",),
    "the terminal comes back": ("tests/ui/terminal/test_terminal_comes_back.py",),
    "any key": ("tests/faults/test_keys.py", "tests/ui/terminal/test_input_driver.py"),
    "drivers": ("tests/hardware/gpu/test_nvml.py", "tests/hardware/test_sampler.py"),
    "odd places": ("tests/faults/test_odd_places.py", "tests/faults/test_slow_disk.py"),
    "fuzzer": ("tests/faults/test_fuzz.py",),
}
OUTCOMES = ("passed", "failed", "error", "skipped")


def count_groups(outcomes: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each group that has results; `outcomes` are pairs of test id and outcome."""
    counts: dict[str, Counter[str]] = {}
    for test, outcome in outcomes:
        for group, files in GROUPS.items():
            if test.startswith(files):
                counts.setdefault(group, Counter())[outcome] += 1
    return [
        f"{group:<26}" + "  ".join(f"{counts[group][outcome]:>4} {outcome}" for outcome in OUTCOMES)
        for group in GROUPS
        if group in counts
    ]
