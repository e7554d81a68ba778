"""Working with an open session: prompt, cancel, modes and options."""

from __future__ import annotations

from typing import Any

from segue.acp import v1, v2, wire
from segue.acp.rpc import INVALID_PARAMS, RpcError
from segue.interfaces.acp.attached_session import Opened, stop_reason
from segue.interfaces.acp.base import Base, any_id
from segue.interfaces.acp.versions import options
from segue.interfaces.acp.versions.content import read_prompt
from segue.model.event import ConfigChanged
from segue.model.session import Session


class Talking(Base):
    """What a client may do with sessions that are open on its connection."""

    async def session_prompt(self, request: wire.PromptRequest) -> Any:
        opened = self._open_one(request.session_id)
        outcome = await opened.prompt(read_prompt(request.prompt))
        if self._version == 2:
            return v2.PromptResponse(message_id=outcome)
        return v1.PromptResponse(stop_reason=stop_reason(outcome))

    async def cancel(self, request: wire.SessionRequest) -> None:
        """The one thing that a client says without waiting for an answer."""
        if opened := self._opened.get(any_id(request.session_id)):
            await opened.cancel()

    async def session_set_mode(self, request: wire.SetModeRequest) -> wire.Empty:
        opened = self._open_one(request.session_id)
        session = await self._hub.sessions.get(self._principal, opened.id)
        await self._choose(opened, session, options.mode_option(session), request.mode_id)
        return wire.Empty()

    async def session_set_config_option(self, request: wire.SetConfigRequest) -> Any:
        opened = self._open_one(request.session_id)
        session = await self._hub.sessions.get(self._principal, opened.id)
        option = options.find(session, request.config_id)
        if option is None:
            raise RpcError(INVALID_PARAMS, f"no configuration option {request.config_id!r}")
        kind = "boolean" if options.is_switch(option) else "id"
        if isinstance(request.value, bool) != (kind == "boolean"):
            wanted = "true or false" if kind == "boolean" else "one of its ids"
            raise RpcError(INVALID_PARAMS, f"the value of this option is {wanted}")
        if request.type not in (None, kind):
            raise RpcError(INVALID_PARAMS, f"this option is of type {kind!r}")
        session = await self._choose(opened, session, option, request.value)
        if self._version == 1:
            return v1.SetConfigResponse(config_options=self._configured(session))
        return v2.SetConfigResponse(config_options=self._configured(session))

    async def _choose(
        self, opened: Opened, session: Session, option: dict[str, Any], value: str | bool
    ) -> Session:
        known = [each["value"] for each in option["choices"]]
        if isinstance(value, str) and value not in known:
            why = f"no {option['name'].lower()} {value!r}; there are {', '.join(known)}"
            raise RpcError(INVALID_PARAMS, why)
        if options.is_offered(session, option["id"]):
            agent = self._program.agent if self._program else None
            change = await self._hub.agents.set_option(
                session, option["id"], value, agent, opened.tools
            )
        else:
            change = ConfigChanged(mode=str(value))  # the one option that is ours
        session = await self._hub.editor.configure(self._principal, opened.id, change)
        await opened.caught_up()  # so that the update precedes the answer
        return session
