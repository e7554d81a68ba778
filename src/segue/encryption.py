"""Encrypt stored secrets with a key outside the database.

The key is `SEGUE_SECRET_KEY`, or else a file in the data directory that only its owner can read,
created with the first secret. Several hosts on one database need the same variable.
"""

from __future__ import annotations

import base64
import binascii
import os
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from segue.model.errors import InvalidInput, StoreError

VARIABLE = "SEGUE_SECRET_KEY"
FILE = "secret.key"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_EXAMPLE_COMMAND = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"


def _require_cryptography() -> None:
    """Raise StoreError if the package that encrypts is not installed."""
    from importlib.util import find_spec

    if "cryptography" not in sys.modules and find_spec("cryptography") is None:
        from .extras import install_command

        raise StoreError(f"secrets need a package; run: {install_command('secrets')}")


class SecretBox:
    """Encrypt and decrypt secrets. `context` names the object that a secret belongs to; with
    another context it cannot be decrypted."""

    def __init__(self, directory: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._directory = directory
        self._key_variable = environ.get(VARIABLE)
        self._key: bytes | None = None

    def check_variable(self) -> None:
        """Raise InvalidInput if the variable is set to a text that is not a key."""
        if self._key_variable:
            self._from_variable()

    def seal(self, secret: str, *context: str) -> str:
        """Return the encrypted secret. Raises StoreError if cryptography is not installed."""
        _require_cryptography()
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._load(make=True)
        nonce = os.urandom(_NONCE_BYTES)
        data = secret.encode("utf-8", "surrogatepass")
        sealed = AESGCM(key).encrypt(nonce, data, _associated_data(context))
        return f"1.{_key_id(key)}.{_encode(nonce + sealed)}"

    def open(self, sealed: str, *context: str) -> str:
        """Return the decrypted secret. Raises StoreError if the key or the context differs."""
        _require_cryptography()
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._load(make=False)
        version, _, unversioned = sealed.partition(".")
        name, _, text = unversioned.partition(".")
        if version != "1" or name != _key_id(key):
            raise StoreError(f"a secret was encrypted with another key; set {VARIABLE} to that key")
        data = _decode(text)
        try:
            opened = AESGCM(key).decrypt(
                data[:_NONCE_BYTES], data[_NONCE_BYTES:], _associated_data(context)
            )
        except InvalidTag:
            raise StoreError(
                "an encrypted secret was altered, or belongs to another object"
            ) from None
        return opened.decode("utf-8", "surrogatepass")

    def _load(self, *, make: bool) -> bytes:
        if self._key is None:
            self._key = self._from_variable() if self._key_variable else self._from_file(make=make)
        return self._key

    def _from_variable(self) -> bytes:
        try:
            key = _decode(self._key_variable or "")
        except (ValueError, binascii.Error):
            key = b""
        if len(key) != _KEY_BYTES:
            raise InvalidInput(
                f"{VARIABLE}: must be {_KEY_BYTES} bytes in base64url,"
                f" for example from {_EXAMPLE_COMMAND}"
            )
        return key

    def _from_file(self, *, make: bool) -> bytes:
        path = self._directory / FILE
        if make and not path.exists():
            _create_key_file(path)
        try:
            key = _decode(path.read_text("ascii").strip())
        except (OSError, ValueError, binascii.Error) as error:
            raise StoreError(f"cannot read the encryption key {path}: {error}") from None
        if len(key) != _KEY_BYTES:
            raise StoreError(f"the encryption key is damaged: {path}; restore it from a backup")
        return key


def _create_key_file(path: Path) -> None:
    """Create a key file atomically; of two processes that create one, the first wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "w", encoding="ascii") as file:
            file.write(_encode(os.urandom(_KEY_BYTES)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        os.unlink(draft)


def _key_id(key: bytes) -> str:
    """Return a short hash that identifies a key without revealing it."""
    return sha256(b"segue key" + key).hexdigest()[:8]


def _associated_data(context: tuple[str, ...]) -> bytes:
    return "\0".join(context).encode("utf-8", "surrogatepass")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
    return base64.b64decode(padded, altchars=b"-_", validate=True)
