"""Sessions with a model on loopback, and the types of Claude's Agent SDK."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import segue
from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.store.memory import MemoryStore
from tests.agents.provider import Provider, Use

MODEL = "claude-sonnet-4-6"


@dataclass
class PermissionResultAllow:
    """Like the SDK's dataclass; segue reads only the field names."""

    behavior: str = "allow"
    updated_input: dict[str, Any] | None = None
    updated_permissions: list[Any] | None = None


@dataclass
class PermissionResultDeny:
    behavior: str = "deny"
    message: str = ""
    interrupt: bool = False


@dataclass
class HookMatcher:
    matcher: str | None = None
    hooks: list[Any] = field(default_factory=list)
    timeout: float | None = None


class Environment:
    """A hub, a model provider and a working directory for sessions."""

    def __init__(self, home: Path) -> None:
        self.provider = Provider()
        self.hub = Hub(MemoryStore(), home)
        self.cwd = home / "cwd"
        self.cwd.mkdir()

    def script(self, *scripts: Any) -> None:
        """Set the next answers of the model."""
        self.provider.scripts += scripts

    async def run(self, text: str = "Go", **options: Any) -> Any:
        """Return the result of a prompt."""
        async with asyncio.timeout(120):  # only a failing test takes this long
            return await segue.prompt(text, model=MODEL, cwd=self.cwd, store=self.hub, **options)

    async def events(self, result: Any, *types: str) -> list[Any]:
        events = await self.hub.history.events(LOCAL, result.session_id, types=list(types))
        return [event.body for event in events]


def with_open_hub(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
    """Run a test while the environment's hub and provider are open."""

    @wraps(test)
    async def run(environment: Environment, **more: Any) -> None:
        async with environment.provider, environment.hub as hub:
            await hub.config.set("local", "model", f"anthropic:{MODEL}")
            await hub.config.set("local", "model.base_url", environment.provider.url)
            await test(environment=environment, **more)

    return run


WRITE = Use("write", {"file_path": "a", "content": "x"})


def last_message(request: dict[str, Any]) -> str:
    """Return the last message that the model received."""
    return str(request["messages"][-1]["content"])
