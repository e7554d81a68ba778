"""Find secrets by their context: names, headers and sentences that a value follows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from segue.secrets.randomness import has_letter_and_digit, looks_random, ordinary_share
from segue.secrets.values import (
    MAX_VALUE_CHARS,
    count_classes,
    is_generated_password,
    is_header_value,
    is_introduced_password,
    is_named_secret,
    is_placeholder,
)

_MAX_NAME_CHARACTERS = 60  # characters of a name before the word that makes it secret


# Passwords in other languages.
_FOREIGN_WORDS = [
    *[
        "passwort",
        "kennwort",
        "contraseña",
        r"contrase\u00f1a",
        "mot de passe",
        "senha",
        "wachtwoord",
        "hasło",
    ],
    *["пароль", "密码", "密碼", "口令", "パスワード", "비밀번호"],
]
_RARE_WORDS = [*_FOREIGN_WORDS, "login", "creds", "psk="]
_ASCII_RARE_WORDS = [word for word in _RARE_WORDS if word.isascii()]
# Words in names whose values are secret, each with a pattern of its endings, in lower case.
_WORDS = {
    "pass": "(?:w(?:or)?ds?|phrase|code)?",
    "pwd": "",
    "pw": "",
    "secret": "s?",
    "token": "s?",
    "key": "s?",
    "credential": "s?",
    "auth": "(?:orization)?",
    "cookie": "s?",
    "bearer": "",
    "basic": "",
    "sig=": "",
    "signature=": "",
    "api_hash": "",
    "apihash": "",
}
# One of these is in each text in which a word makes a value secret.
SIGNS = (*_WORDS, *_RARE_WORDS)


@cache
def _words() -> re.Pattern[str]:
    """Return the pattern of words in names whose values are secret, in lower case."""
    return re.compile("|".join(word + ending for word, ending in _WORDS.items()))


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
        r"(?P<name>[\w.-]{0,60}+)"
        r"(?:\\*[\"'`\]]){0,3}"
        r"(?:"
        # `"name": "API_KEY", "value": "..."` and `<add key="password" value="..."/>`
        r"(?:\s{1,3}[\w-]{1,20}=\\*[\"'][^\"'\n]{0,60}+[\"']){0,3}"
        r"\s{0,4},?\s{0,8}\\*[\"']?[Vv]alue\\*[\"']?\s{0,4}(?P<pair>[:=])\s{0,4}"
        # `"name": {"type": "string", "value": "..."}`
        r"|\s{0,3}:\s{0,3}\{[^{}]{0,160}?\\*[\"']value\\*[\"']\s{0,3}:\s{0,3}(?=\\*[\"'])"
        # `variable "db_password" { default = "..." }`
        r"|\s{0,3}\{\s{0,10}(?:(?:type|description|sensitive)\b[^\n]{0,100}\n\s{0,10}){0,3}"
        r"default\s{0,10}=\s{0,4}"
        # `process.env.NAME || 'value'`, `os.environ.get("NAME") or "value"`
        r"|\)?[ \t]{0,4}(?:\|\||\?\?|\bor\b)[ \t]{0,4}(?=\\*[\"'`])"
        # `define('NAME', 'value')`, `["--name", "value"]`
        r"|(?<=[\"'])[ \t]{0,4}(?P<comma>,)[ \t]{0,12}(?=\\*[\"'])"
        # `name: str = value`, `name := value`, `name => value`, `name=value`, `name: value`
        r"|[ \t]{0,8}(?::\s{0,3}[\w\[\]|. ]{1,40}?[ \t]{0,4}(?==)|string[ \t]{1,4}(?==))?"
        r"(?P<operator>:=|:-|=>|→|\?=|\|\|=|==?|:{1,2}|->|>|\||：)[*_]{0,2}[ \t]{0,8}"
        r"(?:[|>][-+]?)?"
        r"(?:[ \t]{0,2}\r?\n[+>-]?[ \t]{0,20}(?:\d{1,6}[→\t:|][ \t]{0,20})?(?=\S{8}))?"
        # `--password value`, `password value` in .netrc, `PASSWORD 'value'` in SQL
        r"|(?P<space>[ \t]{1,40})"
        r")"
        r"(?:[bBrRfFuU](?=[\"']))?"
        r"(?P<quote>\\*[\"'`]{1,3})?"
        r"(?P<value>[^\s\"'`<>]{1,400})"
    )


@cache
def _sentence() -> re.Pattern[str]:
    """Return the pattern from a word to the secret that a sentence introduces."""
    return re.compile(
        r"(?P<between>(?: (?!is |was |to |ist |lautet )[\w@'/().-]{1,30}){0,5})[\"'`*]{0,2}"
        r"(?:(?:'s| is now| is| was| are| ?:| to| =| be| ->| →| as| ist| lautet| es| est)[:=]?"
        r"\s{1,3}"
        r"|[是：为は]\s{0,3})"
        r"[\"'`*(]{0,3}"
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
    for rare in _ASCII_RARE_WORDS if lower.isascii() else _RARE_WORDS:
        position = lower.find(rare)
        while position >= 0:
            end = position + len(rare)
            yield from _find_after(text, rare, position, end)
            position = lower.find(rare, end)


def _find_after(text: str, word: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    if word in ("bearer", "basic"):
        yield from _after_scheme(text, end)
        return
    if word in ("login", "credential", "credentials", "creds"):
        if pair := _LOGIN.match(text, end):
            value = pair["value"].rstrip(".,;")
            if is_generated_password(value):
                yield pair.start("value"), pair.start("value") + len(value), "password"
        if word == "login":
            yield from _after_user(text, end)
            return
    if word.startswith("cookie"):
        yield from _after_cookie(text, end)
    if word in ("pass", "pw") and not _is_pass_name(text, start, end):
        return
    is_password = word in _FOREIGN_WORDS or word.startswith(("pass", "pw", "psk"))
    kind = "password" if is_password else "assigned-key"
    match = _assigned().match(text, end - 1 if word[-1] == "=" else end)
    if match and (span := _accepted(text, start, match, word, password=is_password)):
        yield *span, kind
    if is_password:
        yield from _generated_later(text, start, end)
    if word.startswith(("auth", "credential")):
        yield from _after_user(text, end)
    if word.startswith("auth") or "x-" in text[max(0, start - 30) : start].lower():
        yield from _after_header(text, word, end)
    if sentence := _sentence().match(text, end):
        value = sentence["value"].rstrip(".,:;)!?*`'\"\\")
        if is_placeholder(value) or "://" in value:
            return
        introduced = is_password and is_introduced_password(value)
        is_near = not sentence["between"] or sentence["between"].startswith(" for ")
        introduced = introduced and (is_near or count_classes(value) >= 3)
        if introduced or is_generated_password(value):
            yield sentence.start("value"), sentence.start("value") + len(value), "password"


# Names of passwords that end with `pass` without a mark before it: `dbpass`, `requirepass`.
_PASS_NAMES = re.compile(
    r"(?:db|user|smtp|mail|root|admin|ftp|ssh|store|redis|http|require|become|pg|my|client|vpn"
    r"|wifi|mysql|postgres|proxy|ldap)$",
    re.IGNORECASE,
)
_PASS_FIELD = re.compile(r"\\*[\"']?[ \t]{0,3}[:=][ \t]{0,3}\\*[\"'`]")
_PASS_VALUE = re.compile(r"[ \t]*[:=][ \t]{1,4}(?P<value>[^\s\"'`(]{8,100})")
_PASS_LINE = re.compile(r"[ \t]*:[ \t]{1,4}[^\s\"']{6,100}[ \t]*(?:\r?\n|\Z)")


def _is_pass_name(text: str, start: int, end: int) -> bool:
    """Return whether `pass` is the name of a password, and no statement or part of a word."""
    before = text[start - 1 : start]
    if before in ("_", "-") or text[end : end + 1] == "=":
        return True
    if before.isalpha():
        is_part = before.islower() and text[start].isupper()  # `smtpPass`
        return is_part or _PASS_NAMES.search(text, max(0, start - 12), start) is not None
    value = _PASS_VALUE.match(text, end)
    return bool(
        (value and is_generated_password(value["value"]))
        or _PASS_FIELD.match(text, end)
        or _PASS_LINE.match(text, end)
        or text.startswith((" is ", " → "), end)
    )


# `('user', 'password')` after the name of a function or setting.
_USER_PAIR = re.compile(
    r"\w{0,30}\s{0,3}[=:]?\s{0,3}[(\[]\s{0,4}\\*[\"'][^\"'\n]{1,80}\\*[\"'],\s{0,4}\\*[\"']"
    r"(?P<value>[^\s\"'`\\]{6,200})\\*[\"']\s{0,4},?\s{0,4}[)\]]"
)
_LOGIN = re.compile(
    r"(?:[:=]| (?:with|is|are|as|for))[^\n/]{0,40}?[\w@.-]{1,40}[`\"']? ?/ ?[`\"']?"
    r"(?P<value>[^\s\"'`/]{8,60})"
)


# `password = Secret("value")`, `password: env.X ?? "value"`, and a value in an SQL statement.
_CALLED = re.compile(
    r"[\w.-]{0,40}\\*[\"']?[ \t]{0,3}[:=][^\n\"'`]{1,60}(?:\(|=|\bor|\|\||\?\?)[ \t]{0,3}\\*[\"'`]"
    r"(?P<value>[^\s\"'`\[\]\\(){}]{8,100})\\*[\"'`]"
)
_INSERTED = re.compile(
    r"[^()\n]{0,200}\)\s{0,4}VALUES\s{0,4}\((?P<values>[^()\n]{1,400})\)", re.IGNORECASE
)
# A command that names a password, and what it prints.
_PRINTED = re.compile(
    r"[^\n]{0,120}\n[ \t>+]{0,20}[\"'`]?(?P<value>[^\s\"'`()\[\]{};:,<>|=/]{8,100})[\"'`]?"
    r"[ \t]*(?:\r?\n|\Z)"
)
_QUOTED = re.compile(r"\\*'([^\s'\\]{8,100})\\*'")


def _generated_later(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Yield generated passwords that follow the name of one in the same statement."""
    if (called := _CALLED.match(text, end)) and is_generated_password(called["value"]):
        yield *called.span("value"), "password"
    if inserted := _INSERTED.match(text, end):
        for quoted in _QUOTED.finditer(text, *inserted.span("values")):
            if is_generated_password(quoted[1]):
                yield *quoted.span(1), "password"
    if text[start - 1 : start].isalnum():
        return
    if (printed := _PRINTED.match(text, end)) and is_generated_password(printed["value"]):
        yield *printed.span("value"), "password"


