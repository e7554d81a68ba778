"""Sign requests as the Standard Webhooks specification describes, which official clients verify."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    """Return a new secret, in the form in which clients accept it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed_headers(
    signing_secrets: Iterable[str], message_id: str, seconds: int, body: bytes
) -> dict[str, str]:
    """Return the headers of a request at a time, with one signature for each secret."""
    content = f"{message_id}.{seconds}.".encode() + body
    signatures = []
    for secret in signing_secrets:
        key = base64.b64decode(secret.removeprefix(PREFIX))
        digest = hmac.new(key, content, hashlib.sha256).digest()
        signatures.append(f"v1,{base64.b64encode(digest).decode()}")
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(signatures),
    }
