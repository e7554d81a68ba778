"""A hub with the model agent and a scripted model provider."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest

from segue.agents.model.models import preload
from segue.hub import Hub
from segue.hub.turns.opened import OpenSession
from segue.model.errors import NotFound
from segue.model.event import Event, ModelCalled, PermissionAsked
from segue.model.principal import LOCAL, Principal
from segue.model.requests.spans import request_end
from segue.model.session import Session
from segue.store.memory import MemoryStore

from .provider import Provider, Script

TIMEOUT_SECONDS = 120.0  # only failing tests take nearly so long


@pytest.fixture(scope="session", autouse=True)
def preloaded_models() -> None:
    """Import the model packages before a test measures time."""
    preload("anthropic:any")
    preload("openai:any")


class ModelSetup:
    """A hub, its model provider and the working directory of its sessions."""

    def __init__(self, hub: Hub, provider: Provider, cwd: Path) -> None:
        self.hub = hub
        self.provider = provider
        self.cwd = cwd

    async def __aenter__(self) -> Self:
        await self.provider.__aenter__()
        await self.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await self.hub.config.set("local", "model.base_url", self.provider.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hub.close()
        await self.provider.__aexit__()

    def add_scripts(self, *scripts: Script) -> None:
        """Add the responses to the next requests."""
        self.provider.scripts += scripts

    async def session(self, **options: Any) -> Session:
        options.setdefault("cwd", str(self.cwd))
        return await self.hub.editor.create(LOCAL, **options)

    async def run_prompt(
        self,
        text: str,
        session: Session | None = None,
        *,
        answer: str = "allow",
        principal: Principal = LOCAL,
        opened: OpenSession | None = None,
    ) -> list[Any]:
        """Send a prompt, answer permission requests, and return the bodies of the turn's events."""
        session = session or await self.session()
        seq = (await self.hub.sessions.get(LOCAL, session.id)).last_seq
        await self.hub.turns.submit(principal, session.id, text, opened=opened)
        return await self.collect_events(session.id, seq, answer)

    async def collect_events(self, id: str, seq: int, answer: str = "allow") -> list[Any]:
        """Return the bodies of the events after `seq`, up to the end of the turn."""
        bodies: list[Any] = []
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for item in self.hub.history.follow(LOCAL, id, seq):
                assert isinstance(item, Event)
                bodies.append(item.body)
                if isinstance(item.body, PermissionAsked):
                    with suppress(NotFound):  # the turn was cancelled
                        await self.hub.turns.answer(LOCAL, id, item.body.ask_id, answer)
                if getattr(item.body, "stop_reason", None) not in (None, "requires_action"):
                    break
        return bodies


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModelSetup:
    """Return a setup that the test must enter: `async with setup:`."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    cwd = tmp_path / "work"
    cwd.mkdir()
    return ModelSetup(Hub(MemoryStore(), tmp_path), Provider(), cwd)


def bodies_of(bodies: list[Any], kind: str) -> list[Any]:
    return [body for body in bodies if body.__struct_config__.tag == kind]


def requests_of(bodies: list[Any]) -> list[ModelCalled]:
    """Return the ends of the model requests, also those that are part of a response."""
    return [end for body in bodies if (end := request_end(body)) is not None]


def message_texts(bodies: list[Any]) -> list[str]:
    return [body.content[0].text for body in bodies_of(bodies, "agent_message")]
