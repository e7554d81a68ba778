"""Runs a turn, and is killed just before one of the steps that it takes in the store.

    dying.py DIRECTORY URL LEASE_MICROSECONDS SESSION STEP [ANSWER]

STEP is a number, or the type of the event that it does not store any more. A STEP that is never
taken lets it live to the end, and tell how many there were. With ANSWER, it gives this answer to
each permission request, and sends the results of clients' tools.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import open_location, report, run

from segue.hub import Hub
from segue.model.content import as_content
from segue.model.event import Draft, Drafts, ToolResult
from segue.model.principal import LOCAL
from segue.model.session import Session
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

    def __init__(self, store: Store, last: str) -> None:
        self._store = store
        self._last = last
        self.steps = 0

    def _dying(self, decide: Callable[[Session], Drafts]) -> Callable[[Session], Drafts]:
        """Return a function that decides as this one, and dies before the last event."""

        def decided(session: Session) -> Drafts:
            drafts = decide(session)
            bodies = [draft.body if isinstance(draft, Draft) else draft for draft in drafts]
            if any(body.__struct_config__.tag == self._last for body in bodies):
                die("change")
            return drafts

        return decided

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in WRITES:
            return method

        async def write(*arguments: Any, **options: Any) -> Any:
            self.steps += 1
            if str(self.steps) == self._last:
                die(name)
            if name == "change":
                arguments = (*arguments[:2], self._dying(arguments[2]), *arguments[3:])
            return await method(*arguments, **options)

        return write


def die(step: str) -> None:
    report("dying", at=step)
    os.kill(os.getpid(), signal.SIGKILL)


async def answer_all(hub: Hub, session: str, option: str) -> None:
    """Answer each request of a session's turns, in this process."""
    answered = set()
    while True:
        row = await hub.sessions.get(LOCAL, session)
        for ask_id in {*row.open_asks} - answered:
            await hub.turns.answer(LOCAL, session, ask_id, option)
            answered.add(ask_id)
        for call_id in {*row.open_calls} & {*row.pending} - answered:
            result = ToolResult(call_id=call_id, content=as_content("sent"))
            await hub.turns.submit_tool_result(LOCAL, session, result)
            answered.add(call_id)
        await asyncio.sleep(0.02)


async def do_nothing() -> None:
    return


async def main() -> None:
    directory, url, lease, session, step, *answers = sys.argv[1:]
    store = Mortal(await open_location(directory, url), step)
    hub = Hub(store, Path(directory), lease=int(lease))
    hub.turns.engine.recover = (
        do_nothing  # the sessions of others who died are the test's to recover
    )
    turn = await hub.turns.submit(LOCAL, session, SCRIPT)
    report("prompted", turn=turn)
    answering = [asyncio.create_task(answer_all(hub, session, option)) for option in answers]
    reason = await hub.turns.wait(LOCAL, session, turn)
    for task in answering:
        task.cancel()
    await hub.close()
    report("lived", steps=store.steps, reason=reason)


if __name__ == "__main__":
    run(main)
