"""tuner-tui: what the machine is, which settings suit it, what holds the training back."""

__version__ = "0.1.0"