def _after_user(text: str, end: int) -> Iterator[tuple[int, int, str]]:
    match = _USER_PAIR.match(text, end)
    if match is None or not has_letter_and_digit(match["value"]):
        return
    if is_named_secret(match["value"], password=True, literal=True):
        yield *match.span("value"), "password"


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
    text: str, position: int, match: re.Match[str], word: str, *, password: bool
) -> tuple[int, int] | None:
    """Return the span of the value that is assigned to a name; None if it is no secret."""
    name, value = match["name"], match["value"]
    start, end = match.span("value")
    quoted = bool(match["quote"])
    if match["space"]:
        is_variable = _is_variable(text, position, match)
        is_named = is_variable and (quoted or _is_declared(text, position))
        is_named = is_named or _is_option(text, position)
        if not is_named and not (password and (quoted or _is_netrc(text, position))):
            is_word = not name and (password or text.startswith("AUTH ", position))
            return _generated_after(match) if is_word else None
        if value.startswith("-"):
            return None
    if match["comma"] and not (_is_argument(text, position) or _is_option(text, position)):
        return None
    if _DESCRIPTIVE.search(name.rstrip("\"'")):
        return None
    is_line = _is_env_line(text, match)
    if quoted:
        if match["quote"].lstrip("\\") in ('""', "''"):
            return None  # an empty text
        end = _closing_quote(text, match["quote"], start) or end
        value = text[start:end]
        if any(character.isspace() for character in value):
            if is_placeholder(value):
                return None  # such as a mask
            if password and _is_app_password(value):
                return start, end
            is_phrase = "phrase" in text[position : match.end("name")].lower()
            is_shell = password and _is_variable(text, position, match) and not match["comma"]
            if is_shell and text[match.end("name") : start - 1] == "=" and len(value) <= 60:
                return start, end
            return (start, end) if is_phrase else None
    else:
        if is_line and password and (app := _APP_PASSWORD.match(text, start)):
            return app.span() if _is_app_password(app[0]) else None
        value = _trim_unquoted(value, _LINE_BREAKS if is_line else _SEPARATORS)
        end = start + len(value)
        is_spaced = text[match.end("name") : match.end("name") + 1] == " "
        if "(" in value and (not is_line or is_spaced):
            return None  # a call
        if text[end : end + 1] in ("(", "["):
            return None  # a call or an index
    if value.endswith("\\"):
        value = value.rstrip("\\")
        end = start + len(value)
    is_setting = not quoted and _is_setting(text, position, match, end)
    literal = quoted or is_line or is_setting or _is_plain(text, position, match)
    if not literal and (password or word == "secret") and _is_written(text, match, value):
        literal = password = True
    certain = literal and not name and _is_certain(text, position, match, word, value)
    if literal and "phrase" in word + name.lower() and re.fullmatch(r"\w+(?:[-_. ]\w+){2,}", value):
        certain = True
    if not is_named_secret(value, password=password, literal=literal, certain=certain):
        return None
    return start, end


