"""Translate errors into JSON-RPC errors."""

from __future__ import annotations

from typing import Any

import msgspec

from segue.acp.rpc import INVALID_PARAMS, NOT_FOUND, RpcError
from segue.model.errors import InvalidCursor, SegueError

DIALECT = "acp"  # the key of the fields that only this protocol has


def session_not_found(client_session_id: str) -> RpcError:
    """Return the error for a session that does not exist for the client, or is not attached."""
    return RpcError(
        NOT_FOUND, f"session not found: {client_session_id}", {"sessionId": client_session_id}
    )


def invalid_params(error: msgspec.ValidationError, path: str = "") -> RpcError:
    """Return the error for a value of a wrong type at `path`; its message names the field."""
    from segue.model import codec

    return RpcError(INVALID_PARAMS, codec.explain(error, path))


def to_rpc_error(error: SegueError, request: Any, *, local: bool) -> RpcError:
    """Return an error of the hub as the answer to `request` of the local user or another caller.

    The hub knows the canonical id of a session. The answer has the id that the client sent. An
    error of an agent that uses this protocol is returned as the agent sent it.
    """
    if agent_error := error.data.get("extra", {}).get(DIALECT, {}).get("error"):
        return RpcError.from_wire(agent_error)
    client_session_id = getattr(request, "session_id", "")
    concerns_session = "session" in error.data and client_session_id
    data = {"sessionId": client_session_id} if concerns_session else None
    field = "cursor: " if isinstance(error, InvalidCursor) else ""
    return RpcError(error.rpc_code, f"{field}{error.message_for(local=local)}", data)
