"""`python -m hardsight`: the command line where the `hardsight` script is not on the path."""

from hardsight.cli import main

if __name__ == "__main__":
    main()
