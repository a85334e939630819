"""Key bindings, each declared once; footer, help screen and command palette are rendered from them."""

from __future__ import annotations

from textual.binding import Binding

KEY_LABELS = {
    "question_mark": "?", "slash": "/", "plus": "+", "equals_sign": "=", "minus": "-",
    "pageup": "pgup", "pagedown": "pgdn", "escape": "esc", "backspace": "bksp", "delete": "del",
}  # fmt: skip

RUN = Binding.Group("The run")
PRESETS = Binding.Group("Presets and runs")
SETTINGS = Binding.Group("Settings")
TROUBLES = Binding.Group("Troubleshooting")
TUNING = Binding.Group("Tuning")
PANELS = Binding.Group("Panels")
PROGRAM = Binding.Group("The program")
JOBS = Binding.Group("Jobs")


def _key(keys: str, action: str, label: str, id: str, tip: str, group: Binding.Group, show: bool = True) -> Binding:
    display = key_label(keys.split(",")[0])
    return Binding(keys, action, label, id=id, tooltip=tip, group=group, show=show, key_display=display)


def key_label(key: str) -> str:
    """Return the label of a key, such as `ctrl+s` or `?`."""
    return "+".join(KEY_LABELS.get(part, part) for part in key.split("+"))


APP_KEYS = (_key("ctrl+l", "app.redraw", "Redraw", "program.redraw", "Redraw the whole screen", PROGRAM, False),)
MAIN_KEYS = (
    _key("t", "app.do('train')", "Train", "run.train", "Start training with these settings", RUN),
    _key("s", "app.do('stop')", "Stop", "run.stop", "Stop the run (asks first; again: terminate, then kill)", RUN),
    _key("c", "app.do('checkpoint')", "Checkpoint", "run.checkpoint", "Save a checkpoint now and continue", RUN),
    _key("e", "app.do('job')", "Job", "run.job", "Edit the job: command, launcher, how settings are passed", RUN),
    _key(
        "R",
        "app.do('restart')",
        "Restart",
        "run.restart",
        "Save a checkpoint and restart with these settings",
        RUN,
        False,
    ),
    _key("o", "app.do('tune')", "Tune", "run.tune", "Find the fastest settings that fit, with short real runs", RUN),
    _key(
        "a", "app.remedy('apply')", "Apply", "troubles.apply", "Apply the remedy to the settings; u undoes it", TROUBLES
    ),
    _key("d", "app.remedy('diff')", "Diff", "troubles.diff", "Show what the remedy changes", TROUBLES, False),
    _key("w", "why", "Why", "troubles.why", "Show the evidence and the source of the remedy", TROUBLES, False),
    _key("p", "app.do('presets')", "Presets", "presets.load", "Load a preset", PRESETS),
    _key("ctrl+s", "app.do('save')", "Save", "presets.save", "Save to this preset or tool's file", PRESETS, False),
    _key("S", "app.do('save_as')", "Save as", "presets.save-as", "Save the settings as a new preset", PRESETS, False),
    _key("y", "app.do('copy')", "Copy", "presets.copy", "Copy the settings, or the tool's file", PRESETS, False),
    _key("r", "app.do('runs')", "Runs", "runs.list", "List the runs: open another one, or compare", PRESETS),
    _key("Q", "app.do('queue')", "Queue", "runs.queue", "List the runs that wait for a GPU, and why", PRESETS, False),
    _key(
        "v",
        "app.do('compare')",
        "Compare",
        "runs.compare",
        "Compare settings, speed and loss of two runs",
        PRESETS,
        False,
    ),
    _key("u,ctrl+z", "app.do('undo')", "Undo", "settings.undo", "Undo the last change of the settings", SETTINGS),
    _key(
        "ctrl+r,ctrl+y", "app.do('redo')", "Redo", "settings.redo", "Redo the change that was undone", SETTINGS, False
    ),
    _key(
        "m",
        "app.do('memory')",
        "Memory",
        "settings.memory",
        "Show where the memory goes, and what saves it",
        SETTINGS,
        False,
    ),
    _key("tab", "panel(1)", "Next panel", "panels.next", "Go to the next panel", PANELS, False),
    _key("shift+tab", "panel(-1)", "Previous panel", "panels.back", "Go to the previous panel", PANELS, False),
    _key("slash", "search", "Search", "panels.search", "Find a setting, or search the output", PANELS),
    _key("question_mark,f1", "help", "Help", "program.help", "All keys and a glossary", PROGRAM),
    _key("T", "app.theme", "Dark/light", "program.theme", "Dark or light", PROGRAM, False),
    _key("q,ctrl+c", "app.leave", "Quit", "program.quit", "Close the screen; trainings continue", PROGRAM),
)
PAGE_KEYS = tuple(
    _key(f"{number},alt+{number}", f"page({number})", label, f"panels.{number}", f"Go to {label}", PANELS, False)
    for number, label in enumerate(
        ("Settings", "Live", "Troubleshooting", "Output", "Plots", "In effect", "Hardware"), start=1
    )
)
SETTINGS_KEYS = (
    _key("up,k", "move(-1)", "Up", "settings.up", "Previous setting", SETTINGS, False),
    _key("down,j", "move(1)", "Down", "settings.down", "Next setting", SETTINGS, False),
    _key("pageup", "move(-10)", "Page up", "settings.page-up", "Ten settings up", SETTINGS, False),
    _key("pagedown", "move(10)", "Page down", "settings.page-down", "Ten settings down", SETTINGS, False),
    _key("home", "move(-999)", "First", "settings.first", "First setting", SETTINGS, False),
    _key("end", "move(999)", "Last", "settings.last", "Last setting", SETTINGS, False),
    _key("enter", "edit", "Edit", "settings.edit", "Type a value, choose from a list, or toggle a switch", SETTINGS),
    _key("plus,equals_sign,right,l", "step(1)", "More", "settings.more", "Next larger common value", SETTINGS),
    _key("minus,left,h", "step(-1)", "Less", "settings.less", "Next smaller common value", SETTINGS),
    _key("space", "step(1)", "Switch", "settings.switch", "Toggle, or take the next choice", SETTINGS, False),
    _key("backspace,delete", "clear", "Empty", "settings.clear", "Clear the value", SETTINGS, False),
    _key("slash", "find", "Find", "settings.find", "Find a setting by name", SETTINGS),
)
TROUBLES_KEYS = (
    _key("up,k", "move(-1)", "Up", "troubles.up", "Previous remedy", TROUBLES, False),
    _key("down,j", "move(1)", "Down", "troubles.down", "Next remedy", TROUBLES, False),
)
EDIT_KEYS = (
    _key("enter", "submit", "Accept", "edit.accept", "Accept the typed value", SETTINGS),
    _key("escape", "cancel", "Cancel", "edit.cancel", "Keep the old value", SETTINGS),
    _key("up", "accept(-1)", "Accept, up", "edit.up", "Accept and go to the previous setting", SETTINGS, False),
    _key("down,tab", "accept(1)", "Accept, down", "edit.down", "Accept and go to the next setting", SETTINGS, False),
)
TUNE_KEYS = (
    _key(
        "a", "app.do('apply winner')", "Apply winner", "tune.apply", "Show the winner's changes and apply them", TUNING
    ),
    _key("x", "app.do('abort tuning')", "Stop", "tune.abort", "Stop the tuning; measurements are kept", TUNING),
    _key("R", "app.do('resume tuning')", "Resume", "tune.resume", "Resume a tuning that ended early", TUNING),
    _key("t", "app.do('start tuning')", "Start", "tune.start", "Start a tuning of these settings", TUNING),
    _key("r", "app.do('pick tuning')", "Tunings", "tune.list", "List the tunings and open another one", TUNING),
    _key("tab", "panel(1)", "Next panel", "tune.next", "Go to the next panel", PANELS, False),
    _key("shift+tab", "panel(-1)", "Previous panel", "tune.back", "Go to the previous panel", PANELS, False),
    *(
        _key(f"{number}", f"page({number})", label, f"tune.{number}", f"Go to {label}", PANELS, False)
        for number, label in enumerate(("the trials", "what was not tried"), start=1)
    ),
    _key("escape,q,o", "leave", "Back", "tune.leave", "Back to the main screen; the tuning continues", PROGRAM),
    _key("question_mark,f1", "help", "Help", "tune.help", "All keys and a glossary", PROGRAM),
    _key("T", "app.theme", "Dark/light", "tune.theme", "Dark or light", PROGRAM, False),
)
COMPARE_KEYS = (
    _key("escape,q,v", "leave", "Back", "compare.leave", "Back to the main screen", PROGRAM),
    _key("question_mark,f1", "help", "Help", "compare.help", "All keys and a glossary", PROGRAM),
    _key("T", "app.theme", "Dark/light", "compare.theme", "Dark or light", PROGRAM, False),
)
WATCH_ROW_KEYS = (
    _key("up,k", "move(-1)", "Up", "watch.up", "Previous row", JOBS, False),
    _key("down,j", "move(1)", "Down", "watch.down", "Next row", JOBS, False),
    _key("pageup", "move(-10)", "Page up", "watch.page-up", "Ten rows up", JOBS, False),
    _key("pagedown", "move(10)", "Page down", "watch.page-down", "Ten rows down", JOBS, False),
    _key("home", "move(-9999)", "First", "watch.first", "First row", JOBS, False),
    _key("end", "move(9999)", "Last", "watch.last", "Last row", JOBS, False),
)
WATCH_JOB_KEYS = (
    _key("s", "sort", "Sort", "watch.sort", "Sort by the next column: GPU memory, SM share, CPU, RSS, age", JOBS),
    _key("enter,space", "open", "Processes", "watch.open", "Show or hide the processes of a job", JOBS),
    _key("a", "open_all", "All", "watch.open-all", "Show or hide the processes of all jobs", JOBS),
    *WATCH_ROW_KEYS,
)
WATCH_KEYS = (
    _key("question_mark,f1", "help", "Help", "watch.help", "All keys and a glossary", PROGRAM),
    _key("T", "app.theme", "Dark/light", "watch.theme", "Dark or light", PROGRAM, False),
    _key("q,ctrl+c", "app.leave", "Quit", "watch.quit", "Quit; the jobs continue", PROGRAM),
)
