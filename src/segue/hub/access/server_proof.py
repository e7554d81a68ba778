"""Prove that a server has the secret of a store.

A client sends a random number to the server and compares the answer with the one that it computes
itself. The answer is bound to the server's port, so another program that took over a port cannot
pass on the answer of a server that listens elsewhere.
"""

from __future__ import annotations

import hmac
import re

from segue.store.base import Store

PATH = "/server-proof"
_NONCE = re.compile(r"[0-9a-f]{32}", re.ASCII)
_PURPOSE = b"segue server proof"  # no other use of the store's secret signs this


def new_nonce() -> str:
    """Return a random number in hexadecimal, to be used once."""
    import secrets

    return secrets.token_hex(16)


def is_nonce(text: str) -> bool:
    """Return True if a text has the form of a nonce from `new_nonce`."""
    return _NONCE.fullmatch(text) is not None


async def server_proof(store: Store, nonce: str, port: int) -> str:
    """Return the answer of a server with this store that listens on a port."""
    key = hmac.digest(await store.cursor_key(), _PURPOSE, "sha256")
    return hmac.digest(key, f"{port} {nonce}".encode(), "sha256").hex()
