"""What all requests to the REST API share: the hub, caches, metrics and the shutdown signal."""

from __future__ import annotations

import asyncio

from segue.http.metrics import Metrics, Series, SharedMetrics
from segue.hub import Hub

from .agent_cache import AgentCache
from .events.stream_ack import StreamAcks
from .readiness import WriteProbe
from .schemas.session import SessionEncoder


class RestContext:
    """The state of the REST API that outlives a request. `closing` is set at shutdown."""

    def __init__(
        self, hub: Hub, closing: asyncio.Event, shared_metrics: SharedMetrics | None
    ) -> None:
        self.hub = hub
        self.closing = closing
        self.agents = AgentCache(hub)
        self.session_encoder = SessionEncoder(hub.session_directories)
        self.stream_acks = StreamAcks(hub)
        self.metrics = Metrics()
        self.write_probe = WriteProbe(hub.store)
        self._shared_metrics = shared_metrics

    def total_metrics(self) -> Series:
        """Return the metrics of all processes of this server."""
        own = self.own_metrics()
        return own if self._shared_metrics is None else self._shared_metrics.total(own)

    def own_metrics(self) -> Series:
        """Return the metrics of this process."""
        return self.metrics.series(self.hub.turns.engine.running, self.hub.store.vitals())