_APP_PASSWORD = re.compile(r"[a-z]{4}(?: [a-z]{4}){3}(?![ \w])")


def _is_app_password(value: str) -> bool:
    """Return whether a text is four groups of four random letters, as Google makes them."""
    if not _APP_PASSWORD.fullmatch(value):
        return False
    return ordinary_share(value.replace(" ", "")) < 0.62


def _is_variable(text: str, position: int, match: re.Match[str]) -> bool:
    """Return whether a name is written like a variable of the environment: DB_PASSWORD."""
    name = _LAST_NAME.search(text, max(0, position - _MAX_NAME_CHARACTERS), match.end("name"))
    return name is not None and name[0].isupper() and len(name[0]) >= 5


_LAST_NAME = re.compile(r"[A-Za-z_][\w]*\Z")


def _is_certain(text: str, position: int, match: re.Match[str], word: str, value: str) -> bool:
    """Return whether any value is a secret: in the environment, for `DB_PASSWORD` or `SECRET`."""
    if not _is_variable(text, position, match) or not value.isascii():
        return False
    is_secret = word == "secret" and (len(value) >= 12 or _is_short_key(value))
    if not word.startswith("pass") and not is_secret:
        return False
    if match["operator"] == "=":
        return text[match.end("name") : match.start("value")].strip("\\\"'") == "="
    return match["operator"] == ":" and not match["quote"] and _is_plain(text, position, match)


