"""Starting cold: what a new process pays until it has listed 50 of 100,000 sessions.

Each case is a Python process of its own, timed from outside, over one that imports msgspec and
sqlite3 and does nothing. The file is in the system's cache, as it is for a command that is used.
Nothing here is held to a bound, but one thing: a read imports no asyncio.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from _common import Bench, Case, built, interleaved, listed, scratch

FLOOR = "import msgspec, sqlite3"
# Driven by hand: reads of the embedded store never wait, so no event loop is needed for them.
LIST = """
import sys
from pathlib import Path
from typing import Any
from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore
path = Path(sys.argv[1])
try:
    Hub(SQLiteStore.open(path), path.parent).list(LOCAL).send(None)
except StopIteration as done:
    assert len(done.value.sessions) == 50
"""
LOADED = """
heavy = "asyncio ssl subprocess inspect tempfile logging email click rich asyncpg".split()
print(len(sys.modules), *(name for name in heavy if name in sys.modules))
"""


def run(code: str, path: Path) -> str:
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def case(code: str, path: Path) -> Case:
    async def timed() -> None:
        run(code, path)

    return timed


async def main() -> int:
    bench = Bench("Cold start, in ms", ("median", "over the floor", "ratio"))
    count = 1_000 if bench.quick else 100_000
    codes = {
        "python that does nothing": "pass",
        "the floor: import msgspec, sqlite3": FLOOR,
        "import segue": "import segue",
        "import segue.hub and the SQLite store": (
            "import segue.hub; from segue.store.sqlite import SQLiteStore"
        ),
        f"the same, and 50 of {count:,} sessions listed": LIST,
        "segue --version": "from segue.interfaces.cli import main; main(['--version'])",
    }
    with scratch() as directory:
        path = await built(bench, f"listed-{count}", directory, listed(count), count)
        cases = {name: case(code, path) for name, code in codes.items()}
        times = await interleaved(cases, 5 if bench.quick else 25, warm=2)
        modules, *heavy = run(LIST + LOADED, path).split()
    floor = times["the floor: import msgspec, sqlite3"].median
    for name, took in times.items():
        over: dict[str, Any] = {"over the floor": (took.median - floor) * 1e3}
        bench.row(name, median=took.median * 1e3, ratio=took.median / floor, **over)
    bench.row(
        "a list imports asyncio", "no", "asyncio" not in heavy, median=str("asyncio" in heavy)
    )
    bench.note(f"a list loads {modules} modules; heavy ones: {', '.join(heavy) or 'none'}")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
