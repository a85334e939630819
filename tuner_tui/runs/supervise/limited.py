"""Run a command under a memory limit: `python limited.py BYTES COMMAND…`. Replaces itself by the command.

A program of its own because a limit set in the supervisor would hold for the supervisor too, and setting it between
fork and exec runs Python in a half-copied process.
"""

import os
import resource
import sys


def main(argv: list[str]) -> None:
    """Cap private writable memory (`RLIMIT_DATA`) at the first argument, then become the command of the others."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = min(int(argv[0]), sys.maxsize if hard == resource.RLIM_INFINITY else hard)  # nobody may raise a hard limit
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        os.execvp(argv[1], argv[1:])  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"{argv[1]}: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
