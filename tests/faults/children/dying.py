"""Runs a turn, and is killed just before one of the steps that it takes in the store.

    dying.py DIRECTORY URL LEASE_MICROSECONDS SESSION STEP

A STEP that is never taken lets it live to the end, and tell how many there were.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from common import open_location, report, run

from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.store.base import Store

WRITES = ("put_inbox", "acquire", "change", "put_deltas", "drop_inbox", "release")

SCRIPT = """\
/think it over
/slow 0.06
/say word by word
/slow 0
/tool look around
/ask May I?
/usage 10 20
/say goodbye"""


class Mortal:
    """A store that dies just before a write of ours, which is just after the one before it."""

    def __init__(self, store: Store, last: int) -> None:
        self._store = store
        self._last = last
        self.steps = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in WRITES:
            return method

        async def write(*arguments: Any, **options: Any) -> Any:
            self.steps += 1
            if self.steps == self._last:
                report("dying", at=name)
                os.kill(os.getpid(), signal.SIGKILL)
            return await method(*arguments, **options)

        return write


async def do_nothing() -> None:
    return


async def main() -> None:
    directory, url, lease, session, step = sys.argv[1:]
    store = Mortal(await open_location(directory, url), int(step))
    hub = Hub(store, Path(directory), lease=int(lease))
    hub.turns.engine.recover = (
        do_nothing  # the sessions of others who died are the test's to recover
    )
    turn = await hub.turns.submit(LOCAL, session, SCRIPT)
    report("prompted", turn=turn)
    reason = await hub.turns.wait(LOCAL, session, turn)
    await hub.close()
    report("lived", steps=store.steps, reason=reason)


if __name__ == "__main__":
    run(main)
