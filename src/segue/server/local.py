"""The REST application without a server, for requests inside of this process."""

from __future__ import annotations

from starlette.types import ASGIApp

from segue.hub import Hub
from segue.interfaces.rest.app import RestApp
from segue.model.principal import Principal


def create_local_app(hub: Hub, principal: Principal | None) -> ASGIApp:
    """Return the REST application, for one principal or for the principals of request keys."""
    return RestApp(hub, principal=principal)
