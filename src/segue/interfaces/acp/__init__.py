"""The ACP door: editors and other clients of the Agent Client Protocol, versions 1 and 2."""

from .capabilities import Offers
from .serve import serve, serve_acp, serve_stdio
from .server import Door, Program

__all__ = ["Door", "Offers", "Program", "serve", "serve_acp", "serve_stdio"]
