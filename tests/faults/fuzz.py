"""Searches for faults: `python -m tests.faults.fuzz [--keys | --machines] [--minutes 30] [--seed 0]`.

The state machine over run folders; with `--keys` random keys on the screens, and with `--machines` on the screen of a
machine in any state; with one seed after the other. A finding is printed with its seed and its steps, and the search
goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
import traceback
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.faults.keys import apps, press_random_keys, use_any_machine
from tests.faults.run_fuzzer import RunMachine

STEPS, KEYS, MACHINE_KEYS = 30, 500, 60
EXAMPLES = 4
"""By a seed; the first one has the fewest steps possible."""


def search_runs(number: int, steps: int = STEPS, examples: int = EXAMPLES) -> None:
    """Examples of the state machine by a seed. Raises what one of them finds."""
    chosen = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, phases=(Phase.generate,), database=None,
        suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip
    run_state_machine_as_test(seed(number)(RunMachine), settings=chosen)


def search_keys(number: int) -> None:
    """Random keys on one of the screens by a seed."""
    screens = list(apps().values())
    asyncio.run(press_random_keys(screens[number % len(screens)](), number, KEYS))


def search_machines(number: int) -> None:
    """Random keys on the screen of a machine by a seed."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(use_any_machine(number, Path(folder, "runs"), MACHINE_KEYS))


def main() -> None:
    """Search until the time is up, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--keys", action="store_true", help="random keys instead of run folders")
    kinds.add_argument("--machines", action="store_true", help="random keys on machines in any state")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    search = search_keys if options.keys else search_machines if options.machines else search_runs
    ends_s, number, findings = time.monotonic() + 60 * options.minutes, options.seed, 0
    with tempfile.TemporaryDirectory() as state:
        os.environ |= {"TUNER_STATE_DIR": state, "HF_HUB_OFFLINE": "1"}
        while time.monotonic() < ends_s:
            try:
                search(number)
            except Exception:  # noqa: BLE001  any is a finding
                findings += 1
                print(f"seed {number}:\n{traceback.format_exc()}", flush=True)
            number += 1
    print(f"seeds {options.seed} to {number - 1} in {options.minutes:g} minutes: {findings} findings")


if __name__ == "__main__":
    main()
