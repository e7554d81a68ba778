"""The ACP interface: clients of the Agent Client Protocol, versions 1 and 2."""

from .capabilities import AgentProfile
from .serve import serve, serve_acp, serve_stdio
from .served_agent import ServedAgent
from .server import AcpServer

__all__ = ["AcpServer", "AgentProfile", "ServedAgent", "serve", "serve_acp", "serve_stdio"]
