"""The commands, each in the module of its name. Importing the package imports none of them."""

PANELS = {
    "Start": ("demo", "run", "tune", "stop", "queue", "slurm"),
    "Look": ("watch", "ps", "logs", "diagnose", "stacks", "diff"),
    "Plan": ("doctor", "recommend", "estimate"),
    "Manage": ("presets",),
}
"""The commands under the headings of `--help`."""
COMMANDS = {name: name for names in PANELS.values() for name in names} | {"demo": "screen", "screen": "screen"}
"""The module of each command: it has a function of that name, or `group` for commands below it."""
ALIASES = {
    "attach": ("logs", "--follow", "--events"),
    "detect": ("doctor", "--hardware"),
    "export": ("presets", "export"),
    "hosts": ("watch",),
    "import": ("presets", "import"),
}
"""Commands of the release before, and what they are now."""
