"""Run turns of the model agent, each in a process that is killed before one of its writes.

    killed_turns.py DIRECTORY LEASE_MICROSECONDS

Each line on standard input names a session and the number of a write. The model packages are
imported once, and each turn runs in a fork. If the number is never reached, the turn completes.
"""

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from segue.agents.model.models import make_model, preload
from segue.hub import Hub
from segue.model.errors import NotFound
from segue.model.event import Event, PermissionAsked
from segue.model.principal import LOCAL
from segue.store import open_store
from segue.store.base import Store

WRITES = ("put_inbox", "acquire", "change", "put_deltas", "drop_inbox", "release")


def report(status: str, **fields: Any) -> None:
    os.write(1, json.dumps({"says": status, **fields}).encode() + b"\n")


class KillingStore:
    """A store that kills this process before its n-th write."""

    def __init__(self, store: Store, last_write: int) -> None:
        self._store = store
        self._last_write = last_write
        self.steps = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in WRITES:
            return method

        async def write(*arguments: Any, **options: Any) -> Any:
            self.steps += 1
            if self.steps == self._last_write:
                os.kill(os.getpid(), signal.SIGKILL)
            return await method(*arguments, **options)

        return write


async def do_nothing() -> None:
    return


async def allow_requests(hub: Hub, session: str) -> None:
    async for event in hub.history.follow(LOCAL, session):
        if isinstance(event, Event) and isinstance(event.body, PermissionAsked):
            with suppress(NotFound):  # withdrawn meanwhile
                await hub.turns.answer(LOCAL, session, event.body.ask_id, "allow")


async def run_turn(directory: str, lease: int, session: str, step: int) -> None:
    store: Any = KillingStore(await open_store(Path(directory), None), step)
    hub = Hub(store, Path(directory), lease=lease)
    hub.turns.engine.recover = do_nothing  # type: ignore[method-assign]  # the test recovers killed turns
    answering = asyncio.create_task(allow_requests(hub, session))
    id = await hub.turns.submit(LOCAL, session, "Go")
    reason = await hub.turns.wait(LOCAL, session, id)
    answering.cancel()
    await hub.close()
    report("lived", session=session, steps=store.steps, reason=reason)


async def import_clients() -> None:
    """Send a failing request, which imports everything that a request needs."""
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest

    async with make_model("anthropic:claude-sonnet-4-6", "http://127.0.0.1:9") as model:
        with suppress(Exception):
            messages = [ModelRequest.user_text_prompt("?")]
            await model_request(model, messages, model_settings={"max_retries": 0})


def main() -> None:
    directory, lease = sys.argv[1:]
    preload("anthropic:any")
    asyncio.run(import_clients())
    report("ready")
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            asyncio.run(run_turn(directory, int(lease), order["session"], order["step"]))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            report("died", session=order["session"], step=order["step"])


if __name__ == "__main__":
    main()
