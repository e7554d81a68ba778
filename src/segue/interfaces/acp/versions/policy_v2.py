"""The policy of protocol version 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from segue.acp import v2, wire
from segue.acp.rpc import INVALID_PARAMS, REQUEST_CANCELLED, RpcError
from segue.model.event import Failed, PermissionAsked, ToolCall
from segue.model.session import Session
from segue.model.tools.titles import call_title, request_title

from . import options
from .content import encode_tool_content, locations, permission_options
from .encode_v2 import EncoderV2, encode_diff, state_of
from .forwarding import forwarded_request


class PolicyV2:
    """Version 2: the response to a prompt is the id of its message; updates report the turn."""

    version = v2.VERSION
    default_mcp_transport: str | None = None
    answers_prompt_at_start = True
    echoes_own_prompts = True
    always_sends_state = True

    def create_encoder(self) -> EncoderV2:
        return EncoderV2()

    def wants_replay(self, request: wire.SetupRequest) -> bool:
        start = request.replay_from
        if start is None:
            return False
        if not (isinstance(start, dict) and start.get("type") == "start"):
            raise RpcError(INVALID_PARAMS, "replayFrom must be of type 'start'")
        return True

    def setup_response(
        self, session: Session, *, session_id: str | None = None
    ) -> v2.SetupResponse:
        return v2.SetupResponse(
            session_id=UNSET if session_id is None else session_id,
            config_options=options.config_v2(session) or UNSET,
            available_commands=options.commands_v2(session) or UNSET,
        )

    def load_response(self, session: Session) -> None:
        # Only an earlier draft of version 2 has this method, and it answered with null.
        return None

    def prompt_response(
        self, outcome: str, result: Mapping[str, Any], session: Session
    ) -> v2.PromptResponse:
        return v2.PromptResponse(message_id=outcome)

    def prompt_error(self, outcome: str, failure: Failed | None) -> RpcError | None:
        if outcome != "cancelled":
            return None
        return RpcError(REQUEST_CANCELLED, "the prompt was withdrawn")

    def set_config_response(self, session: Session) -> v2.SetConfigResponse:
        return v2.SetConfigResponse(config_options=options.config_v2(session))

    def status_response(self, session: Session, *, attached: bool) -> v2.StatusResponse:
        state = {"state": state_of(session)}
        return v2.StatusResponse(status="open" if attached else "saved", state=state)

    def permission_request(
        self, session_id: str, body: PermissionAsked, call: ToolCall | None
    ) -> Any:
        if request := forwarded_request(body, self.version):
            return {"sessionId": session_id, **request}
        choices, title = permission_options(body), request_title(body, call)
        if call is None:
            return v2.PermissionRequest(session_id=session_id, title=title, options=choices)
        subject = v2.ToolCallSubject(
            tool_call=v2.ToolCallFields(
                tool_call_id=body.call_id or body.ask_id,
                title=call_title(call),
                kind=call.kind,
                content=encode_tool_content(call.content, encode_diff) or UNSET,
                locations=locations(call) or UNSET,
                raw_input=UNSET if call.input is None else call.input,
            )
        )
        return v2.PermissionRequest(
            session_id=session_id, title=title, options=choices, subject=subject
        )
