"""`session/list`: rows, filters, pages; and that it leaves everything as it was."""

import subprocess
from datetime import datetime
from typing import Any

import pytest

from segue.model import clock
from segue.model.event import Failed
from segue.model.principal import LOCAL
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import House


async def rows(client: Client, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.ask("session/list", params))["sessions"]
    return found


async def listed(client: Client, **params: Any) -> list[str]:
    return [row["sessionId"] for row in await rows(client, **params)]


def ours(**filters: Any) -> dict[str, Any]:
    return {"_meta": {"segue": filters}}


async def test_an_empty_store_has_an_empty_list(house: House, version: int) -> None:
    async with house.inside(version) as client:
        assert await client.ask("session/list") == {"sessions": []}
        assert await client.ask("session/list", {"cwd": "/nowhere"}) == {"sessions": []}


async def test_a_row_says_what_a_client_needs(house: House, version: int) -> None:
    before = clock.now()
    async with house.inside(version) as client:
        id = await client.new(house.directory)
        await client.run(id, "Fix the parser")
        (row,) = await rows(client)
    assert (row["sessionId"], row["title"]) == (id, "Fix the parser")
    assert row["cwd"] == str(house.directory)
    assert datetime.fromisoformat(row["updatedAt"]).timestamp() * 1e6 >= before
    assert row["archived"] is False
    assert row["_meta"] == {
        "messageCount": 2,
        "hasErrors": False,
        "source": "segue",
        "status": "idle",
    }


async def test_a_row_tells_the_tag_the_branch_and_that_something_failed(
    house: House, version: int
) -> None:
    repository = house.directory / "repository"
    subprocess.run(["git", "init", "-q", "-b", "topic", str(repository)], check=True)
    (repository / "deep").mkdir()
    async with house.inside(version) as client, house.hub() as hub:
        id = await client.new(repository / "deep")
        await hub.editor.set_tag(LOCAL, id, "urgent")
        await hub.editor.append(LOCAL, id, Failed(message="it broke"))
        (row,) = await rows(client)
        assert row["_meta"] | {"source": None, "status": None} == {
            "messageCount": 0,
            "hasErrors": True,
            "tag": "urgent",
            "gitBranch": "topic",
            "source": None,
            "status": None,
        }


async def test_the_most_recently_active_comes_first(house: House, version: int) -> None:
    async with house.inside(version) as client:
        first = await client.new(house.directory)
        second = await client.new(house.directory)
        assert await listed(client) == [second, first]
        await client.run(first, "hello")
        assert await listed(client) == [first, second]


async def test_cwd_means_this_directory_and_no_other(house: House, version: int) -> None:
    inner = house.directory / "inner"
    inner.mkdir()
    async with house.inside(version) as client:
        outer_id = await client.new(house.directory)
        inner_id = await client.new(inner, additionalDirectories=[str(house.directory)])
        assert await listed(client, cwd=str(house.directory)) == [outer_id]
        assert await listed(client, cwd=str(inner)) == [inner_id]
        assert await listed(client, cwd=str(house.directory / "other")) == []
        assert await listed(client, cwd=None) == [inner_id, outer_id]


async def test_a_directory_is_known_by_any_spelling_and_shown_in_the_one_that_was_used(
    house: House, version: int
) -> None:
    real, link = house.directory / "real", house.directory / "link"
    real.mkdir()
    link.symlink_to(real)
    async with house.inside(version) as client:
        await client.new(real)
        for spelling in (str(link), f"{link}/", f"{real}/../link", str(real)):
            (row,) = await rows(client, cwd=spelling)
            assert row["cwd"] == spelling


async def test_a_session_whose_directory_is_gone_stays(house: House, version: int) -> None:
    gone = house.directory / "gone"
    gone.mkdir()
    async with house.inside(version) as client:
        id = await client.new(gone)
        gone.rmdir()
        assert await listed(client) == [id]
        assert await listed(client, cwd=str(gone)) == [id]


