"""Find the passwords and tokens in URLs, in `user:password@host`, and in calls that connect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from segue.secrets.randomness import looks_random
from segue.secrets.values import is_generated_password, is_url_password

# One of these is in each text that has such a password or token.
SIGNS = ("://", "@", "connect")


@cache
def _credentials() -> re.Pattern[str]:
    """Return the pattern of what follows `://` in a URL with credentials."""
    return re.compile(
        r"(?P<user>[^\s/@:\"'`<>\\?#]{0,200})(?::(?P<password>[^\s@\"'`<>]{1,300}))?@(?=[\w\[$.-])"
    )


_USER = re.compile(r"(?<![\w.@:-])[\w.-]{1,40}:(?P<password>[^\s:@/\"'`<>(){}\[\],;]{8,60})\Z")
_HOST = re.compile(
    r"@(?:\d{1,3}(?:\.\d{1,3}){3}|localhost|[\w-]{1,60}(?:\.[\w-]{1,60}){1,5})(?![\w@])"
)
_CONNECTION = re.compile(r"connect[\w.]{0,20}\([^()\n]{0,300}", re.IGNORECASE)
_ARGUMENT = re.compile(r"[\"']([^\s\"']{8,60})[\"']")


def find_in_connections(text: str, lower: str) -> Iterator[tuple[int, int, str]]:
    """Yield passwords in `user:password@host`, and in the arguments of calls that connect."""
    position = text.find("@")
    while position >= 0:
        if _HOST.match(text, position):
            user = _USER.search(text[max(0, position - 110) : position])
            if user and is_generated_password(user["password"]):
                yield position - len(user["password"]), position, "url-password"
        position = text.find("@", position + 1)
    position = lower.find("connect")
    while position >= 0:
        end = position + 1
        if call := _CONNECTION.match(text, position):
            end = call.end()
            for argument in _ARGUMENT.finditer(text, position, end):
                if "." not in argument[1] and is_generated_password(argument[1]):
                    yield *argument.span(1), "password"
        position = lower.find("connect", end)


def find_in_urls(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the passwords and tokens before the host of a URL."""
    position = text.find("://")
    while position >= 0:
        match = _credentials().match(text, position + 3)
        if match:
            user, password = match["user"], match["password"]
            if password is not None and is_url_password(user, password):
                yield *match.span("password"), "url-password"
            elif password is not None and len(user) >= 16 and looks_random(user):
                yield *match.span("user"), "url-token"  # `https://TOKEN:x-oauth-basic@host`
            elif password is None and len(user) >= 16 and looks_random(user):
                yield *match.span("user"), "url-token"
        position = text.find("://", position + 3)
