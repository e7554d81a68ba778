"""List the models that a user can choose, and change the configured one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from segue.agents.base.spec import has_provider
from segue.hub.access.config import Config, check_model
from segue.hub.resources.records import Records
from segue.model.principal import Principal
from segue.model.query import Query

if TYPE_CHECKING:
    from segue.hub.sessions.catalog import SessionCatalog

MAX_MODELS = 20
SCANNED_SESSIONS = 200  # the last active ones


class ModelChoices:
    """The models that users can choose for new sessions."""

    def __init__(self, config: Config, records: Records, sessions: SessionCatalog) -> None:
        self._config = config
        self._records = records
        self._sessions = sessions

    async def in_use(self, principal: Principal) -> list[str]:
        """Return the models that are in use, as PROVIDER:NAME.

        The configured one comes first, then those of agents, then those of recent sessions.
        """
        workspace = principal.workspace
        names = _model_name(await self._config.all(workspace))
        for record in await self._records.list(workspace, "agent", limit=MAX_MODELS):
            names |= _model_name(record.body)
        query = Query(limit=SCANNED_SESSIONS)
        recent = await self._sessions.list(principal, query, bind_filters=False)
        for session in recent.sessions:
            names |= _model_name({} if session.agent is None else session.agent.overrides)
        return [*names][:MAX_MODELS]

    async def set(self, principal: Principal, model: str) -> str | None:
        """Change the configured model, and return why it cannot be used yet.

        Raises InvalidInput if it names no provider that exists.
        """
        await asyncio.to_thread(check_model, model)
        await self._config.set(principal.workspace, "model", model)
        return await self.problem(principal)

    async def problem(self, principal: Principal) -> str | None:
        """Return why the configured model cannot be used; None if it can, or if none is set."""
        from segue.agents.model.models import preload

        model = (await self._config.all(principal.workspace)).get("model")
        if model is not None:
            await asyncio.to_thread(preload, model)  # its imports would block other requests
        return await self._config.model_problem(principal.workspace)


def _model_name(settings: Mapping[str, Any]) -> dict[str, None]:
    """Return the model of some settings, if it names its provider."""
    model = settings.get("model")
    if isinstance(model, Mapping):
        model = model.get("id")
    return {model: None} if isinstance(model, str) and has_provider(model) else {}
