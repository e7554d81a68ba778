"""`python -m segue` is the `segue` command."""

from .doors.cli import main

if __name__ == "__main__":
    main()
