"""Checks of the connection: initialization, JSON-RPC, extensions and logins."""

from __future__ import annotations

from typing import Any

from .peer import AgentError, CheckFailed, Peer
from .session import Steps, check, expect

CLIENT = {"name": "segue acp-check", "version": "1"}


def initialize_params(version: int, **capabilities: Any) -> dict[str, Any]:
    """Return the parameters of `initialize`, with fields for both versions."""
    return {
        "protocolVersion": version,
        "clientInfo": CLIENT,
        "clientCapabilities": capabilities,
        "info": CLIENT,
        "capabilities": capabilities,
    }


@check("INIT-001", "a request for version 1 is answered with version 1", versions=(1,))
async def _version(steps: Steps) -> None:
    answered = steps.greeting.get("protocolVersion")
    expect(answered == steps.version, f"asked for {steps.version}, got {answered!r}")


@check(
    "INIT-002",
    "a version that the agent does not know is answered with one that it knows",
    fresh=True,
)
async def _unknown_version(steps: Steps) -> None:
    peer = steps.peer
    result = await _initialize(peer, initialize_params(65535))
    answered = result.get("protocolVersion")
    expect(answered in (1, 2), f"asked for 65535, got {answered!r}")


@check("INIT-003", "the agent names itself", versions=(1,), level="should")
async def _names_itself(steps: Steps) -> None:
    info = steps.greeting.get("agentInfo")
    expect(isinstance(info, dict) and info.get("name"), f"agentInfo is {info!r}")


@check("INIT-004", "capabilities are objects, never booleans", versions=(2,))
async def _object_capabilities(steps: Steps) -> None:
    expect(isinstance(steps.greeting.get("capabilities"), dict), "there are no capabilities")
    values = _leaves(steps.capabilities)
    expect(not values, f"the capabilities contain {values[0]!r}" if values else "")


@check("INIT-005", "a request before initialize is refused", fresh=True)
async def _before_initialize(steps: Steps) -> None:
    codes = (-32600,) if steps.version == 2 else ()
    await steps.peer.expect_error("session/new", steps.setup(), *codes)


@check("INIT-006", "an answer of version 2 has the fields of version 2", versions=(1,), fresh=True)
async def _shape_of_version(steps: Steps) -> None:
    result = await _initialize(steps.peer, initialize_params(2))
    if result.get("protocolVersion") == 2:
        missing = [name for name in ("info", "capabilities") if name not in result]
        expect(not missing, f"version 2, without {' and '.join(missing)}")


@check("RPC-001", "a response has the id of its request, a number or a string")
async def _ids(steps: Steps) -> None:
    for id in (4711, "an id", 0):
        try:
            await steps.peer.request("_segue/unknown", {}, id=id)
        except AgentError:
            continue


@check("RPC-002", "an unknown method is answered with -32601")
async def _unknown_method(steps: Steps) -> None:
    await steps.peer.expect_error("session/no_such_method", {"sessionId": "x"}, -32601)


@check("RPC-003", "a notification gets no response")
async def _notifications(steps: Steps) -> None:
    peer = steps.peer
    before = len(peer.unmatched)
    await peer.notify("_segue/unknown", {})
    await peer.notify("session/cancel", {"sessionId": "no such session"})
    await peer.quiet()
    expect(len(peer.unmatched) == before, f"got {peer.unmatched[before:]}")


@check("RPC-004", "a line that is not JSON does not end the connection", level="should", fresh=True)
async def _not_json(steps: Steps) -> None:
    await _initialize(steps.peer, initialize_params(steps.version))
    await steps.peer.send_line(b"{not json")
    await steps.peer.expect_error("_segue/unknown", {})


@check("RPC-005", "a request without required parameters is answered with -32602")
async def _missing_parameters(steps: Steps) -> None:
    await steps.peer.expect_error("session/prompt", {}, -32602)


@check(
    "RPC-006",
    "an array of messages is refused with one -32600",
    versions=(2,),
    level="should",  # earlier drafts had batches
    fresh=True,
)
async def _batch(steps: Steps) -> None:
    peer = steps.peer
    await _initialize(peer, initialize_params(2))
    request = b'{"jsonrpc":"2.0","id":"batch","method":"session/list","params":{}}'
    await peer.send_line(b"[" + request + b"]")
    await peer.wait_for("answer to the batch", lambda: peer.unmatched or None)
    await peer.quiet()
    errors = [message.get("error", {}).get("code") for message in peer.unmatched]
    expect(errors == [-32600], f"got {peer.unmatched}")


@check("EXT-001", "an unknown extension request is answered with -32601")
async def _extension(steps: Steps) -> None:
    await steps.peer.expect_error("_segue/unknown", {"a": 1}, -32601)


@check("AUTH-001", "a client without terminals is offered no login in a terminal")
async def _terminal_logins(steps: Steps) -> None:
    methods = steps.greeting.get("authMethods") or ()
    terminal = [method for method in methods if method.get("type") == "terminal"]
    expect(not terminal, f"got {terminal}")


@check("AUTH-002", "login methods have unique ids")
async def _login_ids(steps: Steps) -> None:
    field = "id" if steps.version == 1 else "methodId"
    ids = [method.get(field) for method in steps.greeting.get("authMethods") or ()]
    expect(len(set(ids)) == len(ids), f"the ids are {ids}")


@check("GATE-001", "a method that the agent does not advertise is answered with -32601")
async def _gated(steps: Steps) -> None:
    from .session import OPTIONAL_METHODS

    for method, capability in OPTIONAL_METHODS.items():
        if steps.version == 2 and capability == "load":
            continue  # of an earlier draft of version 2
        if not steps.has(capability):
            params = steps.setup(sessionId="no such session", title="x")
            await steps.peer.expect_error(method, params, -32601)


async def _initialize(peer: Peer, params: dict[str, Any]) -> dict[str, Any]:
    try:
        result = await peer.request("initialize", params)
    except AgentError as error:
        raise CheckFailed(f"initialize failed: {error}") from None
    return result if isinstance(result, dict) else {}


def _leaves(value: Any) -> list[Any]:
    """Return the values in capabilities that are neither objects nor null, without `_meta`."""
    if isinstance(value, dict):
        return [leaf for name, field in value.items() if name != "_meta" for leaf in _leaves(field)]
    return [] if value is None else [value]
