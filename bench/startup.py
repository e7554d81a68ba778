"""Measure how long a new process takes until it has listed 50 of 100,000 sessions.

Each case is a separate Python process, timed from outside. The baseline imports msgspec and
sqlite3 and does nothing else. The file is in the system's cache. The only target is that a list
does not import asyncio.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from _common import Bench, Case, build_database, list_corpus, temporary_directory, time_cases

BASELINE = "import msgspec, sqlite3"
# Without an event loop: reads of the embedded store never wait.
LIST_PROGRAM = """
import sys
from pathlib import Path
from typing import Any
from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore
path = Path(sys.argv[1])
try:
    Hub(SQLiteStore.open(path), path.parent).sessions.list(LOCAL).send(None)
except StopIteration as done:
    assert len(done.value.sessions) == 50
"""
PRINT_MODULES = """
heavy = "asyncio ssl subprocess inspect tempfile logging email click rich asyncpg".split()
print(len(sys.modules), *(name for name in heavy if name in sys.modules))
"""


def run_process(program: str, path: Path) -> str:
    """Run a Python program with a path as its argument; return its output."""
    command = [sys.executable, "-c", program, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def process_case(program: str, path: Path) -> Case:
    """Return a case that runs a program once."""

    async def run_once() -> None:
        run_process(program, path)

    return run_once


async def main() -> int:
    bench = Bench("Cold start, in ms", ("median", "over the baseline", "ratio"))
    count = 1_000 if bench.quick else 100_000
    programs = {
        "an empty program": "pass",
        "baseline: import msgspec, sqlite3": BASELINE,
        "import segue": "import segue",
        "import segue.hub and the SQLite store": (
            "import segue.hub; from segue.store.sqlite import SQLiteStore"
        ),
        f"the same, then list 50 of {count:,} sessions": LIST_PROGRAM,
        "segue --version": "from segue.interfaces.cli import main; main(['--version'])",
    }
    with temporary_directory() as directory:
        path = await build_database(bench, f"listed-{count}", directory, list_corpus(count), count)
        cases = {name: process_case(program, path) for name, program in programs.items()}
        times = await time_cases(cases, 5 if bench.quick else 25, warm=2)
        modules, *heavy = run_process(LIST_PROGRAM + PRINT_MODULES, path).split()
    baseline = times["baseline: import msgspec, sqlite3"].median
    for name, times_of_case in times.items():
        overhead: dict[str, Any] = {"over the baseline": (times_of_case.median - baseline) * 1e3}
        bench.row(
            name,
            median=times_of_case.median * 1e3,
            ratio=times_of_case.median / baseline,
            **overhead,
        )
    bench.row(
        "a list imports asyncio",
        target="no",
        ok="asyncio" not in heavy,
        median=str("asyncio" in heavy),
    )
    bench.note(f"a list loads {modules} modules; heavy ones: {', '.join(heavy) or 'none'}")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
