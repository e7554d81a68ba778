"""Working with an open session: prompt, cancel, modes and options."""

from __future__ import annotations

from typing import Any

from ...acp import v1, v2, wire
from ...acp.rpc import INVALID_PARAMS, RpcError
from ...model.event import ConfigChanged
from ...model.session import Session
from . import options
from .base import Base, any_id
from .content import read_prompt
from .opened import Opened, stop_reason


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
        await self._set_mode(self._open_one(request.session_id), request.mode_id)
        return wire.Empty()

    async def session_set_config_option(self, request: wire.SetConfigRequest) -> Any:
        opened = self._open_one(request.session_id)
        if request.config_id != options.MODE_OPTION:
            raise RpcError(INVALID_PARAMS, f"no configuration option {request.config_id!r}")
        if not isinstance(request.value, str) or request.type not in (None, "id"):
            raise RpcError(INVALID_PARAMS, "the value of this option is one of its ids")
        session = await self._set_mode(opened, request.value)
        if self._version == 1:
            return v1.SetConfigResponse(config_options=self._configured(session))
        return v2.SetConfigResponse(config_options=self._configured(session))

    async def _set_mode(self, opened: Opened, mode: str) -> Session:
        if mode not in options.MODES:
            known = ", ".join(options.MODES)
            raise RpcError(INVALID_PARAMS, f"no mode {mode!r}; there are {known}")
        change = ConfigChanged(mode=mode)
        session = await self._hub.configure(self._principal, opened.id, change)
        await opened.caught_up()  # so that the update precedes the answer
        return session