async def test_pages_of_fifty_make_up_the_whole(house: House, version: int) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        made = [(await hub.editor.create(LOCAL, cwd="/")).id for _ in range(120)]
        page = await client.ask("session/list")
        sizes, seen, cursors = [], [], []
        while True:
            sizes.append(len(page["sessions"]))
            seen += [row["sessionId"] for row in page["sessions"]]
            if "nextCursor" not in page:
                break
            cursors.append(page["nextCursor"])
            page = await client.ask("session/list", {"cursor": page["nextCursor"]})
        assert sizes == [50, 50, 20]
        assert seen == made[::-1]
        assert len(set(cursors)) == 2


async def test_a_cursor_is_good_for_the_same_filters_only(house: House, version: int) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        for _ in range(51):
            await hub.editor.create(LOCAL, cwd="/")
        cursor = (await client.ask("session/list", {"cwd": "/"}))["nextCursor"]
        assert len(await rows(client, cwd="/", cursor=cursor)) == 1
        for other in ({}, {"cwd": "/tmp"}, {"cwd": "/", "archived": "include"}):
            refused = await client.refusal("session/list", {**other, "cursor": cursor})
            assert refused.code == -32602


@pytest.mark.parametrize(
    "cursor", ["nonsense", "", "eyJwYWdlIjogMn0=", 7, {"page": 2}, ["x"], True]
)
async def test_what_is_no_cursor_of_ours_is_refused(
    house: House, version: int, cursor: Any
) -> None:
    async with house.inside(version) as client:
        assert (await client.refusal("session/list", {"cursor": cursor})).code == -32602
        assert await listed(client, cursor=None) == []


async def test_archived_sessions_are_left_out_let_in_or_alone(house: House, version: int) -> None:
    async with house.inside(version) as client:
        live, kept = await client.new("/"), await client.new("/")
        await client.ask("session/archive", {"sessionId": kept})
        assert await listed(client) == [live]
        assert await listed(client, archived=None) == [live]
        assert await listed(client, archived="exclude") == [live]
        assert await listed(client, archived="only") == [kept]
        found = {
            row["sessionId"]: row["archived"] for row in await rows(client, archived="include")
        }
        assert found == {live: False, kept: True}


@pytest.mark.parametrize("archived", ["", "all", "Only", 1, True])
async def test_an_unknown_archive_filter_is_refused(
    house: House, version: int, archived: Any
) -> None:
    async with house.inside(version) as client:
        assert (await client.refusal("session/list", {"archived": archived})).code == -32602


@pytest.mark.parametrize("spelt", ["top", "meta"])
async def test_search_finds_what_was_said(house: House, version: int, spelt: str) -> None:
    def search(text: str) -> dict[str, Any]:
        return {"search": text} if spelt == "top" else ours(search=text)

    async with house.inside(version) as client:
        parser, other = await client.new("/"), await client.new("/")
        await client.run(parser, "the tokenizer loses a comma")
        await client.run(other, "something else")
        assert await listed(client, **search("comma")) == [parser]
        assert await listed(client, **search("comma tokenizer")) == [parser]
        assert await listed(client, **search("nowhere")) == []
        assert await listed(client, **search("")) == [other, parser]


@pytest.mark.parametrize("spelt", ["top", "meta"])
async def test_created_after_leaves_out_what_is_older(
    house: House, version: int, spelt: str
) -> None:
    def since(at: int) -> dict[str, Any]:
        text = clock.to_rfc3339(at)
        return {"createdAfter": text} if spelt == "top" else ours(createdAfter=text)

    async with house.inside(version) as client, house.hub() as hub:
        await client.new("/")
        middle = (await hub.sessions.get(LOCAL, await client.new("/"))).created_at
        last = await client.new("/")
        assert await listed(client, **since(middle)) == [last]
        assert await listed(client, createdAfter="2999-01-01T00:00:00+02:00") == []


