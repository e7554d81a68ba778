"""Secrets are encrypted, bound to their record, and unreadable without the key."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from segue.encryption import FILE, VARIABLE, SecretBox
from segue.model.errors import InvalidInput, StoreError

KEY = "mx8vdYpQ0AwbGkDMyq0QeWxJnfFXpGwWkdr4ZJHRBm8"


def test_secret_is_decrypted_only_with_its_own_binding(tmp_path: Path) -> None:
    box = SecretBox(tmp_path, {})
    for secret in ("s3cret", "", "\0\ud800", "x" * 100_000):
        sealed = box.seal(secret, "w", "credential", "1")
        assert SecretBox(tmp_path, {}).open(sealed, "w", "credential", "1") == secret
        assert not secret.strip() or secret not in sealed
        for other_binding in (("v", "credential", "1"), ("w", "credential", "2"), ("w",)):
            with pytest.raises(StoreError):
                box.open(sealed, *other_binding)
    assert box.seal("a") != box.seal("a")


def test_key_file_is_created_once_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: SecretBox(tmp_path / "d", {}).seal("x"), range(32)))
    (path,) = (tmp_path / "d").iterdir()
    assert path.name == FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_variable_takes_precedence_and_no_file_is_written(tmp_path: Path) -> None:
    sealed = SecretBox(tmp_path, {VARIABLE: KEY}).seal("x", "a")
    assert SecretBox(tmp_path / "elsewhere", {VARIABLE: KEY + "="}).open(sealed, "a") == "x"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("invalid_key", ["short", "not base64!", KEY + KEY, "é" * 32])
def test_invalid_key_in_the_variable_is_refused(tmp_path: Path, invalid_key: str) -> None:
    with pytest.raises(InvalidInput, match=VARIABLE):
        SecretBox(tmp_path, {VARIABLE: invalid_key}).seal("x")


def test_errors_distinguish_another_key_from_damage(tmp_path: Path) -> None:
    sealed = SecretBox(tmp_path, {}).seal("x")
    with pytest.raises(StoreError, match="another key"):
        SecretBox(tmp_path, {VARIABLE: KEY}).open(sealed)
    with pytest.raises(StoreError, match="cannot read the encryption key"):
        SecretBox(tmp_path / "none", {}).open(sealed)
    with pytest.raises(StoreError, match="altered"):
        SecretBox(tmp_path, {}).open(sealed[:-4] + "AAAA")
    (tmp_path / FILE).write_text("damaged")
    with pytest.raises(StoreError):
        SecretBox(tmp_path, {}).open(sealed)


def test_a_server_does_not_start_with_a_variable_that_is_no_key(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "segue", "serve", "--port", "0"],
        env={**os.environ, "SEGUE_DATA_DIR": str(tmp_path), VARIABLE: "short"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0 and done.stdout == ""
    assert f"{VARIABLE}: must be 32 bytes in base64url" in done.stderr
    assert "Traceback" not in done.stderr
