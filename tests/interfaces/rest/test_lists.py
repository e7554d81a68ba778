"""List sessions: filters, orders and cursors."""

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from segue.model import ids
from segue.model.principal import LOCAL
from tests.interfaces.rest.api import Api, open_api


async def list_titles(api: Api, **params: Any) -> list[str | None]:
    results = await api.ok("GET", "/v1/sessions", **params)
    return [session["title"] for session in results["data"]]


async def create_sessions(api: Api, count: int) -> list[dict[str, Any]]:
    return [await api.session(title=str(number)) for number in range(count)]


async def test_session_pages_can_be_read_forward_and_backward(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await create_sessions(api, 7)
        for order, full in (("desc", "6543210"), ("asc", "0123456")):
            first = await api.ok("GET", "/v1/sessions", limit=3, order=order)
            assert set(first) == {"data", "next_page", "prev_page"}
            assert first["prev_page"] is None
            second = await api.ok(
                "GET", "/v1/sessions", limit=3, order=order, page=first["next_page"]
            )
            third = await api.ok(
                "GET", "/v1/sessions", limit=3, order=order, page=second["next_page"]
            )
            assert third["next_page"] is None
            seen = [session["title"] for page in (first, second, third) for session in page["data"]]
            assert "".join(seen) == full
            previous_page = await api.ok(
                "GET", "/v1/sessions", limit=3, order=order, page=second["prev_page"]
            )
            assert previous_page["next_page"] == first["next_page"]
            assert [item["id"] for item in previous_page["data"]] == [
                item["id"] for item in first["data"]
            ]


async def test_limit_is_20_by_default_and_from_1_to_1000(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await create_sessions(api, 21)
        assert len(await list_titles(api)) == 20
        assert len(await list_titles(api, limit="1000")) == 21
        for wrong in ("0", "-1", "1001", "x", "1e3", "9" * 40, "١"):
            assert "limit" in await api.fails(400, "GET", "/v1/sessions", limit=wrong)


async def test_bad_cursors_are_400(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await create_sessions(api, 3)
        first = await api.ok("GET", "/v1/sessions", limit=1)
        token = first["next_page"]
        for wrong in (
            "x",
            "page_",
            "page_x",
            "page_" + "A" * 60,
            token[5:],
            token[:-2],
            token + "A",
        ):
            assert await api.fails(400, "GET", "/v1/sessions", page=wrong) == "invalid page cursor"
        response = await api.fails(400, "GET", "/v1/sessions", page=token, order="asc")
        assert response == "page token order does not match request"
        late = {"created_at[lt]": "2001-01-01T00:00:00Z"}
        assert "created_at" in await api.fails(400, "GET", "/v1/sessions", page=token, **late)
        # Other filters, and the limit, may change from page to page.
        assert await list_titles(api, page=token, limit="5", **{"statuses[]": "idle"}) == ["1", "0"]


async def test_created_at_accepts_every_notation_of_a_time(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        (session,) = await create_sessions(api, 1)
        created = datetime.fromisoformat(session["created_at"])
        east = created.astimezone(timezone(timedelta(hours=5, minutes=30)))
        times = [
            session["created_at"],
            created.isoformat(),
            created.replace(tzinfo=None).isoformat(),
            east.isoformat(),
            east.isoformat().replace("+", " "),
        ]
        for time in times:
            for bound, seen in (("gt", []), ("gte", ["0"]), ("lt", []), ("lte", ["0"])):
                assert await list_titles(api, **{f"created_at[{bound}]": time}) == seen, (
                    bound,
                    time,
                )
        for absurd in ("yesterday", "0000-01-01", "99999-01-01T00:00:00Z", "2026-13-01", "-1"):
            response = await api.fails(400, "GET", "/v1/sessions", **{"created_at[gt]": absurd})
            assert "created_at[gt]" in response
        assert await list_titles(api, **{"created_at[gte]": "0001-01-01T00:00:00+14:00"}) == ["0"]
        assert await list_titles(api, **{"created_at[lte]": "9999-12-31T23:59:59-14:00"}) == ["0"]


async def test_sessions_can_be_filtered_by_agent_and_version(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        agent = await api.agent()
        await api.session(agent=agent["id"], title="one")
        await api.ok("POST", f"/v1/agents/{agent['id']}", {"system": "x"})
        await api.session(agent=agent["id"], title="two")
        await api.session(title="other")
        assert await list_titles(api, agent_id=agent["id"]) == ["two", "one"]
        assert await list_titles(api, agent_id=agent["id"], agent_version="1") == ["one"]
        assert await list_titles(api, agent_version="1") == ["other", "two", "one"]


async def test_filter_with_an_unknown_id_matches_nothing(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await create_sessions(api, 1)
        for name, prefix in (
            ("agent_id", "agent"),
            ("deployment_id", "depl"),
            ("memory_store_id", "memstore"),
        ):
            for id in (f"{prefix}_1", ids.format_id(prefix, ids.new_id()), "\0", "🤖"):
                assert await list_titles(api, **{name: id}) == []


async def test_sessions_can_be_filtered_by_deployment_and_memory_store(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        deployment, store = ids.new_id(), ids.new_id()
        await api.hub.editor.create(LOCAL, title="deployed", deployment_id=deployment)
        await api.hub.editor.create(LOCAL, title="remembering", memory_store_ids=(store,))
        assert await list_titles(api, deployment_id=ids.format_id("depl", deployment)) == [
            "deployed"
        ]
        assert await list_titles(api, memory_store_id=ids.format_id("memstore", store)) == [
            "remembering"
        ]
        (shown,) = (
            await api.ok("GET", "/v1/sessions", deployment_id=ids.format_id("depl", deployment))
        )["data"]
        assert shown["deployment_id"] == ids.format_id("depl", deployment)


@pytest.mark.parametrize(
    "query",
    [
        "statuses[]=idle&statuses[]=terminated",
        "statuses=idle&statuses=terminated",
        "statuses%5B%5D=idle&statuses%5B%5D=terminated",
        "statuses[0]=idle&statuses[1]=terminated",
        "statuses=idle,terminated",
        "status=idle&status=terminated",
        "status[]=idle&status[]=terminated",
    ],
)
async def test_statuses_filter_accepts_every_notation(tmp_path: Path, query: str) -> None:
    async with open_api(tmp_path) as api:
        idle, archived = await create_sessions(api, 2)
        await api.ok("POST", f"/v1/sessions/{archived['id']}/archive")
        results = await api.ok("GET", f"/v1/sessions?{query}&include_archived=true&order=asc")
        assert [session["title"] for session in results["data"]] == ["0", "1"]
        # An archived session is terminated, and listed only on request.
        assert await list_titles(api, **{"statuses[]": "terminated"}) == []
        both = {"statuses[]": "terminated", "include_archived": "true"}
        assert await list_titles(api, **both) == ["1"]
        assert await list_titles(api, **{"statuses[]": "running"}) == []
        assert "statuses" in await api.fails(400, "GET", "/v1/sessions", statuses="nonsense")
        assert idle["status"] == "idle"


async def test_sessions_can_be_filtered_by_directory_tag_source_and_words(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        item = await api.hub.editor.create(LOCAL, cwd=str(tmp_path), title="here", tag="red")
        await api.hub.editor.create(LOCAL, cwd="/elsewhere", title="there", tag="blue")
        await api.hub.turns.run(LOCAL, item.id, "the connection was refused")
        assert await list_titles(api, cwd=str(tmp_path)) == ["here"]
        assert await list_titles(api, tag="blue") == ["there"]
        assert await list_titles(api, source="segue") == ["there", "here"]
        assert await list_titles(api, source="claude") == []
        assert await list_titles(api, q="connection refused") == ["here"]
        assert await list_titles(api, q="nowhere") == []
        assert await list_titles(api, tag="\0") == []
        for unknown in ("zzz", "\0"):
            message = await api.fails(400, "GET", "/v1/sessions", source=unknown)
            assert "is not one of segue, claude" in message
        await api.fails(400, "GET", "/v1/sessions", cwd="relative")
        await api.fails(400, "GET", "/v1/sessions", q="!?")


async def test_pages_of_many_sessions_have_each_session_once(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        created = await asyncio.gather(
            *(api.hub.editor.create(LOCAL, title=str(n)) for n in range(95))
        )
        seen: list[str] = []
        page: dict[str, str] = {}
        while True:
            results = await api.ok("GET", "/v1/sessions", limit=10, **page)
            seen += [session["id"] for session in results["data"]]
            if results["next_page"] is None:
                break
            page = {"page": results["next_page"]}
        assert sorted(seen) == sorted(ids.format_id("sesn", item.id) for item in created)
