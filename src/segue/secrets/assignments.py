"""Find secrets by their context: names, headers, URLs and sentences that a value follows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from segue.secrets.randomness import has_letter_and_digit, looks_random
from segue.secrets.values import (
    MAX_VALUE_CHARS,
    is_generated_password,
    is_header_value,
    is_named_secret,
    is_placeholder,
    is_url_password,
)

_MAX_NAME_CHARACTERS = 60  # characters of a name before the word that makes it secret


@cache
def _words() -> re.Pattern[str]:
    """Return the pattern of words in names whose values are secret, in lower case."""
    return re.compile(
        r"pass(?:w(?:or)?ds?|phrase|code)?|pwd|secrets?|tokens?|keys?|credentials?"
        r"|auth(?:orization)?|cookies?|bearer|basic|sig(?:nature)?="
    )


# Names that end like this describe a secret and have none: `token_type`, `password_field`.
_DESCRIPTIVE = re.compile(
    r"(?:name|type|kind|field|file|path|dir|url|uri|endpoint|host|id|ids|env|var|variable|length"
    r"|size|len|count|index|prefix|suffix|regex|pattern|header|label|hint|help|format|class|cls"
    r"|func|function|method|policy|policies|expires?|expiry|ttl|at|time|limit|max|min|version"
    r"|algorithm|alg|encoding|provider|backend|store|manager|service|scope|status|state|error"
    r"|message|description|usage|usages|author|authors|izer|izers|ize|ized|ization|key_id"
    r"|keyid|public|column|attribute|attr|selector|ref|reference|arn|mode|level|style)$",
    re.IGNORECASE,
)


@cache
def _assigned() -> re.Pattern[str]:
    """Return the pattern from the word of a name to its value.

    Groups: the rest of the name, the operator, the opening quote and the value.
    """
    return re.compile(
        r"(?P<name>[\w.-]{0,60})"
        r"(?:\\*[\"'`\]]){0,3}"
        r"(?:"
        # `"name": "API_KEY", "value": "..."` and `<add key="password" value="..."/>`
        r"\s{0,4},?\s{0,8}\\*[\"']?[Vv]alue\\*[\"']?\s{0,4}(?P<pair>[:=])\s{0,4}"
        # `name: str = value`, `name := value`, `name => value`, `name=value`, `name: value`
        r"|[ \t]{0,8}(?::\s{0,3}[\w\[\]|. ]{1,40}?[ \t]{0,4}(?==))?"
        r"(?P<operator>:=|=>|\?=|\|\|=|==?|:{1,2}|->|>)[ \t]{0,8}"
        r"(?:[|>][-+]?)?(?:\n[ \t]{0,20}(?=\S{8}))?"
        # `--password value`, `password value` in .netrc, `PASSWORD 'value'` in SQL
        r"|(?P<space>[ \t]{1,4})"
        r")"
        r"(?:[bBrRfFuU](?=[\"']))?"
        r"(?P<quote>\\*[\"'`]{1,3})?"
        r"(?P<value>[^\s\"'`<>]{1,400})"
    )


@cache
def _sentence() -> re.Pattern[str]:
    """Return the pattern from a word to the secret that a sentence introduces."""
    return re.compile(
        r"(?: (?!is |was |to )[\w@'/().-]{1,30}){0,5}[\"'`*]{0,2}"
        r"(?: is now| is| was| are|:| to| =| be| ->| as)[:=]?\s{1,3}[\"'`*(]{0,3}"
        r"(?P<value>[^\s\"'`]{6,200})",
        re.IGNORECASE,
    )


@cache
def _header() -> re.Pattern[str]:
    """Return the pattern from a word in the name of a header to its value."""
    return re.compile(
        r"[a-z-]{0,10}(?:\\*[\"'])?\s{0,3}[:=,]\s{0,3}(?:\\*[\"'])?"
        r"(?:(?P<scheme>[a-z-]{2,20})\s{1,3}|aws4[^\n]{0,300}signature=)?"
        r"(?P<value>[^\s\"'`,;<>\\]{6,4000})",
        re.IGNORECASE,
    )


_AFTER_SCHEME = re.compile(r"\s{1,3}(?P<value>[A-Za-z0-9_.~+/=:-]{12,4000})")
_COOKIES = re.compile(r"(?:\\*[\"'])?\s{0,3}[:=]\s{0,3}(?P<pairs>[^\n\r\"'`]{4,4000})")
_COOKIE_PAIR = re.compile(r"(?<![\w.-])([\w.-]{1,80})=([^;\s\\]{12,2000})")
_SCHEMES = frozenset(
    [
        "bearer",
        "basic",
        "token",
        "bot",
        "apikey",
        "api-key",
        "key",
        "digest",
        "negotiate",
        "oauth",
        "splunk",
        "geniekey",
    ]
)


def find_by_words(text: str, lower: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and kind of values that a word before them makes secret."""
    for word in _words().finditer(lower):
        start, end = word.span()
        yield from _find_after(text, word[0], start, end)