def _is_short_key(value: str) -> bool:
    """Return whether a value of fewer than 12 characters is generated."""
    return len(value) >= 8 and count_classes(value) >= 2 and ordinary_share(value) < 0.5


def _is_declared(text: str, position: int) -> bool:
    """Return whether a command or statement sets the variable: `ENV NAME value`, `setx NAME …`."""
    return (
        _DECLARATION.search(text, max(0, position - 2 * _MAX_NAME_CHARACTERS), position) is not None
    )


_DECLARATION = re.compile(r"\b(?:ENV|ARG|setx|set[ \t]+-[a-zA-Z-]+)[ \t]+[A-Z0-9_]*\Z")


def _generated_after(match: re.Match[str]) -> tuple[int, int] | None:
    """Return the span of a generated password that follows the word, as in `password Zx9-qq71`."""
    value = match["value"].rstrip(_CLOSING_MARKS)
    start = match.start("value")
    if "(" in value or not is_generated_password(value):
        return None
    return start, start + len(value)


def _is_argument(text: str, position: int) -> bool:
    """Return whether a quoted name is the first argument of a call: `define('AUTH_KEY', …)`."""
    return _CALL.search(text, max(0, position - _MAX_NAME_CHARACTERS), position) is not None


_CALL = re.compile(r"\w\([ \t]{0,4}\\*[\"'][\w.-]*\Z")
_SECTION = re.compile(r"(?:^|\n)[ \t+>-]*\[[\w .:\"/@-]{1,80}\][ \t]*\r?\n")


def _is_setting(text: str, position: int, match: re.Match[str], end: int) -> bool:
    """Return whether an unquoted value is a whole line of a settings file, or stands in XML."""
    operator = match["operator"]
    while text[end : end + 1] in (".", ")", "]", "}", "!", "?"):
        end += 1
    if operator == ">":
        return text.startswith("</", end)
    if operator == "|":
        return _CELL_END.match(text, end) is not None
    if operator != "=":
        return False
    value = text[match.start("value") : end]
    if _PAIR_AFTER.match(text, end) or _PAIR_BEFORE.search(text, max(0, position - 80), position):
        return True  # `user=app password=… sslmode=require`
    if text[end : end + 1] not in ("", "\n", "\r", "\\"):
        return False
    line_start = _line_start(text, position, 3 * _MAX_NAME_CHARACTERS)
    name = _LINE_MARK.sub("", text[line_start:position]) + text[position : match.end("name")]
    if not re.fullmatch(r"%?[\w.-]+", name) or name.startswith(("self.", "this.")):
        return False
    if text[match.end("name") : match.start("value")] == "=":
        is_word = value.replace(".", "_").isidentifier() and ordinary_share(value) >= 0.6
        if "." in name or "-" in name or not is_word:
            return True
    before = max(0, line_start - 4000)
    has_bracket = text.rfind("[", before, line_start) >= 0  # a quick check before the search
    return has_bracket and _SECTION.search(text, before, line_start) is not None


def _line_start(text: str, position: int, reach: int) -> int:
    """Return where the line of a position begins, at most `reach` characters before it."""
    start = max(0, position - reach)
    return max(start, text.rfind("\n", start, position) + 1)


