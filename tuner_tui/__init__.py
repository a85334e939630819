"""tuner-tui: starts and watches trainings, finds what limits them, and offers the change that helps most."""

__version__ = "0.1.0"
