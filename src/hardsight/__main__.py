"""The `hardsight` command, also as `python -m hardsight`."""

from hardsight.stopping import signals_raised, stop_said


def main() -> None:
    """Run the command line; an interruption is answered from here on, also while it is being imported."""
    with signals_raised(), stop_said():
        from hardsight import cli

        cli.main()


if __name__ == "__main__":
    main()
