"""`python -m tuner_tui` is `tuner-tui`."""

from tuner_tui.cli.main import main

main()
