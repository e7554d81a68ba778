"""Remove passwords from URLs."""

import pytest

from segue.redact import redact_url


@pytest.mark.parametrize(
    ("url", "redacted"),
    [
        ("postgresql://me:secret@db.example:5433/app", "postgresql://me@db.example:5433/app"),
        ("postgresql://me:sec@ret@db.example/app", "postgresql://me@db.example/app"),
        ("postgresql://me:se%40cret@[::1]:5/app", "postgresql://me@[::1]:5/app"),
        ("postgresql://me@host/app?password=secret", "postgresql://me@host/app"),
        ("postgresql://me@host/app?p%61ssword=secret&a=b", "postgresql://me@host/app?a=b"),
        ("postgresql:///app?host=/run&password=secret", "postgresql:///app?host=/run"),
        ("postgresql://h/d?sslpassword=secret&a=b", "postgresql://h/d?a=b"),
        ("postgresql://me:secret@h1:1,h2:2/app", "postgresql://me@h1:1,h2:2/app"),
        ("postgresql://host/app", "postgresql://host/app"),
    ],
)
def test_redacted_url_keeps_everything_but_the_password(url: str, redacted: str) -> None:
    assert redact_url(url) == redacted


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:sec/ret@host/app",
        "postgresql://me:sec?ret@host/app",
        "postgresql://me:sec#ret@host/app",
        "postgresql://me@host/app?password=sec@ret",
        "postgresql://me:secret/app",
        "postgresql://me:secret@host:port/app",
        "postgresql://[oops/app",
    ],
)
def test_url_whose_password_cannot_be_delimited_is_not_shown(url: str) -> None:
    assert redact_url(url) is None
