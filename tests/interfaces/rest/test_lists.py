"""Listing sessions: every filter, both orders, cursors both ways."""

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from segue.model import ids
from segue.model.principal import LOCAL
from tests.interfaces.rest.api import Api, open_api


async def named(api: Api, **params: Any) -> list[str | None]:
    found = await api.ok("GET", "/v1/sessions", **params)
    return [session["title"] for session in found["data"]]


async def several(api: Api, count: int) -> list[dict[str, Any]]:
    return [await api.session(title=str(number)) for number in range(count)]


async def test_pages_go_forward_and_back_again(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await several(api, 7)
        for order, whole in (("desc", "6543210"), ("asc", "0123456")):
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
            assert "".join(seen) == whole
            back = await api.ok(
                "GET", "/v1/sessions", limit=3, order=order, page=second["prev_page"]
            )
            assert back["next_page"] == first["next_page"]
            assert [each["id"] for each in back["data"]] == [each["id"] for each in first["data"]]


async def test_the_limit_is_20_unless_said_and_from_1_to_1000(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await several(api, 21)
        assert len(await named(api)) == 20
        assert len(await named(api, limit="1000")) == 21
        for wrong in ("0", "-1", "1001", "x", "1e3", "9" * 40, "١"):
            assert "limit" in await api.fails(400, "GET", "/v1/sessions", limit=wrong)


async def test_bad_cursors_are_400(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await several(api, 3)
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
        told = await api.fails(400, "GET", "/v1/sessions", page=token, order="asc")
        assert told == "page token order does not match request"
        late = {"created_at[lt]": "2001-01-01T00:00:00Z"}
        assert "created_at" in await api.fails(400, "GET", "/v1/sessions", page=token, **late)
        # Other filters, and the limit, may change from page to page.
        assert await named(api, page=token, limit="5", **{"statuses[]": "idle"}) == ["1", "0"]


async def test_created_at_takes_every_spelling_of_a_time(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        (session,) = await several(api, 1)
        made = datetime.fromisoformat(session["created_at"])
        east = made.astimezone(timezone(timedelta(hours=5, minutes=30)))
        spellings = [
            session["created_at"],
            made.isoformat(),
            made.replace(tzinfo=None).isoformat(),
            east.isoformat(),
            east.isoformat().replace("+", " "),
        ]
        for spelt in spellings:
            for bound, seen in (("gt", []), ("gte", ["0"]), ("lt", []), ("lte", ["0"])):
                assert await named(api, **{f"created_at[{bound}]": spelt}) == seen, (bound, spelt)
        for absurd in ("yesterday", "0000-01-01", "99999-01-01T00:00:00Z", "2026-13-01", "-1"):
            told = await api.fails(400, "GET", "/v1/sessions", **{"created_at[gt]": absurd})
            assert "created_at[gt]" in told
        assert await named(api, **{"created_at[gte]": "0001-01-01T00:00:00+14:00"}) == ["0"]
        assert await named(api, **{"created_at[lte]": "9999-12-31T23:59:59-14:00"}) == ["0"]


async def test_sessions_are_found_by_their_agent_and_its_version(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        agent = await api.agent()
        await api.session(agent=agent["id"], title="one")
        await api.ok("POST", f"/v1/agents/{agent['id']}", {"system": "x"})
        await api.session(agent=agent["id"], title="two")
        await api.session(title="other")
        assert await named(api, agent_id=agent["id"]) == ["two", "one"]
        assert await named(api, agent_id=agent["id"], agent_version="1") == ["one"]
        assert await named(api, agent_version="1") == ["other", "two", "one"]


async def test_an_id_that_names_nothing_filters_everything_out(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await several(api, 1)
        for name, prefix in (
            ("agent_id", "agent"),
            ("deployment_id", "depl"),
            ("memory_store_id", "memstore"),
        ):
            for id in (f"{prefix}_1", ids.format_id(prefix, ids.new_id()), "\0", "🤖"):
                assert await named(api, **{name: id}) == []


async def test_sessions_are_found_by_deployment_and_memory_store(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        deployment, store = ids.new_id(), ids.new_id()
        await api.hub.editor.create(LOCAL, title="deployed", deployment_id=deployment)
        await api.hub.editor.create(LOCAL, title="remembering", memory_store_ids=(store,))
        assert await named(api, deployment_id=ids.format_id("depl", deployment)) == ["deployed"]
        assert await named(api, memory_store_id=ids.format_id("memstore", store)) == ["remembering"]
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
async def test_statuses_are_read_in_every_spelling(tmp_path: Path, query: str) -> None:
    async with open_api(tmp_path) as api:
        idle, archived = await several(api, 2)
        await api.ok("POST", f"/v1/sessions/{archived['id']}/archive")
        found = await api.ok("GET", f"/v1/sessions?{query}&include_archived=true&order=asc")
        assert [session["title"] for session in found["data"]] == ["0", "1"]
        # An archived session is terminated, and hidden unless asked for.
        assert await named(api, **{"statuses[]": "terminated"}) == []
        both = {"statuses[]": "terminated", "include_archived": "true"}
        assert await named(api, **both) == ["1"]
        assert await named(api, **{"statuses[]": "running"}) == []
        assert "statuses" in await api.fails(400, "GET", "/v1/sessions", statuses="nonsense")
        assert idle["status"] == "idle"


async def test_our_own_filters_find_by_directory_tag_source_and_words(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        one = await api.hub.editor.create(LOCAL, cwd=str(tmp_path), title="here", tag="red")
        await api.hub.editor.create(LOCAL, cwd="/elsewhere", title="there", tag="blue")
        await api.hub.turns.run(LOCAL, one.id, "the connection was refused")
        assert await named(api, cwd=str(tmp_path)) == ["here"]
        assert await named(api, tag="blue") == ["there"]
        assert await named(api, source="segue") == ["there", "here"]
        assert await named(api, source="claude") == []
        assert await named(api, q="connection refused") == ["here"]
        assert await named(api, q="nowhere") == []
        assert await named(api, tag="\0", source="\0") == []
        await api.fails(400, "GET", "/v1/sessions", cwd="relative")
        await api.fails(400, "GET", "/v1/sessions", q="!?")


async def test_paging_through_many_meets_each_once(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        made = await asyncio.gather(
            *(api.hub.editor.create(LOCAL, title=str(n)) for n in range(95))
        )
        seen: list[str] = []
        page: dict[str, str] = {}
        while True:
            found = await api.ok("GET", "/v1/sessions", limit=10, **page)
            seen += [session["id"] for session in found["data"]]
            if found["next_page"] is None:
                break
            page = {"page": found["next_page"]}
        assert sorted(seen) == sorted(ids.format_id("sesn", each.id) for each in made)
