"""`session/list`: rows, filters and pages."""

import subprocess
from datetime import datetime
from typing import Any

import pytest

from segue.model import clock
from segue.model.event import Failed
from segue.model.principal import LOCAL
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import AcpTestbed


async def list_rows(client: Client, **params: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await client.request("session/list", params))["sessions"]
    return rows


async def list_ids(client: Client, **params: Any) -> list[str]:
    return [row["sessionId"] for row in await list_rows(client, **params)]


def segue_filters(**filters: Any) -> dict[str, Any]:
    return {"_meta": {"segue": filters}}


async def test_empty_store_lists_no_sessions(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        assert await client.request("session/list") == {"sessions": []}
        assert await client.request("session/list", {"cwd": "/nowhere"}) == {"sessions": []}


async def test_listed_session_has_all_fields(testbed: AcpTestbed, version: int) -> None:
    before = clock.now()
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session(testbed.directory)
        await client.run_prompt(id, "Fix the parser")
        (row,) = await list_rows(client)
    assert (row["sessionId"], row["title"]) == (id, "Fix the parser")
    assert row["cwd"] == str(testbed.directory)
    assert datetime.fromisoformat(row["updatedAt"]).timestamp() * 1e6 >= before
    assert row["archived"] is False
    assert row["_meta"] == {
        "messageCount": 2,
        "hasErrors": False,
        "source": "segue",
        "status": "idle",
    }


async def test_listed_session_has_tag_branch_and_errors(testbed: AcpTestbed, version: int) -> None:
    repository = testbed.directory / "repository"
    subprocess.run(["git", "init", "-q", "-b", "topic", str(repository)], check=True)
    (repository / "deep").mkdir()
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session(repository / "deep")
        await hub.editor.set_tag(LOCAL, id, "urgent")
        await hub.editor.append(LOCAL, id, Failed(message="it broke"))
        (row,) = await list_rows(client)
        assert row["_meta"] | {"source": None, "status": None} == {
            "messageCount": 0,
            "hasErrors": True,
            "tag": "urgent",
            "gitBranch": "topic",
            "source": None,
            "status": None,
        }
        fork = await hub.editor.fork(LOCAL, id)
        rows = {row["sessionId"]: row["_meta"] for row in await list_rows(client)}
        assert rows[fork.id]["forkedFrom"] == id


async def test_list_starts_with_the_most_recently_active_session(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        first = await client.new_session(testbed.directory)
        second = await client.new_session(testbed.directory)
        assert await list_ids(client) == [second, first]
        await client.run_prompt(first, "hello")
        assert await list_ids(client) == [first, second]


async def test_cwd_filter_excludes_other_directories(testbed: AcpTestbed, version: int) -> None:
    inner = testbed.directory / "inner"
    inner.mkdir()
    async with testbed.connect_in_process(version) as client:
        outer_id = await client.new_session(testbed.directory)
        inner_id = await client.new_session(inner, additionalDirectories=[str(testbed.directory)])
        assert await list_ids(client, cwd=str(testbed.directory)) == [outer_id]
        assert await list_ids(client, cwd=str(inner)) == [inner_id]
        assert await list_ids(client, cwd=str(testbed.directory / "other")) == []
        assert await list_ids(client, cwd=None) == [inner_id, outer_id]


async def test_cwd_filter_resolves_paths_and_returns_the_original_path(
    testbed: AcpTestbed, version: int
) -> None:
    real, link = testbed.directory / "real", testbed.directory / "link"
    real.mkdir()
    link.symlink_to(real)
    async with testbed.connect_in_process(version) as client:
        await client.new_session(real)
        for spelling in (str(link), f"{link}/", f"{real}/../link", str(real)):
            (row,) = await list_rows(client, cwd=spelling)
            assert row["cwd"] == spelling


async def test_session_with_a_deleted_directory_is_listed(
    testbed: AcpTestbed, version: int
) -> None:
    gone = testbed.directory / "gone"
    gone.mkdir()
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session(gone)
        gone.rmdir()
        assert await list_ids(client) == [id]
        assert await list_ids(client, cwd=str(gone)) == [id]


async def test_pages_of_fifty_contain_all_sessions(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        session_ids = [(await hub.editor.create(LOCAL, cwd="/")).id for _ in range(120)]
        page = await client.request("session/list")
        sizes, seen, cursors = [], [], []
        while True:
            sizes.append(len(page["sessions"]))
            seen += [row["sessionId"] for row in page["sessions"]]
            if "nextCursor" not in page:
                break
            cursors.append(page["nextCursor"])
            page = await client.request("session/list", {"cursor": page["nextCursor"]})
        assert sizes == [50, 50, 20]
        assert seen == session_ids[::-1]
        assert len(set(cursors)) == 2


async def test_cursor_requires_the_same_filters(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        for _ in range(51):
            await hub.editor.create(LOCAL, cwd="/")
        cursor = (await client.request("session/list", {"cwd": "/"}))["nextCursor"]
        assert len(await list_rows(client, cwd="/", cursor=cursor)) == 1
        for other in ({}, {"cwd": "/tmp"}, {"cwd": "/", "archived": "include"}):
            error = await client.request_error("session/list", {**other, "cursor": cursor})
            assert error.code == -32602


@pytest.mark.parametrize(
    "cursor", ["nonsense", "", "eyJwYWdlIjogMn0=", 7, {"page": 2}, ["x"], True]
)
async def test_invalid_cursor_is_rejected(testbed: AcpTestbed, version: int, cursor: Any) -> None:
    async with testbed.connect_in_process(version) as client:
        assert (await client.request_error("session/list", {"cursor": cursor})).code == -32602
        assert await list_ids(client, cursor=None) == []


async def test_archived_filter_excludes_includes_or_selects(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        live, kept = await client.new_session("/"), await client.new_session("/")
        await client.request("session/archive", {"sessionId": kept})
        assert await list_ids(client) == [live]
        assert await list_ids(client, archived=None) == [live]
        assert await list_ids(client, archived="exclude") == [live]
        assert await list_ids(client, archived="only") == [kept]
        archived_by_id = {
            row["sessionId"]: row["archived"] for row in await list_rows(client, archived="include")
        }
        assert archived_by_id == {live: False, kept: True}


@pytest.mark.parametrize("archived", ["", "all", "Only", "\ud800", 1, True])
async def test_unknown_archived_filter_is_rejected(
    testbed: AcpTestbed, version: int, archived: Any
) -> None:
    async with testbed.connect_in_process(version) as client:
        assert (await client.request_error("session/list", {"archived": archived})).code == -32602


@pytest.mark.parametrize("location", ["top", "meta"])
async def test_search_matches_messages(testbed: AcpTestbed, version: int, location: str) -> None:
    def search(text: str) -> dict[str, Any]:
        return {"search": text} if location == "top" else segue_filters(search=text)

    async with testbed.connect_in_process(version) as client:
        parser, other = await client.new_session("/"), await client.new_session("/")
        await client.run_prompt(parser, "the tokenizer loses a comma")
        await client.run_prompt(other, "something else")
        assert await list_ids(client, **search("comma")) == [parser]
        assert await list_ids(client, **search("comma tokenizer")) == [parser]
        assert await list_ids(client, **search("nowhere")) == []
        assert await list_ids(client, **search("")) == [other, parser]


@pytest.mark.parametrize("location", ["top", "meta"])
async def test_created_after_excludes_older_sessions(
    testbed: AcpTestbed, version: int, location: str
) -> None:
    def since(at: int) -> dict[str, Any]:
        text = clock.to_rfc3339(at)
        return {"createdAfter": text} if location == "top" else segue_filters(createdAfter=text)

    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        await client.new_session("/")
        middle = (await hub.sessions.get(LOCAL, await client.new_session("/"))).created_at
        last = await client.new_session("/")
        assert await list_ids(client, **since(middle)) == [last]
        assert await list_ids(client, createdAfter="2999-01-01T00:00:00+02:00") == []


async def test_segue_filters_are_in_meta(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        tagged, _ = await client.new_session("/"), await client.new_session("/")
        await hub.editor.set_tag(LOCAL, tagged, "urgent")
        assert await list_ids(client, **segue_filters(tag="urgent")) == [tagged]
        page = await client.request("session/list", segue_filters(limit=1))
        assert len(page["sessions"]) == 1 and "nextCursor" in page
        again = await client.request(
            "session/list", {**segue_filters(limit=1), "cursor": page["nextCursor"]}
        )
        assert len(again["sessions"]) == 1 and "nextCursor" not in again


async def test_include_worktrees_lists_all_worktrees_of_a_repository(
    testbed: AcpTestbed, version: int
) -> None:
    main, tree = testbed.directory / "main", testbed.directory / "tree"
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", str(main)]
    subprocess.run(["git", "init", "-q", str(main)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", "-b", "topic", str(tree)], check=True)
    async with testbed.connect_in_process(version) as client:
        one, two = await client.new_session(main), await client.new_session(tree)
        assert await list_ids(client, cwd=str(main)) == [one]
        assert await list_ids(client, cwd=str(main), **segue_filters(includeWorktrees=True)) == [
            two,
            one,
        ]
        branches = {
            row["sessionId"]: row["_meta"].get("gitBranch") for row in await list_rows(client)
        }
        assert branches[two] == "topic"


@pytest.mark.parametrize(
    "bad",
    [
        {"cwd": "relative"},
        {"cwd": ""},
        {"cwd": 7},
        {"search": 7},
        {"createdAfter": "yesterday"},
        {"createdAfter": 7},
        {"_meta": {"segue": 7}},
        segue_filters(limit=0),
        segue_filters(limit=1001),
        segue_filters(limit=True),
        segue_filters(limit="many"),
        segue_filters(tag=7),
        segue_filters(search=7),
        segue_filters(createdAfter=7),
        segue_filters(includeWorktrees="yes"),
    ],
    ids=str,
)
async def test_invalid_filter_is_rejected(
    testbed: AcpTestbed, version: int, bad: dict[str, Any]
) -> None:
    async with testbed.connect_in_process(version) as client:
        assert (await client.request_error("session/list", bad)).code == -32602
        assert await list_ids(client) == []


async def test_unknown_filters_are_ignored(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        strange = {"limit": 0, "sortBy": "title", "_meta": {"other": {"x": 1}}}
        assert await list_ids(client, **strange) == [id]
        assert await list_ids(client, _meta=7) == [id]
        assert await list_ids(client, **segue_filters(colour="blue")) == [id]


async def test_list_omits_other_workspaces(testbed: AcpTestbed, version: int) -> None:
    async with (
        testbed.connect_in_process(version) as first,
        testbed.connect_in_process(version, workspace="team") as second,
    ):
        id = await first.new_session(testbed.directory)
        await first.run_prompt(id, "a secret comma")
        other = await second.new_session(testbed.directory)
        assert await list_ids(second) == [other]
        assert await list_ids(second, search="comma") == []
        assert await list_ids(first) == [id]
        for method in ("load" if version == 1 else "resume", "fork"):
            params = {"sessionId": id, "cwd": str(testbed.directory), "mcpServers": []}
            error = await second.request_error(f"session/{method}", params)
            assert (error.code, error.data) == (-32002, {"sessionId": id})
        for method in ("set_title", "archive", "unarchive", "status"):
            error = await second.request_error(f"session/{method}", {"sessionId": id, "title": "x"})
            assert (error.code, error.data) == (-32002, {"sessionId": id})
        assert await second.request("session/delete", {"sessionId": id}) == {}
        assert await list_ids(first) == [id]


async def test_list_does_not_write_to_the_store(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session(testbed.directory)
        before = await hub.sessions.get(LOCAL, id)
        await client.request("session/close", {"sessionId": id})
        await list_rows(client, cwd=str(testbed.directory), search="x", archived="include")
        assert await hub.sessions.get(LOCAL, id) == before
        error = await client.request_error("session/prompt", client.prompt_params(id, "hello"))
        assert error.code == -32002


async def test_list_omits_a_session_that_another_process_deleted(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session("/")
        await hub.editor.trash(LOCAL, id)
        assert await list_ids(client) == []
        await hub.editor.restore(LOCAL, id)
        assert await list_ids(client) == [id]
