"""additionalDirectories: checked, complete each time, never restored, and a wall for tools."""

from typing import Any

import pytest

from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import House


async def roots_of(client: Client) -> list[str] | None:
    (row,) = (await client.ask("session/list"))["sessions"]
    found: list[str] | None = row.get("additionalDirectories")
    return found


async def read(client: Client, id: str, path: object) -> str:
    before = len(client.log)
    await client.run(id, f"/read {path}")
    result = [u.body for u in client.updates(before) if u.kind == "tool_call_update"][-1]
    return str(result["content"][0]["content"]["text"])


async def test_they_are_listed_in_order_without_repetitions(house: House, version: int) -> None:
    async with house.inside(version) as client:
        await client.new("/", additionalDirectories=["/usr", "/tmp", "/usr"])
        assert await roots_of(client) == ["/usr", "/tmp"]


async def test_each_opening_brings_the_whole_list(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/", additionalDirectories=["/usr"])
        await client.open("resume", id, "/", additionalDirectories=["/tmp", "/var"])
        assert await roots_of(client) == ["/tmp", "/var"]
        await client.open("load", id, "/", additionalDirectories=["/usr"])
        assert await roots_of(client) == ["/usr"]


@pytest.mark.parametrize("left_out", [{}, {"additionalDirectories": []}])
async def test_what_is_left_out_is_not_restored(
    house: House, version: int, left_out: dict[str, Any]
) -> None:
    async with house.inside(version) as client:
        id = await client.new("/", additionalDirectories=["/usr"])
        await client.open("resume", id, "/", **left_out)
        assert await roots_of(client) is None


@pytest.mark.parametrize(
    "bad",
    ["/usr", {"a": "/usr"}, ["relative"], [""], ["/usr", 7], [None], ["~/x"], ["/usr", "./x"]],
    ids=str,
)
async def test_a_list_that_is_wrong_anywhere_is_refused_whole(
    house: House, version: int, bad: Any
) -> None:
    async with house.inside(version) as client:
        id = await client.new("/", additionalDirectories=["/tmp"])
        for method in ("new", "load", "resume", "fork"):
            params = {"sessionId": id, "cwd": "/", "mcpServers": [], "additionalDirectories": bad}
            assert (await client.refusal(f"session/{method}", params)).code == -32602
        assert await roots_of(client) == ["/tmp"]


async def test_tools_stay_within_the_directory_and_the_roots(house: House, version: int) -> None:
    inside, root, outside = (house.directory / name for name in ("inside", "root", "outside"))
    for directory in (inside, root, outside):
        directory.mkdir()
        (directory / "file").write_text(f"in {directory.name}")
    (root / "way-out").symlink_to(outside / "file")
    (inside / "way-in").symlink_to(root / "file")
    async with house.inside(version) as client:
        id = await client.new(inside, additionalDirectories=[str(root)])
        assert await read(client, id, "file") == "in inside"
        assert await read(client, id, root / "file") == "in root"
        assert await read(client, id, "way-in") == "in root"
        for path in (outside / "file", root / "way-out", "../outside/file"):
            assert "outside of the session's directories" in await read(client, id, path)
        await client.open("resume", id, inside)
        assert "outside of the session's directories" in await read(client, id, root / "file")


async def test_a_root_that_is_a_link_is_what_it_points_to(house: House, version: int) -> None:
    target, link = house.directory / "target", house.directory / "link"
    target.mkdir()
    (target / "file").write_text("through the link")
    link.symlink_to(target)
    async with house.inside(version) as client:
        id = await client.new("/usr", additionalDirectories=[str(link)])
        assert await read(client, id, link / "file") == "through the link"
        assert await roots_of(client) == [str(link)]


async def test_a_root_that_is_not_there_is_reported_and_no_more(house: House, version: int) -> None:
    gone = str(house.directory / "gone")
    wanted = {"clientCapabilities": {"session": {"notices": {}}}} if version == 1 else {}
    async with house.inside(version, greet=False) as client:
        await client.initialize(**wanted)
        id = await client.new("/", additionalDirectories=[gone])
        (notice,) = [update.body for update in client.updates() if update.kind == "notice"]
        assert (notice["severity"], notice["description"]) == ("warning", gone)
        assert await roots_of(client) == [gone]
        assert await client.run(id, "hello") == "end_turn"
