"""Invalid input: the client gets the right error, and the connection keeps working."""

from typing import Any

import pytest

from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import ErrorResponse
from tests.interfaces.acp.testbed import AcpTestbed

LINES: list[tuple[bytes, int]] = [
    (b"{", -32700),
    (b"nonsense", -32700),
    (b"\xff\xfe\x00", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":NaN}', -32700),
    (b"[" * 100_000, -32700),
    (b"[]", -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"session/list"}]', -32600),
    (b"7", -32600),
    (b'"text"', -32600),
    (b"null", -32600),
    (b"{}", -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"session/list"}', -32600),
    (b'{"id":1,"method":"session/list"}', -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"session/list"}', -32600),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"session/list"}', -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"session/list"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
    (b'{"jsonrpc":"2.0","id":1}', -32600),
]


@pytest.mark.parametrize(("line", "code"), LINES, ids=lambda value: str(value)[:40])
async def test_invalid_line_gets_one_error(
    testbed: AcpTestbed, version: int, line: bytes, code: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        await client.send_bytes(line + b"\n")
        assert await client.request("session/list") == {"sessions": []}
        assert [error["code"] for error in client.unmatched_errors] == [code]


@pytest.mark.parametrize("line", [b"", b"  ", b"\r", b"\t"])
async def test_empty_line_is_ignored(testbed: AcpTestbed, version: int, line: bytes) -> None:
    async with testbed.connect_in_process(version) as client:
        await client.send_bytes(line + b"\n")
        assert await client.request("session/list") == {"sessions": []}
        assert client.unmatched_errors == []


@pytest.mark.parametrize("id", ["text", "", 0, -1, 2**60])
async def test_response_has_the_id_of_its_request(
    testbed: AcpTestbed, version: int, id: Any
) -> None:
    async with testbed.connect_in_process(version) as client:
        await client.send_request("session/list", None, id)
        assert await client.wait_response(id) == {"sessions": []}


async def test_request_with_the_id_of_an_open_request_is_rejected(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.start_prompt(id, "/say begun\n/wait 60")
        waiting = client.prompt_params(id, "/say held")
        await client.send_request("session/prompt", waiting, "same")
        await client.send({"jsonrpc": "2.0", "id": "same", "method": "session/list"})
        with pytest.raises(ErrorResponse, match="-32600"):
            await client.wait_response("same")
        # The first request still runs.
        assert (await client.request("session/status", {"sessionId": id}))["status"] == "open"


@pytest.mark.parametrize(
    "method", ["nonsense", "_custom/thing", "session/nonsense", "", "__init__"]
)
async def test_unknown_method_gets_method_not_found(
    testbed: AcpTestbed, version: int, method: str
) -> None:
    async with testbed.connect_in_process(version) as client:
        for params in ({}, None, [], "x"):
            error = await client.request_error(method, params)
            assert (error.code, error.data) == (-32601, {"method": method})


async def test_unknown_notification_is_ignored(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        for method in ("_custom", "nonsense", "session/list", "$/progress", "initialize"):
            await client.notify(method, {"x": 1})
        assert await client.request("session/list") == {"sessions": []}
        assert client.unmatched_errors == []


async def test_response_without_a_request_is_ignored(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        for answer in ({"result": {}}, {"error": {"code": 1, "message": "x"}}, {"error": "odd"}):
            for id in (1, "x", None, {}):
                await client.send({"jsonrpc": "2.0", "id": id, **answer})
        assert await client.request("session/list") == {"sessions": []}
        assert client.unmatched_errors == []


WRONG: list[Any] = [None, 7, "x", [], {}, {"sessionId": 7}, {"sessionId": None}, {"sessionId": {}}]
METHODS = [
    *("new", "load", "resume", "fork", "close", "delete", "prompt", "set_config_option"),
    *("set_title", "archive", "unarchive", "status"),
]


@pytest.mark.parametrize("method", METHODS)
async def test_parameters_of_the_wrong_type_are_rejected(
    testbed: AcpTestbed, version: int, method: str
) -> None:
    async with testbed.connect_in_process(version) as client:
        for params in WRONG:
            error = await client.request_error(f"session/{method}", params)
            assert error.code == -32602, params
        assert await client.request("session/list") == {"sessions": []}


async def test_half_a_character_in_place_of_another_type_is_rejected(
    testbed: AcpTestbed, version: int
) -> None:
    half = "\ud800"
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        for method, params in (
            ("new", {"cwd": "/", "mcpServers": half}),
            ("new", {"cwd": "/", "mcpServers": [half]}),
            ("new", {"cwd": "/", "mcpServers": [{**SERVER, "env": half}]}),
            ("resume", {"sessionId": id, "cwd": "/", "additionalDirectories": half}),
            ("prompt", {"sessionId": id, "prompt": [half]}),
            ("prompt", {"sessionId": id, "prompt": [{**TEXT, "annotations": half}]}),
            ("list", {"_meta": {"segue": {"limit": half}}}),
            ("fork", {"sessionId": id, "cwd": "/", "_meta": {"segue": {"resumeIn": [half]}}}),
        ):
            error = await client.request_error(f"session/{method}", params)
            assert error.code == -32602, (method, params, error)
        # A session with this id does not exist, so it is deleted already.
        assert await client.request("session/delete", {"sessionId": half}) == {}


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"annotations": {"audience": "user"}}, "annotations.audience"),
        ({"annotations": {"priority": True}}, "annotations.priority"),
        ({"annotations": {"lastModified": 7}}, "annotations.lastModified"),
        ({"type": "resource_link", "name": "a", "uri": "a:b", "icons": [{}]}, "icons[0].src"),
    ],
)
async def test_annotations_of_the_wrong_type_are_rejected(
    testbed: AcpTestbed, version: int, block: dict[str, Any], field: str
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        params = {"sessionId": id, "prompt": [{**TEXT, **block}]}
        error = await client.request_error("session/prompt", params)
        assert (error.code, error.message.partition(": ")[0]) == (-32602, f"prompt[0].{field}")


SETUP = {"cwd": "/", "mcpServers": []}
TEXT = {"type": "text", "text": "hi"}
SERVER = {"type": "stdio", "name": "one", "command": "/bin/one", "args": [], "env": []}


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("new", [1], "params must be an object"),
        ("new", {"mcpServers": []}, "cwd: field is required"),
        ("new", {**SETUP, "cwd": 7}, "cwd: expected str, got int"),
        ("new", {**SETUP, "cwd": "here"}, "cwd must be an absolute path, not 'here'"),
        (
            "new",
            {**SETUP, "additionalDirectories": ["/", 7]},
            "additionalDirectories[1]: expected str, got int",
        ),
        (
            "new",
            {**SETUP, "additionalDirectories": ["/", "here"]},
            "additionalDirectories[1] must be an absolute path, not 'here'",
        ),
        ("new", {**SETUP, "mcpServers": [7]}, "mcpServers[0]: expected object, got int"),
        (
            "new",
            {**SETUP, "mcpServers": [{"type": "carrier", "name": "one"}]},
            "mcpServers[0].type: the MCP transport 'carrier' is not supported",
        ),
        (
            "new",
            {**SETUP, "mcpServers": [SERVER, {"type": "stdio", "name": "two"}]},
            "mcpServers[1].command: field is required",
        ),
        (
            "new",
            {**SETUP, "mcpServers": [{**SERVER, "env": [{"name": "A"}]}]},
            "mcpServers[0].env[0].value: field is required",
        ),
        (
            "new",
            {**SETUP, "mcpServers": [{**SERVER, "command": "one"}]},
            "mcpServers[0].command must be an absolute path, not 'one'",
        ),
        (
            "new",
            {**SETUP, "mcpServers": [SERVER, SERVER]},
            "mcpServers[1].name: two MCP servers are named 'one'",
        ),
        ("prompt", {"prompt": [TEXT]}, "sessionId: field is required"),
        ("prompt", {"sessionId": "ID", "prompt": "hi"}, "prompt: expected array, got str"),
        (
            "prompt",
            {"sessionId": "ID", "prompt": []},
            "prompt: at least one content block is required",
        ),
        (
            "prompt",
            {"sessionId": "ID", "prompt": [TEXT, {"type": "text"}]},
            "prompt[1].text: field is required",
        ),
        (
            "set_config_option",
            {"sessionId": "ID", "configId": "taste", "value": "sweet"},
            "configId: no configuration option 'taste'",
        ),
        ("set_title", {"sessionId": "ID", "title": 7}, "title: expected str"),
        ("list", {"cursor": 7}, "cursor: expected str"),
        ("list", {"cursor": "x"}, "cursor: invalid page cursor"),
        ("list", {"archived": "all"}, "archived must be exclude, include or only, not 'all'"),
        ("list", {"createdAfter": "soon"}, "createdAfter must be a time such as"),
        ("list", {"_meta": {"segue": 7}}, "_meta.segue: expected object, got int"),
        ("list", {"_meta": {"segue": {"tag": 7}}}, "_meta.segue.tag: expected str"),
        ("list", {"_meta": {"segue": {"limit": 0}}}, "_meta.segue.limit: expected int >= 1"),
        (
            "list",
            {"_meta": {"segue": {"createdAfter": ""}}},
            "_meta.segue.createdAfter must be a time",
        ),
    ],
    ids=str,
)
async def test_invalid_params_error_names_the_path_of_the_field(
    testbed: AcpTestbed, version: int, method: str, params: Any, message: str
) -> None:
    async with testbed.connect_in_process(version) as client:
        if isinstance(params, dict) and params.get("sessionId") == "ID":
            params = {**params, "sessionId": await client.new_session("/")}
        error = await client.request_error(f"session/{method}", params)
        assert error.code == -32602
        assert error.message.startswith(message)


async def test_unusual_text_is_stored_and_replayed_unchanged(
    testbed: AcpTestbed, version: int
) -> None:
    odd = "a\x00b \u2028 \U0001f600 \x7f"
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, odd)
        updates = await client.replay(id, "/")
        assert conversation(updates)[0] == ("user", odd)


async def test_lone_surrogate_is_replaced_in_updates(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, "half \ud83d here")
        updates = await client.replay(id, "/")
        assert conversation(updates)[0] == ("user", "half ? here")


async def test_unknown_meta_is_ignored(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        for meta in ({"traceparent": "x"}, {}, None, 7, "x", []):
            id = await client.new_session("/", _meta=meta)
            assert await client.request("session/close", {"sessionId": id, "_meta": meta}) == {}
