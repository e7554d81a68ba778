"""The ACP door: editors and other clients of the Agent Client Protocol, versions 1 and 2."""

from .capabilities import Offers
from .door import Door
from .serve import serve, serve_acp, serve_stdio

__all__ = ["Door", "Offers", "serve", "serve_acp", "serve_stdio"]
