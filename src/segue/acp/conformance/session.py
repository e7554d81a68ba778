"""What a check works with: a connection to the agent, and steps that several checks share."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from .peer import AgentError, CheckFailed, CheckSkipped, Peer, Update
from .report import Level

AUTH_REQUIRED = -32000
TEXT = "Reply with one word: ready. Do not use any tools."
LONG_TEXT = "Count from 1 to 2000 in words, one number on each line. Do not use any tools."
# The session methods that an agent may leave out, each with its capability.
OPTIONAL_METHODS = {
    "session/list": "list",
    "session/load": "load",
    "session/resume": "resume",
    "session/close": "close",
    "session/delete": "delete",
    "session/fork": "fork",
    "session/set_title": "title",
    "session/archive": "archive",
}
_BASELINE_V2 = ("list", "resume", "close")


def delete_params(session_id: str) -> dict[str, Any]:
    """Return the parameters of `session/delete`; segue's agents then keep nothing in the trash."""
    return {"sessionId": session_id, "_meta": {"segue": {"permanently": True}}}


class Prompts(NamedTuple):
    """The texts of prompts: one that is answered soon, and one whose turn can be cancelled."""

    short: str = TEXT
    long: str = LONG_TEXT


class Steps:
    """An initialized connection, and the steps of a check."""

    def __init__(self, peer: Peer, greeting: dict[str, Any], cwd: str, prompts: Prompts) -> None:
        self.peer = peer
        self.greeting = greeting
        self.cwd = cwd
        self.prompts = prompts
        self.version = peer.version
        field = "agentCapabilities" if peer.version == 1 else "capabilities"
        self.capabilities = _dict(greeting.get(field))

    def has(self, capability: str) -> bool:
        """Return whether the agent advertises a session method."""
        if self.version == 2:
            session = _dict(self.capabilities.get("session"))
            return capability in _BASELINE_V2 or session.get(capability) is not None
        if capability == "load":
            return self.capabilities.get("loadSession") is True
        return _dict(self.capabilities.get("sessionCapabilities")).get(capability) is not None

    def require(self, capability: str) -> None:
        """Skip the check unless the agent advertises a session method."""
        if not self.has(capability):
            raise CheckSkipped(f"the agent does not offer {capability}")

    def accepts(self, content: str) -> bool:
        """Return whether prompts may have image, audio or embeddedContext."""
        if self.version == 1:
            return _dict(self.capabilities.get("promptCapabilities")).get(content) is True
        session = _dict(self.capabilities.get("session"))
        return _dict(session.get("prompt")).get(content) is not None

    def setup(self, **more: Any) -> dict[str, Any]:
        """Return the parameters that open a session."""
        return {"cwd": self.cwd, "mcpServers": [], **more}

    async def new(self, **more: Any) -> dict[str, Any]:
        """Create a session and return the result; skip the check if that needs a login."""
        try:
            result = await self.peer.request("session/new", self.setup(**more))
        except AgentError as error:
            if error.code == AUTH_REQUIRED:
                raise CheckSkipped("the agent requires a login") from None
            raise CheckFailed(f"session/new failed: {error}") from None
        if not isinstance(_dict(result).get("sessionId"), str):
            raise CheckFailed("session/new returned no sessionId")
        return _dict(result)

    async def new_id(self, **more: Any) -> str:
        """Create a session and return its id."""
        return str((await self.new(**more))["sessionId"])

    async def start(self, session: str, text: str | None = None) -> Any:
        """Send a prompt, and return the id of the request."""
        block = {"type": "text", "text": text or self.prompts.short}
        return await self.peer.send_request(
            "session/prompt", {"sessionId": session, "prompt": [block]}
        )

    async def finish(self, session: str, request: Any, after: int) -> str:
        """Wait for the end of a turn, and return its stop reason; skip if the turn fails."""
        result = _dict(await self.answer(request))
        if self.version == 1:
            return str(result.get("stopReason"))

        def ended() -> str | None:
            for update in self.peer.updates(after):
                if _is_idle(update, session):
                    return str(update.body["stopReason"])
            return None

        reason = str(await self.peer.wait_for("idle state_update with a stopReason", ended))
        if reason == "error":
            raise CheckSkipped("the agent could not answer a prompt: the turn ended with an error")
        return reason

    async def answer(self, request: Any) -> Any:
        """Return the result of a prompt; skip the check if the agent cannot answer prompts."""
        try:
            return await self.peer.wait(request)
        except AgentError as error:
            raise CheckSkipped(f"the agent could not answer a prompt: {error}") from None

    async def run(self, session: str) -> str:
        """Run a turn, and return its stop reason."""
        after = len(self.peer.log)
        return await self.finish(session, await self.start(session), after)

    async def prompted(self) -> str:
        """Create a session, run a turn in it, and return its id."""
        session = await self.new_id()
        await self.run(session)
        return session

    async def reopen(self, session: str, method: str, **more: Any) -> dict[str, Any]:
        """Open a session with a method, and return the result."""
        params = self.setup(sessionId=session, **more)
        try:
            return _dict(await self.peer.request(f"session/{method}", params))
        except AgentError as error:
            raise CheckFailed(f"session/{method} failed: {error}") from None

    async def close_if_possible(self, session: str) -> None:
        """Close a session if the agent can."""
        if self.has("close"):
            await self.call("session/close", {"sessionId": session})

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request that must succeed."""
        try:
            return _dict(await self.peer.request(method, params))
        except AgentError as error:
            raise CheckFailed(f"{method} failed: {error}") from None

    async def list(self, **params: Any) -> list[dict[str, Any]]:
        """Return the sessions of all pages, at most 20."""
        rows: list[dict[str, Any]] = []
        seen: set[str] = set()
        for _ in range(20):
            page = await self.call("session/list", params)
            rows += [row for row in page.get("sessions") or () if isinstance(row, dict)]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
            if cursor in seen:
                raise CheckFailed(f"the cursor {cursor!r} was returned twice")
            seen.add(cursor)
            params = {**params, "cursor": cursor}
        return rows


Function = Callable[[Steps], Awaitable[None]]


class Check(NamedTuple):
    """One check. With `fresh`, it has a connection of its own, which it may break."""

    id: str
    versions: tuple[int, ...]
    level: Level
    rule: str
    run: Function
    fresh: bool


CHECKS: list[Check] = []


def check(
    id: str,
    rule: str,
    *,
    versions: tuple[int, ...] = (1, 2),
    level: Level = "must",
    fresh: bool = False,
) -> Callable[[Function], Function]:
    """Register a function as a check. It raises CheckFailed or CheckSkipped, or returns."""
    assert re.fullmatch(r"[A-Z]+-\d{3}", id), id

    def register(run: Function) -> Function:
        CHECKS.append(Check(id, versions, level, rule, run, fresh))
        return run

    return register


def expect(condition: object, message: str) -> None:
    """Raise CheckFailed with a message unless a condition holds."""
    if not condition:
        raise CheckFailed(message)


def is_absolute(path: Any) -> bool:
    """Return whether a value is an absolute path."""
    return isinstance(path, str) and os.path.isabs(path)


def message_kinds(updates: list[Update]) -> list[str]:
    """Return the kinds of the updates that are messages."""
    return [update.kind for update in updates if "message" in update.kind]


def _is_idle(update: Update, session: str) -> bool:
    is_state = update.kind == "state_update" and update.session == session
    return is_state and update.body.get("state") == "idle" and bool(update.body.get("stopReason"))


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