_CELL_END = re.compile(r"\\*[`*]{0,2}[ \t]{0,40}\|")
_PAIR_AFTER = re.compile(r"[ \t]\w+=[^=\s,()]+(?:[\s\"'\\]|\Z)")
_PAIR_BEFORE = re.compile(r"(?:^|[\s\"'])\w+=[^=\s,()]+[ \t]\w*\Z")
# What a line may begin with: its number, a mark of a diff, the name of its file, a command.
_LINE_MARK = re.compile(
    r"^(?:[^\s:=]*:\d+[:-])?[+>\s-]*(?:\d{1,6}[→\t:|-]\s*)?(?:export |ENV |ARG |set |declare -x )?"
)


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
    if match["space"] or match["operator"] == ":-":
        return True
    start = _line_start(text, position, _MAX_NAME_CHARACTERS)
    line = _LINE_MARK.sub("", text[start:position])
    name = line.rsplit(" ", 1)[-1] + text[position : match.end("name")]
    if match["operator"] in ("=", "?=", ":="):
        word = text[start:position].rsplit(" ", 1)[-1]
        is_variable = _VARIABLE.search(name) is not None
        is_option = _SETTING_OPTION.search(line) is not None
        return is_variable or is_option or any(mark in word for mark in ("--", "?", "&", ";"))
    if match["operator"] == ":":
        end = match.end("value")
        is_line = re.fullmatch(r"[\w.-]*", line) is not None
        return text.startswith("\\", end) or (is_line and _LINE_END.match(text, end) is not None)
    return False


def _is_written(text: str, match: re.Match[str], value: str) -> bool:
    """Return whether `password=…` or `password:…` gives a password in a text, and is no code."""
    joint = text[match.end("name") : match.start("value")]
    if match["name"] or joint not in ("=", ":") or not has_letter_and_digit(value):
        return False
    is_expression = _EXPRESSION.search(value) and not is_generated_password(value, 0.45)
    if is_expression or value[0] in "[({":  # such as a regular expression
        return False
    if ordinary_share(value) < 0.6 and not ("_" in value and value.islower()):
        return True
    # A password of words looks like a variable; only the words before it tell them apart.
    before = text[max(0, match.start() - _MAX_NAME_CHARACTERS) : match.start()]
    return not value.isupper() and _SENTENCE.search(before) is not None


_EXPRESSION = re.compile(
    r"[][(){}]|\A[A-Za-z_$][\w$]*(?:\.|->|::|\?|[|&+*/,=])[A-Za-z_$]"  # an attribute, operators
)
_SENTENCE = re.compile(
    r"(?:\A|[ \t\n])(?!(?:let|var|const|if|and|or|not|return|else|elif|my|local|final|in)[ \t])"
    r"[a-z]{1,20}:?[ \t]+\w*\Z"
)

# Options that take a setting: `helm --set auth.password=…`, `terraform -var password=…`.
_SETTING_OPTION = re.compile(
    r"(?:^|\s)(?:-D|-{1,2}(?:set(?:-string)?|var|env|build-arg|data(?:-\w+)?|form(?:-string)?|[edoFX])"
    r"[ =])\\*[\"']?[\w.,=@&-]*\Z"
)
# The name of a variable of the environment: in a shell, or as an item of a list.
_VARIABLE = re.compile(r"(?<![\w.-])[A-Z][A-Z0-9_]*\Z")
_LINE_END = re.compile(r" *(?:[\r\n]|\Z)")
_LINE_BREAKS = re.compile(r"\\[nr]")
_SEPARATORS = re.compile(r"&(?=[\w%.\[\]-]{1,40}=|amp;)|;|\\[nr]|\x00|\\+u0000")
_CLOSING_MARKS = ".,:)]}!?\\"


def _is_env_line(text: str, match: re.Match[str]) -> bool:
    """Return whether a line is one setting: NAME=value."""
    line = text[max(0, match.start() - _MAX_NAME_CHARACTERS) : match.end("name")]
    name = _LINE_MARK.sub("", re.split(r"\n|\\n", line)[-1])
    ends_line = text[match.end() : match.end() + 1] in ("", "\n", "\r", '"', "\\")
    return match["operator"] == "=" and ends_line and name.isidentifier() and name.isupper()


def _trim_unquoted(value: str, separators: re.Pattern[str]) -> str:
    """Return an unquoted value without what follows it: parameters, closing marks, full stops."""
    return separators.split(value, maxsplit=1)[0].rstrip(_CLOSING_MARKS)
