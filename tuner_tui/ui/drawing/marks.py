"""The marks that say a state without colour."""

GOOD = "✓"
WARN = "!"
BAD = "✗"
