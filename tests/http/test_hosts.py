"""The check of Host and Origin headers."""

import pytest

from segue.http.errors import Forbidden
from segue.http.hosts import HostCheck, port_of


@pytest.mark.parametrize(
    "headers",
    [
        {b"host": b"localhost"},
        {b"host": b"127.0.0.1:8787"},
        {b"host": b"[::1]:1"},
        {b"host": b"LOCALHOST"},
        {b"host": b"segue.example"},
        {b"host": b"localhost", b"origin": b"https://segue.example:1"},
    ],
)
def test_loopback_names_and_allowed_hosts_are_served(headers: dict[bytes, bytes]) -> None:
    HostCheck(["Segue.Example"]).check(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"host": b"evil.example"},
        {b"host": b"localhost.evil.example"},
        {b"host": b"[oops"},
        {b"host": b"localhost", b"origin": b"http://evil.example"},
        {b"host": b"localhost", b"origin": b"null"},
    ],
)
def test_other_hosts_and_origins_are_refused_with_the_option_that_allows_them(
    headers: dict[bytes, bytes],
) -> None:
    with pytest.raises(Forbidden, match="--allow-host"):
        HostCheck().check(headers)


def test_the_port_of_a_host_header_is_none_if_it_is_missing_or_malformed() -> None:
    assert [port_of(host) for host in ("a:1", "[::1]:2", "a", "a:x", "[oops")] == [
        1,
        2,
        None,
        None,
        None,
    ]
