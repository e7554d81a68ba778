"""The `segue` command, which `python -m segue` is too."""

import sys


def main() -> None:
    try:
        from segue.interfaces.cli import main
    except KeyboardInterrupt:  # as soon as that: what is imported need not be read about
        sys.exit(130)
    main()


if __name__ == "__main__":
    main()
