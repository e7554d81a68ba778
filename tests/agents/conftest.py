"""A hub whose prompts are answered by a model of the test's own provider."""

import asyncio
from pathlib import Path
from typing import Any, Self

import pytest

from segue.agents.model.models import preload
from segue.hub import Hub
from segue.model.event import Event, PermissionAsked
from segue.model.principal import LOCAL, Principal
from segue.model.session import Session
from segue.store.memory import MemoryStore

from .provider import Provider, Script

PATIENCE = 120.0  # seconds; only a test that fails comes near it


@pytest.fixture(scope="session", autouse=True)
def imported() -> None:
    """What models need is imported before a turn's time runs."""
    preload("anthropic:any")
    preload("openai:any")


class House:
    """A hub, its provider, and one session after another."""

    def __init__(self, hub: Hub, provider: Provider, place: Path) -> None:
        self.hub = hub
        self.provider = provider
        self.place = place

    async def __aenter__(self) -> Self:
        await self.provider.__aenter__()
        await self.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await self.hub.config.set("local", "model.base_url", self.provider.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hub.close()
        await self.provider.__aexit__()

    def answers(self, *scripts: Script) -> None:
        """What the model says to the next requests."""
        self.provider.scripts += scripts

    async def session(self, **made: Any) -> Session:
        made.setdefault("cwd", str(self.place))
        return await self.hub.editor.create(LOCAL, **made)

    async def play(
        self,
        text: str,
        session: Session | None = None,
        *,
        answer: str = "allow",
        principal: Principal = LOCAL,
    ) -> list[Any]:
        """Prompt, answer what is asked, and give the bodies of the turn's events."""
        session = session or await self.session()
        seq = (await self.hub.sessions.get(LOCAL, session.id)).last_seq
        await self.hub.turns.submit(principal, session.id, text)
        return await self.rest(session.id, seq, answer)

    async def rest(self, id: str, seq: int, answer: str = "allow") -> list[Any]:
        """The bodies of events after a seq until the turn is over."""
        bodies: list[Any] = []
        async with asyncio.timeout(PATIENCE):
            async for item in self.hub.history.follow(LOCAL, id, seq):
                assert isinstance(item, Event)
                bodies.append(item.body)
                if isinstance(item.body, PermissionAsked):
                    await self.hub.turns.answer(LOCAL, id, item.body.ask_id, answer)
                if getattr(item.body, "stop_reason", None) not in (None, "requires_action"):
                    break
        return bodies


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> House:
    """To be entered by the test: `async with house:`."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    place = tmp_path / "place"
    place.mkdir()
    return House(Hub(MemoryStore(), tmp_path), Provider(), place)


def of(bodies: list[Any], kind: str) -> list[Any]:
    return [body for body in bodies if body.__struct_config__.tag == kind]


def said(bodies: list[Any]) -> list[str]:
    return [body.content[0].text for body in of(bodies, "agent_message")]
