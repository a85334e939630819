"""`python -m tuner_tui` is `tuner-tui`."""


def main() -> None:
    """Run the command line. Ctrl-C while it is still being imported prints no traceback either."""
    try:
        from tuner_tui.cli.main import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
