"""Why a server refuses a connection of an agent elsewhere, and what to do."""

from __future__ import annotations

import os

TOKEN_VARIABLE = "SEGUE_ACP_TOKEN"


class RemoteRefusal(OSError):
    """The server answered, and refused the connection with an HTTP status."""

    def __init__(self, status: int, url: str) -> None:
        super().__init__(0, refusal_text(status), url)
        self.status = status


def refusal_text(status: int) -> str:
    """Return what an HTTP status means for a connection, and what to do."""
    if status in (401, 403):
        problem = f"is not a key of the server: HTTP {status}"
        return (
            f"{TOKEN_VARIABLE} {problem}"
            if os.environ.get(TOKEN_VARIABLE)
            else (f"the server needs a key: HTTP {status}; set {TOKEN_VARIABLE}")
        )
    if status in (404, 405):
        return f"the server has no agent at this path: HTTP {status}; that of segue is /acp"
    return f"the server answered HTTP {status}"
