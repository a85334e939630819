"""The commands, each registered by a module of this package. Importing the package imports none of them."""

COMMANDS = {
    "screen": "screen",
    "demo": "screen",
    "detect": "machines.detect",
    "doctor": "machines.doctor",
    "recommend": "settings.recommend",
    "estimate": "settings.estimate",
    "run": "runs.run",
    "queue": "runs.queue",
    "tune": "settings.tune",
    "ps": "runs.ps",
    "attach": "runs.attach",
    "watch": "machines.watch",
    "hosts": "machines.hosts",
    "logs": "runs.logs",
    "stop": "runs.stop",
    "diff": "runs.diff",
    "diagnose": "runs.diagnose",
    "presets": "settings.presets",
    "export": "settings.export",
    "import": "settings.export",
}
