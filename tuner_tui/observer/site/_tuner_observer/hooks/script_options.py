"""Reports the options of the script's argument parsers: through them, settings and a checkpoint can be passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..import_hooks import call_before

if TYPE_CHECKING:
    from ..session import Session

MAX_OPTIONS = 400


class ScriptOptions:
    """The options seen so far, each with its aliases: `-b --batch-size`; `switches` are those without a value."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._values: list[str] = []
        self._switches: list[str] = []
        self._written = 0

    def hook_argparse(self, module: Any) -> None:
        """Note the options of every parser that parses. `module` is argparse."""
        call_before(module.ArgumentParser, "parse_known_args", lambda parser, *_, **__: self._note(parser))

    def _note(self, parser: Any) -> None:
        for action in parser._actions:
            words = " ".join(action.option_strings)
            options = self._switches if action.nargs == 0 else self._values
            if words and words not in options and len(options) < MAX_OPTIONS and action.dest != "help":
                options.append(words)
        self.write()

    def write(self) -> None:
        """Write the options if there are new ones and the process is seen to train."""
        count = len(self._values) + len(self._switches)
        if self._session.is_open and count > self._written:
            self._written = count
            self._session.report("options", options=self._values, switches=self._switches)
