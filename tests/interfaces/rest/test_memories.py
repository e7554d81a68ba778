"""Memories: texts at paths, one a path, with every change kept."""

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from segue.hub.resources import memories
from segue.model import ids
from tests.interfaces.rest.api import Api, open_api


async def a_store(api: Api) -> str:
    store = await api.ok("POST", "/v1/memory_stores", {"name": "m"})
    return f"/v1/memory_stores/{store['id']}"


async def remember(api: Api, store: str, path: str, content: str = "text") -> dict[str, Any]:
    return await api.ok("POST", f"{store}/memories", {"path": path, "content": content})


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


async def test_a_memory_is_written_changed_moved_and_deleted(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        store = await a_store(api)
        made = await remember(api, store, "/notes/a.md", "gr\u00fc\u00df")
        assert (made["type"], made["path"], made["content"]) == ("memory", "/notes/a.md", None)
        assert (made["content_size_bytes"], made["content_sha256"]) == (6, digest("gr\u00fc\u00df"))
        path = f"{store}/memories/{made['id']}"
        assert (await api.ok("GET", path))["content"] == "gr\u00fc\u00df"
        assert (await api.ok("GET", path, view="basic"))["content"] is None
        changed = await api.ok("POST", f"{path}?view=full", {"content": "two"})
        assert (changed["content"], changed["id"]) == ("two", made["id"])
        assert changed["memory_version_id"] != made["memory_version_id"]
        moved = await api.ok("POST", path, {"path": "/b.md"})
        assert (moved["path"], moved["content_sha256"]) == ("/b.md", digest("two"))
        again = await api.ok("POST", path, {"path": "/b.md", "content": "two"})
        assert again == moved  # nothing changed, so no version
        await remember(api, store, "/notes/a.md")  # the place is free again
        gone = await api.ok("DELETE", path)
        assert gone == {"type": "memory_deleted", "id": made["id"]}
        await api.fails(404, "GET", path)
        await remember(api, store, "/b.md")
        history = (await api.ok("GET", f"{store}/memory_versions", memory_id=made["id"]))["data"]
        assert [(each["operation"], each["path"]) for each in history] == [
            ("deleted", "/b.md"),
            ("modified", "/b.md"),
            ("modified", "/notes/a.md"),
            ("created", "/notes/a.md"),
        ]
        key = history[0]["created_by"]
        assert key["type"] == "api_actor" and key["api_key_id"].startswith("apikey_01")


async def test_a_path_is_one_memorys(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        store = await a_store(api)
        first = await remember(api, store, "/a")
        second = await remember(api, store, "/b")
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


async def test_a_change_can_depend_on_what_is_there(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        store = await a_store(api)
        made = await remember(api, store, "/a", "one")
        path = f"{store}/memories/{made['id']}"
        stale = {"type": "content_sha256", "content_sha256": digest("other")}
        await api.fails(409, "POST", path, {"content": "two", "precondition": stale})
        await api.fails(409, "DELETE", path, expected_content_sha256=digest("other"))
        fresh = {**stale, "content_sha256": digest("one")}
        await api.ok("POST", path, {"content": "two", "precondition": fresh})
        await api.ok("DELETE", path, expected_content_sha256=digest("two"))


async def test_memories_are_listed_as_a_tree(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        store = await a_store(api)
        paths = ["/a", "/d/b", "/d/e/c", "/d/e/f", "/dx/y", "/z"]
        for path in reversed(paths):
            await remember(api, store, path, path)

        async def listed(**params: Any) -> list[str]:
            found: list[str] = []
            page: dict[str, Any] = {"next_page": None}
            while True:
                more = {"page": page["next_page"]} if page["next_page"] else {}
                page = await api.ok("GET", f"{store}/memories", limit=2, **params, **more)
                found += [each["path"] for each in page["data"]]
                if page["next_page"] is None:
                    return found

        assert await listed() == paths
        assert await listed(depth=1) == ["/a", "/d/", "/dx/", "/z"]
        assert await listed(path_prefix="/d/") == ["/d/b", "/d/e/c", "/d/e/f"]
        assert await listed(path_prefix="/d/", depth=1) == ["/d/b", "/d/e/"]
        assert await listed(depth=2) == ["/a", "/d/b", "/d/e/", "/dx/y", "/z"]
        assert await listed(path_prefix="/none/") == []
        full = await api.ok("GET", f"{store}/memories", view="full")
        assert [each["content"] for each in full["data"]] == paths
        await api.fails(400, "GET", f"{store}/memories", path_prefix="/d")


async def test_versions_are_filtered_and_redacted(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        store = await a_store(api)
        made = await remember(api, store, "/a", "S3CRET text")
        base = f"{store}/memory_versions"
        first = made["memory_version_id"]
        assert "current" in await api.fails(400, "POST", f"{base}/{first}/redact")
        await api.ok("POST", f"{store}/memories/{made['id']}", {"content": "clean"})
        assert (await api.ok("GET", f"{base}/{first}"))["content"] == "S3CRET text"
        redacted = await api.ok("POST", f"{base}/{first}/redact")
        nothing = [redacted[name] for name in ("content", "path", "content_sha256")]
        assert nothing == [None] * 3
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


async def test_a_store_that_is_archived_is_read_only_and_one_that_is_deleted_is_gone(
    tmp_path: Path,
) -> None:
    async with open_api(tmp_path) as api:
        store = await a_store(api)
        made = await remember(api, store, "/a")
        id = ids.parse(store.rsplit("/", 1)[-1])
        for kind in ("memory", "memory_path", "memory_version"):
            assert len(await api.hub.records.list("local", f"{kind}:{id}")) == 1
        other = await a_store(api)
        await api.fails(404, "GET", f"{other}/memories/{made['id']}")
        await api.ok("POST", f"{store}/archive")
        path = f"{store}/memories/{made['id']}"
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
async def test_a_path_that_is_none_is_refused(tmp_path: Path, path: str) -> None:
    async with open_api(tmp_path) as api:
        store = await a_store(api)
        assert "path" in await api.fails(
            400, "POST", f"{store}/memories", {"path": path, "content": "x"}
        )


async def test_a_memory_has_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_api(tmp_path) as api:
        store = await a_store(api)
        await remember(api, store, "/a", "x" * 102_400)
        body = {"path": "/b", "content": "\u00fc" * 51_201}
        assert "bytes" in await api.fails(400, "POST", f"{store}/memories", body)
        monkeypatch.setattr(memories, "MOST", 1)
        assert "at most" in await api.fails(
            400, "POST", f"{store}/memories", {"path": "/b", "content": ""}
        )
