"""Which hosts to watch: their names as ssh knows them, and where tuner-tui is on each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner_tui.core.text import escape_control
from tuner_tui.settings.errors import SettingsError
from tuner_tui.settings.model import shorten_text
from tuner_tui.settings.resolve import PROJECT_FILE, load_project

HOSTS_VARIABLE = "TUNER_HOSTS"
MOST_HOSTS = 64
PROGRAM = "tuner-tui"
# A name that begins with a dash would be an option of ssh; blanks, quotes and % would be expanded on the way.
_NAME = re.compile(r"(?:[A-Za-z0-9_][\w.+-]{0,63}@)?[A-Za-z0-9_][A-Za-z0-9_.:-]{0,252}", re.ASCII)


@dataclass(frozen=True, slots=True)
class HostAddress:
    """A host: an alias of the ssh configuration, a name or `user@name`; `program` is its tuner-tui."""

    name: str
    program: str = PROGRAM

    @property
    def shell_program(self) -> str:
        """`program` as a word of the host's shell; `~/` is its home folder."""
        if self.program.startswith("~/"):
            return f'"$HOME"/{shlex.quote(self.program[2:])}'
        return shlex.quote(self.program)


def parse_hosts(texts: Iterable[str]) -> tuple[HostAddress, ...]:
    """Hosts from words such as `gpu1,gpu2=~/venv/bin/tuner-tui`; each once. Raises `SettingsError`."""
    found: dict[str, HostAddress] = {}
    for word in (part.strip() for text in texts for part in text.split(",")):
        if word:
            host = _parse_host(word)
            found.setdefault(host.name, host)
    if len(found) > MOST_HOSTS:
        raise SettingsError(f"{len(found)} hosts are more than the {MOST_HOSTS} that one page can watch.")
    return tuple(found.values())


def _parse_host(word: str) -> HostAddress:
    name, equals, program = word.partition("=")
    if _NAME.fullmatch(name) is None:
        shown = shorten_text(escape_control(name))
        raise SettingsError(f"'{shown}' is not a host: use a name of your ssh configuration, such as gpu1 or me@gpu1")
    if equals and (not program or program.startswith("-") or not program.isprintable()):
        raise SettingsError(f"{name}: after `=` comes the path of its tuner-tui, such as ~/venv/bin/tuner-tui")
    return HostAddress(name, program or PROGRAM)


def configured_hosts(
    flags: Iterable[str], environ: Mapping[str, str], project: Path | None = Path(PROJECT_FILE)
) -> tuple[HostAddress, ...]:
    """Hosts of the command line, else of `TUNER_HOSTS`, else `hosts` of the project file. Raises `SettingsError`."""
    found = parse_hosts(flags) or parse_hosts([environ.get(HOSTS_VARIABLE, "")])
    if found:
        return found
    loaded = load_project(project)
    return () if loaded is None else parse_hosts(loaded.preset.hosts)