def _find_after(text: str, word: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    if word in ("bearer", "basic"):
        yield from _after_scheme(text, end)
        return
    if word.startswith("cookie"):
        yield from _after_cookie(text, end)
    if word == "pass" and text[start - 1 : start] not in ("_", "-") and text[end : end + 1] != "=":
        return
    is_password = word.startswith(("pass", "pwd"))
    kind = "password" if is_password else "assigned-key"
    match = _assigned().match(text, end - 1 if word[-1] == "=" else end)
    if match and (span := _accepted(text, start, match, password=is_password)):
        yield *span, kind
    if word.startswith("auth") or "x-" in text[max(0, start - 30) : start].lower():
        yield from _after_header(text, word, end)
    if sentence := _sentence().match(text, end):
        value = sentence["value"].rstrip(".,:;)!?*`'\"\\")
        if not is_placeholder(value) and "://" not in value and is_generated_password(value):
            yield sentence.start("value"), sentence.start("value") + len(value), "password"


def _after_scheme(text: str, end: int) -> Iterator[tuple[int, int, str]]:
    match = _AFTER_SCHEME.match(text, end)
    if match is None:
        return
    value = match["value"].rstrip(".:")
    if len(value) < 16 and not value.endswith("="):
        return
    if has_letter_and_digit(value) and looks_random(value, 0.55):
        yield match.start("value"), match.start("value") + len(value), "authorization"


def _after_header(text: str, word: str, end: int) -> Iterator[tuple[int, int, str]]:
    match = _header().match(text, end)
    if match is None:
        return
    value, scheme = match["value"], (match["scheme"] or "").lower()
    known = scheme in _SCHEMES and word == "authorization"
    if (known or looks_random(value)) and is_header_value(value):
        yield *match.span("value"), "authorization"


def _after_cookie(text: str, end: int) -> Iterator[tuple[int, int, str]]:
    match = _COOKIES.match(text, end)
    if match is None:
        return
    for pair in _COOKIE_PAIR.finditer(text, *match.span("pairs")):
        if looks_random(pair[2]) and not is_placeholder(pair[2]):
            yield *pair.span(2), "cookie"


def _accepted(
    text: str, position: int, match: re.Match[str], *, password: bool
) -> tuple[int, int] | None:
    """Return the span of the value that is assigned to a name; None if it is no secret."""
    name, value = match["name"], match["value"]
    start, end = match.span("value")
    quoted = bool(match["quote"])
    if match["space"]:
        is_option = _is_option(text, position)
        if not is_option and not (password and (quoted or _is_netrc(text, position))):
            return None
        if value.startswith("-"):
            return None
    if _DESCRIPTIVE.search(name.rstrip("\"'")):
        return None
    if quoted:
        if match["quote"].lstrip("\\") in ('""', "''"):
            return None  # an empty text
        end = _closing_quote(text, match["quote"], start) or end
        value = text[start:end]
        if any(character.isspace() for character in value):
            return (start, end) if "phrase" in text[position : match.end("name")].lower() else None
    else:
        is_line = _is_env_line(text, match)
        value = _trim_unquoted(value, _LINE_BREAKS if is_line else _SEPARATORS)
        end = start + len(value)
        if (not is_line and "(" in value) or text[end : end + 1] in ("(", "["):
            return None  # a call or an index
    if value.endswith("\\"):
        value = value.rstrip("\\")
        end = start + len(value)
    literal = quoted or _is_env_line(text, match) or _is_plain(text, position, match)
    return (start, end) if is_named_secret(value, password=password, literal=literal) else None


def _closing_quote(text: str, quote: str, start: int) -> int | None:
    """Return where a quoted value on one line ends; None if the quote is not closed."""
    limit = min(start + MAX_VALUE_CHARS, len(text))
    line_end = text.find("\n", start, limit)
    end = text.find(quote, start, limit if line_end < 0 else line_end)
    while end > 0 and text[end - 1] == "\\" and quote[0] != "\\":
        end = text.find(quote, end + 1, limit if line_end < 0 else line_end)
    return end if end > start else None


def _is_option(text: str, position: int) -> bool:
    """Return whether the name is a long option of a command: `--db-password`."""
    return "--" in text[max(0, position - _MAX_NAME_CHARACTERS) : position + 1].rsplit(" ", 1)[-1]


def _is_netrc(text: str, position: int) -> bool:
    return "login " in text[max(0, position - 120) : position]


def _is_plain(text: str, position: int, match: re.Match[str]) -> bool:
    """Return whether an unquoted value is text and no code: in settings, YAML, URLs, options."""
    if match["space"]:
        return True
    start = max(text.rfind("\n", 0, position) + 1, position - _MAX_NAME_CHARACTERS)
    line = text[start:position].lstrip("+- \t>|")
    name = line.rsplit(" ", 1)[-1] + text[position : match.end("name")]
    if match["operator"] == "=":
        is_variable = name.upper() == name and name[:1].isalpha()
        return is_variable or any(mark in name for mark in ("--", "?", "&", ";"))
    if match["operator"] == ":":
        following = text[match.end("value") : match.end("value") + 1]
        return following == "\\" or (not line.strip() and following in ("", "\n", "\r"))
    return False


_LINE_BREAKS = ("\\n", "\\r")
_SEPARATORS = ("&", ";", *_LINE_BREAKS)


def _is_env_line(text: str, match: re.Match[str]) -> bool:
    """Return whether a line is one setting: NAME=value."""
    line = text[max(0, match.start() - _MAX_NAME_CHARACTERS) : match.end("name")]
    name = re.split(r"\n|\\n", line)[-1].lstrip("+- ").removeprefix("export ")
    ends_line = text[match.end() : match.end() + 1] in ("", "\n", "\r", '"', "\\")
    return match["operator"] == "=" and ends_line and name.isidentifier() and name.isupper()


def _trim_unquoted(value: str, separators: tuple[str, ...]) -> str:
    """Return an unquoted value without what follows it: parameters, closing marks, full stops."""
    for separator in separators:
        value = value.split(separator, 1)[0]
    return value.rstrip(".,:)]}!?\\")


@cache
def _credentials() -> re.Pattern[str]:
    """Return the pattern of what follows `://` in a URL with credentials."""
    return re.compile(
        r"(?P<user>[^\s/@:\"'`<>\\?#]{0,200})(?::(?P<password>[^\s@\"'`<>]{1,300}))?@(?=[\w\[$.-])"
    )


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
