"""Runs a command with a memory limit: `python memory_limit.py BYTES COMMAND…`. Replaces itself by the command.

A separate program, because a limit set in the supervisor would apply to the supervisor too, and a function between fork
and exec would run Python in a half-copied process.
"""

import os
import resource
import sys


def main(argv: list[str]) -> None:
    """Limit private writable memory (`RLIMIT_DATA`) to the first argument, then execute the rest."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = min(int(argv[0]), sys.maxsize if hard == resource.RLIM_INFINITY else hard)  # a hard limit cannot be raised
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        os.execvp(argv[1], argv[1:])  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"{argv[1]}: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
