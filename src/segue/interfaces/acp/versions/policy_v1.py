"""The policy of protocol version 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from msgspec import UNSET

from segue.acp import v1, wire
from segue.acp.rpc import RpcError
from segue.model.event import Failed, PermissionAsked, ToolCall
from segue.model.session import Session
from segue.model.tools.titles import request_title

from . import options
from .content import encode_tokens, encode_tool_content, locations, permission_options, text_block
from .encode_v1 import EncoderV1, encode_diff
from .forwarding import described_request, forwarded_request, requested_command, turn_error


class PolicyV1:
    """Version 1: the response to a prompt is the end of its turn."""

    version = v1.VERSION
    default_mcp_transport: str | None = "stdio"
    answers_prompt_at_start = False
    echoes_own_prompts = False
    always_sends_state = False

    def __init__(self, capabilities: v1.ClientCapabilities) -> None:
        self._capabilities = capabilities
        self._client_session = capabilities.session

    def create_encoder(self) -> EncoderV1:
        return EncoderV1(self._capabilities)

    def wants_replay(self, request: wire.SetupRequest) -> bool:
        return False

    def setup_response(
        self, session: Session, *, session_id: str | None = None
    ) -> v1.SetupResponse:
        return v1.SetupResponse(
            session_id=UNSET if session_id is None else session_id,
            modes=options.mode_state(session),
            config_options=options.config_v1(session, self._client_session) or UNSET,
        )

    def load_response(self, session: Session) -> v1.SetupResponse:
        return self.setup_response(session)

    def prompt_response(
        self, outcome: str, result: Mapping[str, Any], session: Session
    ) -> v1.PromptResponse | dict[str, Any]:
        if result.get("stopReason") == outcome:
            return dict(result)
        return v1.PromptResponse(stop_reason=stop_reason(outcome), usage=encode_tokens(session))

    def prompt_error(self, outcome: str, failure: Failed | None) -> RpcError | None:
        return turn_error(failure) if outcome == "error" else None

    def set_config_response(self, session: Session) -> v1.SetConfigResponse:
        config = options.config_v1(session, self._client_session)
        return v1.SetConfigResponse(config_options=config)

    def status_response(self, session: Session, *, attached: bool) -> v1.StatusResponse:
        return v1.StatusResponse(status="open" if attached else "saved")

    def permission_request(
        self, session_id: str, body: PermissionAsked, call: ToolCall | None
    ) -> Any:
        if request := forwarded_request(body, self.version):
            return {"sessionId": session_id, **request}
        call_id, title = body.call_id or body.ask_id, request_title(body, call)
        description = [
            wire.ToolContent(content=text_block(text)) for text in described_request(body)
        ]
        fields = v1.ToolCallFields(
            tool_call_id=call_id,
            title=title,
            kind="execute" if requested_command(body) else UNSET,
            content=[*description] or UNSET,
            raw_input=requested_command(body) or UNSET,
        )
        if call is not None:
            fields = v1.ToolCallFields(
                tool_call_id=call_id,
                title=title,
                kind=call.kind,
                status="pending",
                content=[*description, *encode_tool_content(call.content, encode_diff)] or UNSET,
                locations=locations(call) or UNSET,
                raw_input=UNSET if call.input is None else call.input,
            )
        return v1.PermissionRequest(
            session_id=session_id, tool_call=fields, options=permission_options(body)
        )


def stop_reason(reason: str) -> wire.StopReason:
    """Return the stop reason of version 1 that is closest to `reason`."""
    if reason == "budget_reached":
        return "max_turn_requests"
    known: tuple[wire.StopReason, ...] = get_args(wire.StopReason)
    return next((known_reason for known_reason in known if known_reason == reason), "end_turn")
