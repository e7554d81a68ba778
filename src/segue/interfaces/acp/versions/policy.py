"""The interfaces that each protocol version implements: a session encoder and a policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from segue.acp import wire
from segue.acp.rpc import RpcError
from segue.model.event import Delta, Event, Failed, PermissionAsked, ToolCall
from segue.model.session import Session


class SessionEncoder(Protocol):
    """Encodes the events of one session as `session/update` payloads for one client."""

    def encode_replayed(self, event: Event) -> Iterator[Any]:
        """Encode an event of the history that a client loads."""
        ...

    def encode_created(self, session: Session) -> Iterator[Any]:
        """Encode the updates that follow the response to `session/new` or `session/fork`."""
        ...

    def encode_opened(self, session: Session) -> Iterator[Any]:
        """Encode the updates that end the replay of an existing session."""
        ...

    def encode_state(self, session: Session) -> Iterator[Any]:
        """Encode the state of a session for a client that has resumed, if there is an update."""
        ...

    def encode_notice(self, severity: str, title: str, description: str) -> Iterator[Any]:
        """Encode a notice for people, if the client supports notices."""
        ...

    def resume_message(self, message_id: str, length: int) -> None:
        """Continue an unfinished message of which the client has received `length` characters."""
        ...

    def encode_delta(self, delta: Delta) -> Iterator[Any]:
        """Encode a live piece of a message."""
        ...

    def encode_event(self, event: Event, session: Session | None) -> Iterator[Any]:
        """Encode a new event. `session` is the session after it, or None during a replay."""
        ...

    def note_settings(self, session: Session) -> None:
        """Remember the mode, options and commands of a session that the client knows."""
        ...

    def encode_forwarded(self, payload: Mapping[str, Any], session: Session) -> Iterator[Any]:
        """Return the update of an agent that uses the same version, as the client may get it."""
        ...

    def note_result(self, result: Mapping[str, Any]) -> None:
        """Remember the result of the turn that an agent of the same version runs."""
        ...


class VersionPolicy(Protocol):
    """Everything that differs between protocol versions after `initialize`."""

    version: int
    # The transport of an MCP server whose type is missing. None: the type is required.
    default_mcp_transport: str | None
    # True: `session/prompt` is answered when the turn starts. False: when the turn ends.
    answers_prompt_at_start: bool
    # True: a client receives its own prompts as updates. False: it shows them by itself.
    echoes_own_prompts: bool
    # True: opening a session ends with its state. False: only a replay does.
    always_sends_state: bool

    def create_encoder(self) -> SessionEncoder:
        """Return an encoder for one session."""
        ...

    def wants_replay(self, request: wire.SetupRequest) -> bool:
        """Return whether a `session/resume` request asks for the history.

        Raises RpcError if the position to replay from is not supported.
        """
        ...

    def setup_response(self, session: Session, *, session_id: str | None = None) -> Any:
        """Return the response to a request that opens a session; with an id if it is new."""
        ...

    def load_response(self, session: Session) -> Any:
        """Return the response to `session/load`."""
        ...

    def prompt_response(self, outcome: str, result: Mapping[str, Any], session: Session) -> Any:
        """Return the response to `session/prompt` in a session.

        `outcome` is the id of the message if prompts are answered at their start, otherwise the
        reason why the turn ended. `result` is that of an agent of the same version, or empty.
        """
        ...

    def prompt_error(self, outcome: str, failure: Failed | None) -> RpcError | None:
        """Return the error that answers a prompt which ended in this way, or None."""
        ...

    def set_config_response(self, session: Session) -> Any:
        """Return the response to `session/set_config_option`."""
        ...

    def status_response(self, session: Session, *, attached: bool) -> Any:
        """Return the response to `session/status`."""
        ...

    def permission_request(
        self, session_id: str, body: PermissionAsked, call: ToolCall | None
    ) -> Any:
        """Return the parameters of `session/request_permission`. `call` needs the permission."""
        ...
