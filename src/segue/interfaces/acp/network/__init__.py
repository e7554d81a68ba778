"""ACP over HTTP with server-sent events, and over WebSocket."""

from .app import AcpApp

__all__ = ["AcpApp"]
