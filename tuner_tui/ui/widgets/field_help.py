"""The lines under the settings: what the field takes, and what it is for or what is wrong with it."""

from __future__ import annotations

from rich.text import Text
from textual.reactive import reactive

from tuner_tui.ui.form import Help
from tuner_tui.ui.widgets.kept import Kept


class FieldHelp(Kept):
    """Facts of the field on one quiet line, its sentence below."""

    DEFAULT_CSS = """
    FieldHelp {
        height: 3;
        .help--quiet { color: $quiet; }
        .help--warning { color: $warning; }
        .help--error { color: $error; text-style: bold; }
    }
    """
    COMPONENT_CLASSES = {"help--quiet", "help--warning", "help--error"}  # noqa: RUF012

    shown: reactive[Help] = reactive(Help("", ""))

    def render(self) -> Text:
        quiet = self.get_component_rich_style("help--quiet", partial=True)
        tone = self.shown.tone
        style = self.get_component_rich_style(f"help--{tone}", partial=True) if tone in ("warning", "error") else ""
        facts = Text(self.shown.facts, style=quiet, no_wrap=True, overflow="ellipsis")
        facts.truncate(self.size.width, overflow="ellipsis")
        return Text.assemble(facts, "\n", (self.shown.sentence, style))
