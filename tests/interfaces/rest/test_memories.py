"""Create, change, list and delete memories and their versions."""

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from segue.hub.resources import memories
from segue.model import ids
from tests.interfaces.rest.api import Api, open_api


async def create_store(api: Api) -> str:
    store = await api.ok("POST", "/v1/memory_stores", {"name": "m"})
    return f"/v1/memory_stores/{store['id']}"


async def create_memory(api: Api, store: str, path: str, content: str = "text") -> dict[str, Any]:
    return await api.ok("POST", f"{store}/memories", {"path": path, "content": content})


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


async def test_memory_can_be_created_changed_moved_and_deleted(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        store = await create_store(api)
        memory = await create_memory(api, store, "/notes/a.md", "gr\u00fc\u00df")
        assert (memory["type"], memory["path"], memory["content"]) == (
            "memory",
            "/notes/a.md",
            None,
        )
        assert (memory["content_size_bytes"], memory["content_sha256"]) == (
            6,
            digest("gr\u00fc\u00df"),
        )
        path = f"{store}/memories/{memory['id']}"
        assert (await api.ok("GET", path))["content"] == "gr\u00fc\u00df"
        assert (await api.ok("GET", path, view="basic"))["content"] is None
        changed = await api.ok("POST", f"{path}?view=full", {"content": "two"})
        assert (changed["content"], changed["id"]) == ("two", memory["id"])
        assert changed["memory_version_id"] != memory["memory_version_id"]
        moved = await api.ok("POST", path, {"path": "/b.md"})
        assert (moved["path"], moved["content_sha256"]) == ("/b.md", digest("two"))
        unchanged = await api.ok("POST", path, {"path": "/b.md", "content": "two"})
        assert unchanged == moved  # without a change there is no new version
        await create_memory(api, store, "/notes/a.md")  # the path is free again
        response = await api.ok("DELETE", path)
        assert response == {"type": "memory_deleted", "id": memory["id"]}
        await api.fails(404, "GET", path)
        await create_memory(api, store, "/b.md")
        history = (await api.ok("GET", f"{store}/memory_versions", memory_id=memory["id"]))["data"]
        assert [(version["operation"], version["path"]) for version in history] == [
            ("deleted", "/b.md"),
            ("modified", "/b.md"),
            ("modified", "/notes/a.md"),
            ("created", "/notes/a.md"),
        ]
        key = history[0]["created_by"]
        assert key["type"] == "api_actor" and key["api_key_id"].startswith("apikey_01")


async def test_path_can_have_only_one_memory(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        store = await create_store(api)
        first = await create_memory(api, store, "/a")
        second = await create_memory(api, store, "/b")
        body = {"path": "/a", "content": "x"}
        assert first["id"] in await api.fails(409, "POST", f"{store}/memories", body)
        await api.fails(409, "POST", f"{store}/memories/{second['id']}", {"path": "/a"})
        answers = await asyncio.gather(
            *(
                api.call("POST", f"{store}/memories", json={"path": "/c", "content": str(n)})
                for n in range(8)
            )
        )
        assert sorted(status for status, _ in answers) == [200] + [409] * 7
        assert len((await api.ok("GET", f"{store}/memories"))["data"]) == 3


async def test_change_with_a_stale_precondition_is_rejected(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        store = await create_store(api)
        memory = await create_memory(api, store, "/a", "one")
        path = f"{store}/memories/{memory['id']}"
        stale = {"type": "content_sha256", "content_sha256": digest("other")}
        await api.fails(409, "POST", path, {"content": "two", "precondition": stale})
        await api.fails(409, "DELETE", path, expected_content_sha256=digest("other"))
        current = {**stale, "content_sha256": digest("one")}
        await api.ok("POST", path, {"content": "two", "precondition": current})
        await api.ok("DELETE", path, expected_content_sha256=digest("two"))


async def test_memories_are_listed_as_a_tree(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        store = await create_store(api)
        paths = ["/a", "/d/b", "/d/e/c", "/d/e/f", "/dx/y", "/z"]
        for path in reversed(paths):
            await create_memory(api, store, path, path)

        async def list_paths(**params: Any) -> list[str]:
            paths: list[str] = []
            page: dict[str, Any] = {"next_page": None}
            while True:
                cursor = {"page": page["next_page"]} if page["next_page"] else {}
                page = await api.ok("GET", f"{store}/memories", limit=2, **params, **cursor)
                paths += [entry["path"] for entry in page["data"]]
                if page["next_page"] is None:
                    return paths

        assert await list_paths() == paths
        assert await list_paths(depth=1) == ["/a", "/d/", "/dx/", "/z"]
        assert await list_paths(path_prefix="/d/") == ["/d/b", "/d/e/c", "/d/e/f"]
        assert await list_paths(path_prefix="/d/", depth=1) == ["/d/b", "/d/e/"]
        assert await list_paths(depth=2) == ["/a", "/d/b", "/d/e/", "/dx/y", "/z"]
        assert await list_paths(path_prefix="/none/") == []
        full = await api.ok("GET", f"{store}/memories", view="full")
        assert [memory["content"] for memory in full["data"]] == paths
        await api.fails(400, "GET", f"{store}/memories", path_prefix="/d")


async def test_versions_can_be_filtered_and_redacted(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        store = await create_store(api)
        memory = await create_memory(api, store, "/a", "S3CRET text")
        base = f"{store}/memory_versions"
        first = memory["memory_version_id"]
        assert "current" in await api.fails(400, "POST", f"{base}/{first}/redact")
        await api.ok("POST", f"{store}/memories/{memory['id']}", {"content": "clean"})
        assert (await api.ok("GET", f"{base}/{first}"))["content"] == "S3CRET text"
        redacted = await api.ok("POST", f"{base}/{first}/redact")
        cleared = [redacted[name] for name in ("content", "path", "content_sha256")]
        assert cleared == [None] * 3
        assert redacted["redacted_at"] and redacted["redacted_by"] == redacted["created_by"]
        assert await api.ok("GET", f"{base}/{first}") == redacted
        assert await api.ok("POST", f"{base}/{first}/redact") == redacted
        key = redacted["created_by"]["api_key_id"]
        for params, count in (
            ({"operation": "created"}, 1),
            ({"operation": "deleted"}, 0),
            ({"api_key_id": key}, 2),
            ({"api_key_id": "apikey_x"}, 0),
            ({"session_id": "sesn_x"}, 0),
            ({"memory_id": "mem_x"}, 0),
            ({"created_at[lte]": "2020-01-01T00:00:00Z"}, 0),
            ({"view": "full", "limit": 100}, 2),
        ):
            assert len((await api.ok("GET", base, **params))["data"]) == count, params


async def test_archived_store_is_read_only_and_deleted_store_is_not_found(
    tmp_path: Path,
) -> None:
    async with open_api(tmp_path) as api:
        store = await create_store(api)
        memory = await create_memory(api, store, "/a")
        id = ids.parse(store.rsplit("/", 1)[-1])
        for kind in ("memory", "memory_path", "memory_version"):
            assert len(await api.hub.records.list("local", f"{kind}:{id}")) == 1
        other = await create_store(api)
        await api.fails(404, "GET", f"{other}/memories/{memory['id']}")
        await api.ok("POST", f"{store}/archive")
        path = f"{store}/memories/{memory['id']}"
        await api.ok("GET", path)
        await api.fails(400, "POST", path, {"content": "x"})
        await api.fails(400, "DELETE", path)
        await api.fails(400, "POST", f"{store}/memories", {"path": "/b", "content": ""})
        await api.ok("DELETE", store)
        await api.fails(404, "GET", path)
        for kind in ("memory", "memory_path", "memory_version"):
            assert await api.hub.records.list("local", f"{kind}:{id}") == ()


@pytest.mark.parametrize(
    "path",
    ["a", "", "/", "/a//b", "/a/", "/./a", "/..", "/a\n", "/\u200b", "/e\u0301"]
    + ["/x" * count for count in (21, 600)],
)
async def test_invalid_path_is_rejected(tmp_path: Path, path: str) -> None:
    async with open_api(tmp_path) as api:
        store = await create_store(api)
        assert "path" in await api.fails(
            400, "POST", f"{store}/memories", {"path": path, "content": "x"}
        )


async def test_memory_size_and_count_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(tmp_path) as api:
        store = await create_store(api)
        await create_memory(api, store, "/a", "x" * 102_400)
        body = {"path": "/b", "content": "\u00fc" * 51_201}
        assert "bytes" in await api.fails(400, "POST", f"{store}/memories", body)
        monkeypatch.setattr(memories, "MAX_MEMORIES", 1)
        assert "at most" in await api.fails(
            400, "POST", f"{store}/memories", {"path": "/b", "content": ""}
        )
