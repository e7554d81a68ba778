"""Write constraints.txt: the versions of all packages that the tests ran with.

`python -m tests.constraints` in the test environment.
"""

from pathlib import Path

from tests.test_package import ROOT, resolved

HEADER = """\
# The versions that the tests of this release ran with: pip install -c constraints.txt segue
# `python -m tests.constraints` writes this file.
"""


def constraints() -> str:
    """Return a line for each package of segue with all its extras."""
    distributions = resolved(frozenset(["all"]))
    return HEADER + "".join(
        f"{name}=={distributions[name].version}\n" for name in sorted(distributions)
    )


if __name__ == "__main__":
    Path(ROOT / "constraints.txt").write_text(constraints())
