"""The settings of a server."""

from __future__ import annotations

from pathlib import Path

import msgspec

GRACE_SECONDS = 10.0


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What every process of a server needs to know.

    `hosts` are the host names to serve besides the loopback names. `rate_limit` is how many
    requests a minute each caller may send; 0 is no limit. `max_connections` is how many
    connections a process accepts; 0 is as many as its limit of open files allows. `quotas` are
    limits by name for workspaces that have none of their own. `private_webhooks` says whether
    webhooks may be at addresses of this machine and of private networks. `grace_seconds` is how
    long running requests and turns may take after the server is asked to stop.
    """

    directory: Path
    database_url: str | None = None
    sources: str | None = None
    hosts: tuple[str, ...] = ()
    rate_limit: int = 0
    max_connections: int = 0
    quotas: dict[str, int] = {}
    private_webhooks: bool = False
    log_level: str = "warning"
    grace_seconds: float = GRACE_SECONDS
    lease: int | None = None
