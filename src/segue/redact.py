"""Remove passwords from URLs before a person or a log sees them."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus, urlsplit

_HOST = re.compile(r"(\[[0-9A-Fa-f:.%\w]*\]|[^:\[\]]*)(:[0-9]*)?")


def redact_url(url: str) -> str | None:
    """Return `url` without its password, or None if the end of the password is uncertain.

    The user name stays. Query parameters whose names contain "pass" (`password`, `sslpassword`,
    `passfile`) are dropped. An unquoted `@`, `/`, `?` or `#` in a password can move a part of it
    into the host, path or query; then no part of the URL is safe to show.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if "@" in parts.path + parts.query + parts.fragment:
        return None
    user_info, at, hosts = parts.netloc.rpartition("@")
    if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        return None
    netloc = user_info.partition(":")[0] + at + hosts
    query = "&".join(pair for pair in parts.query.split("&") if not _is_secret(pair))
    return f"{parts.scheme}://{netloc}{parts.path}{'?' if query else ''}{query}"


def _is_secret(pair: str) -> bool:
    name = unquote_plus(pair.partition("=")[0])
    return "pass" in name.lower()