async def test_our_own_filters_stand_under_our_own_key(house: House, version: int) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        tagged, _ = await client.new("/"), await client.new("/")
        await hub.editor.set_tag(LOCAL, tagged, "urgent")
        assert await listed(client, **ours(tag="urgent")) == [tagged]
        page = await client.ask("session/list", ours(limit=1))
        assert len(page["sessions"]) == 1 and "nextCursor" in page
        again = await client.ask("session/list", {**ours(limit=1), "cursor": page["nextCursor"]})
        assert len(again["sessions"]) == 1 and "nextCursor" not in again


async def test_worktrees_of_one_repository_can_be_listed_together(
    house: House, version: int
) -> None:
    main, tree = house.directory / "main", house.directory / "tree"
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", str(main)]
    subprocess.run(["git", "init", "-q", str(main)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", "-b", "topic", str(tree)], check=True)
    async with house.inside(version) as client:
        one, two = await client.new(main), await client.new(tree)
        assert await listed(client, cwd=str(main)) == [one]
        assert await listed(client, cwd=str(main), **ours(includeWorktrees=True)) == [two, one]
        branches = {row["sessionId"]: row["_meta"].get("gitBranch") for row in await rows(client)}
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
        ours(limit=0),
        ours(limit=1001),
        ours(limit=True),
        ours(limit="many"),
        ours(tag=7),
        ours(search=7),
        ours(createdAfter=7),
        ours(includeWorktrees="yes"),
    ],
    ids=str,
)
async def test_a_filter_that_makes_no_sense_is_refused(
    house: House, version: int, bad: dict[str, Any]
) -> None:
    async with house.inside(version) as client:
        assert (await client.refusal("session/list", bad)).code == -32602
        assert await listed(client) == []


async def test_what_is_not_known_is_ignored(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        strange = {"limit": 0, "sortBy": "title", "_meta": {"other": {"x": 1}}}
        assert await listed(client, **strange) == [id]
        assert await listed(client, _meta=7) == [id]
        assert await listed(client, **ours(colour="blue")) == [id]


async def test_sessions_of_another_workspace_do_not_exist(house: House, version: int) -> None:
    async with house.inside(version) as mine, house.inside(version, workspace="team") as theirs:
        id = await mine.new(house.directory)
        await mine.run(id, "a secret comma")
        other = await theirs.new(house.directory)
        assert await listed(theirs) == [other]
        assert await listed(theirs, search="comma") == []
        assert await listed(mine) == [id]
        for method in ("load" if version == 1 else "resume", "fork"):
            params = {"sessionId": id, "cwd": str(house.directory), "mcpServers": []}
            refused = await theirs.refusal(f"session/{method}", params)
            assert (refused.code, refused.data) == (-32002, {"sessionId": id})
        for method in ("set_title", "archive", "unarchive", "status"):
            refused = await theirs.refusal(f"session/{method}", {"sessionId": id, "title": "x"})
            assert (refused.code, refused.data) == (-32002, {"sessionId": id})
        assert await theirs.ask("session/delete", {"sessionId": id}) == {}
        assert await listed(mine) == [id]


async def test_listing_changes_nothing(house: House, version: int) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        id = await client.new(house.directory)
        before = await hub.sessions.get(LOCAL, id)
        await client.ask("session/close", {"sessionId": id})
        await rows(client, cwd=str(house.directory), search="x", archived="include")
        assert await hub.sessions.get(LOCAL, id) == before
        refused = await client.refusal("session/prompt", client.prompting(id, "hello"))
        assert refused.code == -32002


async def test_a_session_deleted_elsewhere_is_gone_from_the_list(
    house: House, version: int
) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        id = await client.new("/")
        await hub.editor.trash(LOCAL, id)
        assert await listed(client) == []
        await hub.editor.restore(LOCAL, id)
        assert await listed(client) == [id]
