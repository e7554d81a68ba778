"""Runs turns of the model agent, each in a process that is killed just before one of its steps.

    dying.py DIRECTORY LEASE_MICROSECONDS

Every line on standard input is a session and a step. What a model needs is imported once, and each
turn runs in a fork. A step that is never taken lets it live to the end.
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
from segue.model.principal import LOCAL
from segue.store import open_store
from segue.store.base import Store

WRITES = ("put_inbox", "acquire", "change", "put_deltas", "drop_inbox", "release")


def say(word: str, **fields: Any) -> None:
    os.write(1, json.dumps({"says": word, **fields}).encode() + b"\n")


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
                os.kill(os.getpid(), signal.SIGKILL)
            return await method(*arguments, **options)

        return write


async def nothing() -> None:
    return


async def turn(directory: str, lease: int, session: str, step: int) -> None:
    store: Any = Mortal(await open_store(Path(directory), None), step)
    hub = Hub(store, Path(directory), lease=lease)
    hub.turns.engine.recover = nothing  # type: ignore[method-assign]  # the dead are the test's to recover
    id = await hub.turns.submit(LOCAL, session, "Go")
    reason = await hub.turns.wait(LOCAL, session, id)
    await hub.close()
    say("lived", session=session, steps=store.steps, reason=reason)


async def warm() -> None:
    """A request that cannot be sent imports all that others need."""
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest

    async with make_model("anthropic:claude-sonnet-4-6", "http://127.0.0.1:9") as model:
        with suppress(Exception):
            asked = [ModelRequest.user_text_prompt("?")]
            await model_request(model, asked, model_settings={"max_retries": 0})


def main() -> None:
    directory, lease = sys.argv[1:]
    preload("anthropic:any")
    asyncio.run(warm())
    say("ready")
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            asyncio.run(turn(directory, int(lease), order["session"], order["step"]))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            say("died", session=order["session"], step=order["step"])


if __name__ == "__main__":
    main()
