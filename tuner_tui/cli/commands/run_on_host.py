"""`tuner-tui run --host`: both ends of a start on another host. `hosts.remote_start` carries the request between them.

The near end turns the options of this command into a request. The far end is the hidden `run --request`: it reads the
request from standard input, saves its preset, and runs `run --detach` in the same process.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path

import typer

from tuner_tui.cli.console import DONE, USAGE, fail, print_line, print_note

REQUEST_VARIABLE = "_TUNER_START_REQUEST"
"""The token of a request of another host, for the launch in the same process."""
REQUEST_TIMEOUT_S = 120.0
"""Longer than any launch takes: the next request waits for the one that is being started."""
NEAR_END_OPTIONS = ("command", "preset", "host", "detach", "as_json")
"""Options that are not sent as they are: the near end acts on them, or sends them in another form."""


def start_on_host(name: str, context: typer.Context, as_json: bool) -> int:
    """Start the run on the host `name` with the options of this command, and print its id."""
    from tuner_tui.hosts.address import parse_hosts
    from tuner_tui.hosts.remote_start import RemoteStartError, StartRequest, start_on
    from tuner_tui.hosts.ssh import transport_from
    from tuner_tui.settings.errors import SettingsError
    from tuner_tui.settings.presets import dump_preset, find_preset

    preset_name = context.params["preset"]
    try:
        hosts = parse_hosts([name])
        preset = None if preset_name is None else dump_preset(find_preset(preset_name).preset)
    except SettingsError as error:
        fail(str(error), USAGE)
    if len(hosts) != 1:
        fail("Name one host.", USAGE)
    saved_as = None if preset_name is None else Path(preset_name).stem
    request = StartRequest(uuid.uuid4().hex, _option_words(context), str(Path.cwd()), preset, saved_as)
    transport = transport_from(os.environ)
    try:
        run, notes = start_on(transport, hosts[0], request)
    except RemoteStartError as error:
        fail(f"{hosts[0].name}: {error}", error.code)
    except OSError as error:
        fail(f"ssh cannot be started: {error.strerror}. Nothing was started.", USAGE)
    finally:
        transport.close(hosts)
    print_line(json.dumps({"host": hosts[0].name, "run": run}) if as_json else run)
    for note in notes.splitlines():
        print_note(note)
    print_note(f"`tuner-tui hosts {name}` shows it.")
    return DONE


def _option_words(context: typer.Context) -> tuple[str, ...]:
    """The options of this command as they were given, and its arguments, without those that are for this machine."""
    words: list[str] = []
    for option in context.command.params:
        value = None if option.name in NEAR_END_OPTIONS else context.params.get(option.name or "")
        for each in value if isinstance(value, (list, tuple)) else [] if value in (None, False) else [value]:
            words += [option.opts[0]] if each is True else [option.opts[0], str(each)]
    return (*words, "--", *(context.params["command"] or ()))


def start_requested_run() -> int:
    """Start the run that another host asks for on standard input, unless it was started already; print its id."""
    from tuner_tui.cli.main import dispatch
    from tuner_tui.core.files import LockedError, acquire_lock, make_private
    from tuner_tui.hosts.remote_start import MOST_REQUEST_BYTES, READY, decode_request
    from tuner_tui.runs.store.folder import list_runs, runs_dir
    from tuner_tui.runs.store.record import readable_record
    from tuner_tui.settings.errors import SettingsError

    print_line(READY)
    sys.stdout.flush()
    try:
        request = decode_request(sys.stdin.buffer.read(MOST_REQUEST_BYTES))
    except ValueError:
        fail("The request is not whole. Nothing was started.", USAGE)
    root = runs_dir()
    # The near end repeats a request whose answer was lost. The lock orders repetitions, and the token in the record of
    # a run shows the second one that its run exists, so that it is started once.
    try:
        make_private(root.parent)
        lock = acquire_lock(root.parent / "requests.lock", REQUEST_TIMEOUT_S)
    except LockedError:
        fail("Another request is being started and takes too long; try again.", USAGE)
    except OSError as error:
        fail(f"{root.parent} cannot be used: {error.strerror}. Nothing was started.", USAGE)
    try:
        for folder in list_runs(root):
            record = readable_record(folder)
            if record is not None and record.queued_as == request.token:
                print_line(json.dumps({"run": folder.id, "path": str(folder.path)}))
                return DONE
        try:
            os.chdir(request.folder)
            preset = _save_sent_preset(request.preset_name, request.preset)
        except SettingsError as error:
            fail(f"{error}. Nothing was started.", USAGE)
        except OSError:
            fail(f"There is no folder {request.folder} on this host, in which the run would start.", USAGE)
        os.environ[REQUEST_VARIABLE] = request.token
        dispatch(["run", "--detach", "--json", *preset, *request.words])
    finally:
        os.close(lock)
    return DONE


def _save_sent_preset(name: str | None, text: str | None) -> tuple[str, ...]:
    """Save the preset of a request, and return the option that chooses it. One that differs is not replaced.

    Raises `SettingsError`.
    """
    from tuner_tui.settings.errors import PresetExistsError
    from tuner_tui.settings.presets import dump_preset, find_preset, parse_preset, preset_path, save_preset

    if name is None or text is None:
        return ()
    path = preset_path(name)
    sent = parse_preset(text, "the request").preset.model_copy(update={"name": path.stem})
    try:
        save_preset(sent, path)
    except PresetExistsError as error:
        if dump_preset(find_preset(str(path)).preset) != dump_preset(sent):
            raise PresetExistsError(f"{error} and differs: `tuner-tui presets push --yes` replaces it.") from None
    return ("--preset", str(path))
