"""A memory store that tests mount into a session."""

from pathlib import Path
from typing import Any

from tests.interfaces.rest.api import Api
from tests.interfaces.rest.directory_agent import Act, DirectoryAgent


class MountedMemories:
    """A memory store, a session that mounts it, and the session's agent."""

    def __init__(self, api: Api, agent: DirectoryAgent) -> None:
        self.api = api
        self.agent = agent
        self.top = Path()

    async def open(self, **texts: str) -> "MountedMemories":
        store = await self.api.ok("POST", "/v1/memory_stores", {"name": "My notes!"})
        self.store = f"/v1/memory_stores/{store['id']}"
        for path, content in texts.items():
            await self.write(f"/{path}", content)
        self.resource = {"type": "memory_store", "memory_store_id": store["id"]}
        return self

    async def attach(self, **fields: Any) -> dict[str, Any]:
        session = await self.api.session(resources=[{**self.resource, **fields}])
        self.session = session["id"]
        assert session["resources"][0]["mount_path"] == "/mnt/memory/my-notes"
        self.top = self.api.directory(session) / "mnt/memory/my-notes"
        return session

    async def write(self, path: str, content: str) -> dict[str, Any]:
        body = {"path": path, "content": content}
        for memory in await self.fetch_all():
            if memory["path"] == path:
                return await self.api.ok("POST", f"{self.store}/memories/{memory['id']}", body)
        return await self.api.ok("POST", f"{self.store}/memories", body)

    async def fetch_all(self) -> list[dict[str, Any]]:
        return (await self.api.ok("GET", f"{self.store}/memories", view="full"))["data"]

    async def texts(self) -> dict[str, str]:
        return {memory["path"]: memory["content"] for memory in await self.fetch_all()}

    async def turn(self, act: Act = lambda _: None) -> list[dict[str, Any]]:
        self.agent.act = lambda cwd: act(cwd / "mnt/memory/my-notes")
        return await self.api.say(self.session, "continue")

    async def errors(self, act: Act = lambda _: None) -> list[str]:
        before = len(await self.api.events(self.session))
        events = (await self.turn(act))[before:]
        return [event["error"]["message"] for event in events if event["type"] == "session.error"]
