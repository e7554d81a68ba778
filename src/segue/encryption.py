"""Secrets at rest: sealed with a key that is kept outside the database.

The key is `SEGUE_SECRET_KEY`, or else a file in the data directory that only its owner can read,
made when the first secret comes. Several hosts on one database need the variable, the same on all.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from segue.model.errors import InvalidInput, StoreError

VARIABLE = "SEGUE_SECRET_KEY"
FILE = "secret.key"
_BYTES = 32
_NONCE = 12


class SecretBox:
    """Seals and opens. `about` names what a secret belongs to; under another name it won't open."""

    def __init__(self, directory: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._directory = directory
        self._given = environ.get(VARIABLE)
        self._key: bytes | None = None

    def seal(self, secret: str, *about: str) -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._load(make=True)
        nonce = os.urandom(_NONCE)
        data = secret.encode("utf-8", "surrogatepass")
        sealed = AESGCM(key).encrypt(nonce, data, _bound(about))
        return f"1.{_name(key)}.{_spell(nonce + sealed)}"

    def open(self, sealed: str, *about: str) -> str:
        """What was sealed; StoreError without the key that it was sealed with."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._load(make=False)
        version, _, rest = sealed.partition(".")
        name, _, text = rest.partition(".")
        if version != "1" or name != _name(key):
            raise StoreError(f"a secret was sealed with another key; see {VARIABLE}")
        data = _read(text)
        try:
            opened = AESGCM(key).decrypt(data[:_NONCE], data[_NONCE:], _bound(about))
        except InvalidTag:
            raise StoreError("a sealed secret was altered, or belongs to something else") from None
        return opened.decode("utf-8", "surrogatepass")

    def _load(self, *, make: bool) -> bytes:
        if self._key is None:
            self._key = self._from_variable() if self._given else self._from_file(make)
        return self._key

    def _from_variable(self) -> bytes:
        try:
            key = _read(self._given or "")
        except (ValueError, binascii.Error):
            key = b""
        if len(key) != _BYTES:
            raise InvalidInput(f"{VARIABLE}: must be {_BYTES} bytes in base64url, as {_try()} says")
        return key

    def _from_file(self, make: bool) -> bytes:
        path = self._directory / FILE
        if make and not path.exists():
            _make(path)
        try:
            key = _read(path.read_text("ascii").strip())
        except (OSError, ValueError, binascii.Error) as error:
            raise StoreError(f"the key of the secrets cannot be read: {path}: {error}") from None
        if len(key) != _BYTES:
            raise StoreError(f"the key of the secrets is damaged: {path}")
        return key


def _make(path: Path) -> None:
    """A new key in a file that appears whole; of two processes that make one, the first wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "w", encoding="ascii") as file:
            file.write(_spell(os.urandom(_BYTES)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        os.unlink(draft)


def _name(key: bytes) -> str:
    """Tells keys apart, and nothing about them."""
    return sha256(b"segue key" + key).hexdigest()[:8]


def _bound(about: tuple[str, ...]) -> bytes:
    return "\0".join(about).encode("utf-8", "surrogatepass")


def _spell(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _read(text: str) -> bytes:
    padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
    return base64.b64decode(padded, altchars=b"-_", validate=True)


def _try() -> str:
    return "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
