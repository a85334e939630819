"""The commands, each registered by a module of this package. Importing the package imports none of them."""

COMMANDS = {
    "screen": "screen",
    "demo": "screen",
    "detect": "detect",
    "doctor": "doctor",
    "recommend": "recommend",
    "estimate": "estimate",
    "run": "run",
    "queue": "queue",
    "tune": "tune",
    "ps": "ps",
    "attach": "attach",
    "watch": "watch",
    "logs": "logs",
    "stop": "stop",
    "diff": "diff",
    "diagnose": "diagnose",
    "presets": "presets",
    "export": "export",
    "import": "export",
}
