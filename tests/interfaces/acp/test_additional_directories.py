"""additionalDirectories: validated, replaced by each opening, and a limit for tools."""

from typing import Any

import pytest

from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import AcpTestbed


async def roots_of(client: Client) -> list[str] | None:
    (row,) = (await client.request("session/list"))["sessions"]
    directories: list[str] | None = row.get("additionalDirectories")
    return directories


async def read(client: Client, id: str, path: object) -> str:
    before = len(client.log)
    await client.run_prompt(id, f"/read {path}")
    result = [u.body for u in client.updates(before) if u.kind == "tool_call_update"][-1]
    return str(result["content"][0]["content"]["text"])


async def test_directories_are_listed_in_order_without_duplicates(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        await client.new_session("/", additionalDirectories=["/usr", "/tmp", "/usr"])
        assert await roots_of(client) == ["/usr", "/tmp"]


async def test_each_opening_replaces_the_directories(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/", additionalDirectories=["/usr"])
        await client.open_session("resume", id, "/", additionalDirectories=["/tmp", "/var"])
        assert await roots_of(client) == ["/tmp", "/var"]
        await client.open_session("load", id, "/", additionalDirectories=["/usr"])
        assert await roots_of(client) == ["/usr"]


@pytest.mark.parametrize("left_out", [{}, {"additionalDirectories": []}])
async def test_omitted_directories_are_not_restored(
    testbed: AcpTestbed, version: int, left_out: dict[str, Any]
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/", additionalDirectories=["/usr"])
        await client.open_session("resume", id, "/", **left_out)
        assert await roots_of(client) is None


@pytest.mark.parametrize(
    "bad",
    ["/usr", {"a": "/usr"}, ["relative"], [""], ["/usr", 7], [None], ["~/x"], ["/usr", "./x"]],
    ids=str,
)
async def test_list_with_an_invalid_directory_is_rejected(
    testbed: AcpTestbed, version: int, bad: Any
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/", additionalDirectories=["/tmp"])
        for method in ("new", "load", "resume", "fork"):
            params = {"sessionId": id, "cwd": "/", "mcpServers": [], "additionalDirectories": bad}
            assert (await client.request_error(f"session/{method}", params)).code == -32602
        assert await roots_of(client) == ["/tmp"]


async def test_tools_stay_within_cwd_and_additional_directories(
    testbed: AcpTestbed, version: int
) -> None:
    inside, root, outside = (testbed.directory / name for name in ("inside", "root", "outside"))
    for directory in (inside, root, outside):
        directory.mkdir()
        (directory / "file").write_text(f"in {directory.name}")
    (root / "way-out").symlink_to(outside / "file")
    (inside / "way-in").symlink_to(root / "file")
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session(inside, additionalDirectories=[str(root)])
        assert await read(client, id, "file") == "in inside"
        assert await read(client, id, root / "file") == "in root"
        assert await read(client, id, "way-in") == "in root"
        for path in (outside / "file", root / "way-out", "../outside/file"):
            assert "outside of the session's directories" in await read(client, id, path)
        await client.open_session("resume", id, inside)
        assert "outside of the session's directories" in await read(client, id, root / "file")


async def test_symbolic_link_is_resolved_to_its_target(testbed: AcpTestbed, version: int) -> None:
    target, link = testbed.directory / "target", testbed.directory / "link"
    target.mkdir()
    (target / "file").write_text("through the link")
    link.symlink_to(target)
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/usr", additionalDirectories=[str(link)])
        assert await read(client, id, link / "file") == "through the link"
        assert await roots_of(client) == [str(link)]


@pytest.mark.parametrize("kind", ["working", "additional"])
async def test_missing_directory_is_reported_and_the_session_opens(
    testbed: AcpTestbed, version: int, kind: str
) -> None:
    gone = str(testbed.directory / "gone")
    capabilities = {"clientCapabilities": {"session": {"notices": {}}}} if version == 1 else {}
    async with testbed.connect_in_process(version, initialize=False) as client:
        await client.initialize(**capabilities)
        cwd, roots = (gone, None) if kind == "working" else ("/", [gone])
        id = await client.new_session(cwd, additionalDirectories=roots or [])
        (notice,) = [update.body for update in client.updates() if update.kind == "notice"]
        assert (notice["severity"], notice["description"]) == ("warning", gone)
        assert kind in notice["title"]
        assert await roots_of(client) == roots
        assert await client.run_prompt(id, "hello") == "end_turn"
