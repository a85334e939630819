"""`tuner-tui hosts`: the page on a terminal, else a table or JSON once all hosts have answered."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tuner_tui.cli.console import DONE, FAILED, exit_on_interrupt, fail, print_json, print_line
from tuner_tui.cli.options import AsciiOnly, AsJson
from tuner_tui.cli.startup_memory import reduce_startup_memory

if TYPE_CHECKING:
    from tuner_tui.hosts.address import HostAddress
    from tuner_tui.hosts.host_state import HostView
    from tuner_tui.hosts.ssh import SshTransport

SETTLED_S = 30.0
"""Longer than a connection, the start of Python and the first sample of a slow host take."""


def register(app: typer.Typer) -> None:
    """Add the command `hosts`."""
    app.command("hosts")(hosts)


def hosts(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[HOST...]",
            help="Names of your ssh configuration; HOST=PATH says where its tuner-tui is. "
            "Default: TUNER_HOSTS, then `hosts` of tuner.yaml.",
        ),
    ] = None,
    as_json: AsJson = False,
    ascii_only: AsciiOnly = False,
) -> None:
    """Show GPUs and runs of several machines on one page.

    `tuner-tui --hosts gpu1,gpu2` does the same. Uses ssh with your configuration and keys; enter opens a run on its
    machine. In a pipe, prints a table once.
    """
    watch_hosts(names or (), as_json, ascii_only)


def watch_hosts(names: Sequence[str], as_json: bool = False, ascii_only: bool = False) -> NoReturn:
    """Watch the hosts named, else the configured ones; exits the program."""
    exit_on_interrupt()
    hosts = _chosen_hosts(names)
    if as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise SystemExit(_print_once(hosts, as_json))
    _open_page(hosts, ascii_only)


def _chosen_hosts(names: Sequence[str]) -> Sequence[HostAddress]:
    from tuner_tui.hosts.address import configured_hosts
    from tuner_tui.settings.errors import SettingsError

    try:
        found = configured_hosts(names, os.environ)
    except SettingsError as error:
        fail(str(error))
    if not found:
        fail("No hosts: `tuner-tui hosts gpu1 gpu2`, TUNER_HOSTS=gpu1,gpu2, or `hosts: [gpu1, gpu2]` in tuner.yaml.")
    return found


def _print_once(hosts: Sequence[HostAddress], as_json: bool) -> int:
    """Print all hosts once they have answered; the exit code is 1 where none could be reached."""
    from tuner_tui.hosts.host_state import summarize
    from tuner_tui.hosts.ssh import transport_from
    from tuner_tui.hosts.watcher import HostsWatcher

    transport = transport_from(os.environ)
    watcher = HostsWatcher(hosts, transport)
    watcher.start()
    views = watcher.wait_settled(SETTLED_S)
    watcher.stop()
    transport.close(hosts)
    if as_json:
        print_json([asdict(view) for view in views])
    else:
        print_line("\n\n".join(["\n".join(_host_lines(view)) for view in views] + [summarize(views)]))
    return DONE if any(view.report is not None for view in views) else FAILED


def _host_lines(view: HostView) -> list[str]:
    from tuner_tui.cli.render.text import hanging_lines, warning_lines
    from tuner_tui.cli.render.watch import watch_report
    from tuner_tui.hosts.host_state import describe_free, describe_problems

    report = view.report
    free = "" if report is None else describe_free(report)
    lines = ["  ".join(filter(None, (view.name, view.state.value, free)))]
    lines += [line for problem in describe_problems(view) for line in warning_lines(problem)]
    lines += hanging_lines("  ", view.advice) if view.advice else []
    if report is not None:
        lines += watch_report(report)
        lines += [f"  {run.run} {run.outcome}: {run.sentence}" for run in report.ended]
    return lines


def _open_page(hosts: Sequence[HostAddress], ascii_only: bool) -> NoReturn:
    reduce_startup_memory()
    from tuner_tui.hosts.ssh import transport_from
    from tuner_tui.hosts.watcher import HostsWatcher
    from tuner_tui.ui.hosts_app import HostsApp
    from tuner_tui.ui.theme import wants_colour

    transport = transport_from(os.environ)
    watcher = HostsWatcher(hosts, transport)
    by_name = {host.name: host for host in hosts}
    app = HostsApp(
        watcher,
        lambda name, run: _open_on_host(transport, by_name[name], run),
        colour=wants_colour(os.environ),
        ascii_only=ascii_only,
    )
    try:
        app.run()
    finally:
        watcher.stop()
        transport.close(hosts)
    raise SystemExit(app.return_code or 0)


def _open_on_host(transport: SshTransport, host: HostAddress, run: str | None) -> None:
    """Run the screen of `host` in this terminal; what went wrong stays to be read."""
    words = () if run is None else (run,)
    print_line(f"{host.name}: {shlex.join((host.program, *words))}")
    before = signal.signal(signal.SIGINT, lambda number, frame: None)  # Ctrl-C is for ssh, which gets it too
    try:
        code = subprocess.run(transport.interactive_command(host, *words)).returncode
        if code:
            print_line(f"It ended with code {code}. Press enter to return to the hosts.")
            sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, before)
