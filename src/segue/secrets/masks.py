"""Replace secrets with masks: the same secret always gets the same mask."""

from __future__ import annotations

import itertools
import re
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from segue.secrets.detector import Secret, find_secrets

MASKED = "[masked]"
_SHOWN_CHARS = 4  # of a secret's end
_MIN_HIDDEN_CHARS = 16  # a shorter secret shows nothing
_SHOWN = re.compile(r"[A-Za-z0-9_+/=.~-]+")
# Fields of transcripts that are random but no secrets: a change would break the transcript.
_ID_FIELDS = frozenset(
    ("signature", "uuid", "parentUuid", "sessionId", "id", "requestId", "tool_use_id", "call_id")
)
# Fields that name the value of their object, as in `{"name": "API_KEY", "value": "…"}`.
_NAME_FIELDS = ("name", "key", "Name", "Key")
_VALUE_FIELDS = ("value", "Value")
_PLAIN_NAME = re.compile(r"[\w .-]{1,80}")
# Yields the values inside a value, gets each masked with its count, and returns the whole so.
_Masking = Generator[Any, Any, tuple[Any, int]]


def mask_of(secret: str, prefix: str = "") -> str:
    """Return the mask of a secret: its public beginning and its last characters."""
    if len(prefix) > 40:  # the first line of a private key
        prefix = prefix[:40]
    hidden = len(secret) - len(prefix)
    end = secret[-_SHOWN_CHARS:] if hidden >= _MIN_HIDDEN_CHARS and "\n" not in secret else ""
    return f"{prefix}…{end if _SHOWN.fullmatch(end) else ''} {MASKED}"


class Masked(NamedTuple):
    """A masked text, and the secrets that it had, with their positions in the original."""

    text: str
    secrets: list[Secret]


def mask(text: str) -> Masked:
    """Return the text with masks instead of secrets, and the secrets."""
    secrets = find_secrets(text)
    return Masked(_replace(text, secrets), secrets)


def mask_text(text: str) -> str:
    """Return the text with masks instead of secrets."""
    return mask(text).text


def _replace(text: str, secrets: Sequence[Secret]) -> str:
    if not secrets:
        return text
    pieces: list[str] = []
    position = 0
    for secret in secrets:
        pieces.append(text[position : secret.start])
        pieces.append(mask_of(text[secret.start : secret.end], secret.prefix))
        position = secret.end
    pieces.append(text[position:])
    return "".join(pieces)


class Replacement(NamedTuple):
    """A part of a text that was replaced, and the length of what replaces it."""

    start: int
    end: int
    length: int


class MaskedSecret(NamedTuple):
    """A secret that was masked: its kind and its mask."""

    kind: str
    mask: str


SecretLog = list[MaskedSecret]  # the functions that mask append to it


class MaskedParts(NamedTuple):
    """The masked texts, the number of secrets in all of them, and what was replaced in each."""

    texts: list[str]
    total: int
    replaced: list[list[Replacement]]


def mask_parts(parts: Sequence[str], log: SecretLog | None = None) -> MaskedParts:
    """Mask texts that follow each other, also the secrets that begin in one and end in another.

    The mask of such a secret is in the text in which it begins. `log` gets the secrets.
    """
    separate = [find_secrets(part) for part in parts]
    whole = "".join(parts)
    starts: list[int] = []
    position = 0
    for part in parts:
        starts.append(position)
        position += len(part)
    spans = [
        secret._replace(start=secret.start + start, end=secret.end + start)
        for start, secrets in zip(starts, separate, strict=True)
        for secret in secrets
    ]
    if len(parts) > 1:
        spans += find_secrets(whole)
    secrets = _join(spans)
    _report(whole, secrets, log)
    return _split(whole, secrets, [*starts, position])


def _report(text: str, secrets: Sequence[Secret], log: SecretLog | None) -> None:
    if log is not None:
        log += [MaskedSecret(s.kind, mask_of(text[s.start : s.end], s.prefix)) for s in secrets]


def _join(secrets: list[Secret]) -> list[Secret]:
    joined: list[Secret] = []
    for secret in sorted(secrets, key=lambda secret: (secret.start, -secret.end)):
        if joined and secret.start < joined[-1].end:
            end = max(joined[-1].end, secret.end)
            joined[-1] = joined[-1]._replace(end=end)
        else:
            joined.append(secret)
    return joined


def _split(whole: str, secrets: list[Secret], bounds: list[int]) -> MaskedParts:
    texts: list[str] = []
    replaced: list[list[Replacement]] = []
    remaining = list(reversed(secrets))
    for start, end in itertools.pairwise(bounds):
        pieces: list[str] = []
        changes: list[Replacement] = []
        position = start
        while remaining and remaining[-1].start < end:
            secret = remaining[-1]
            is_first = secret.start >= start
            mask = mask_of(whole[secret.start : secret.end], secret.prefix) if is_first else ""
            first, last = max(secret.start, start), min(secret.end, end)
            pieces += [whole[position:first], mask]
            changes.append(Replacement(first - start, last - start, len(mask)))
            position = last
            if secret.end > end:
                break
            remaining.pop()
        pieces.append(whole[position:end])
        texts.append("".join(pieces))
        replaced.append(changes)
    return MaskedParts(texts, len(secrets), replaced)


def mask_value(value: Any, log: SecretLog | None = None) -> tuple[Any, int]:
    """Return a JSON value with masks instead of secrets, and how many secrets it had.

    The name of a field counts: `{"password": "…"}` is masked like `password: …`. `log` gets the
    secrets. Values may be nested deeper than Python can call functions.
    """
    outer: list[_Masking] = []
    masking, masked = _begin_masking(value, log)
    while masking is not None:
        try:
            inner = masking.send(masked)
        except StopIteration as end:
            masked = end.value
            masking = outer.pop() if outer else None
        else:
            nested, masked = _begin_masking(inner, log)
            if nested is not None:
                outer.append(masking)
                masking = nested
    whole, count = masked
    return whole, count


def _begin_masking(value: Any, log: SecretLog | None) -> tuple[_Masking | None, Any]:
    """Return the steps that mask a container, or a masked scalar and its number of secrets."""
    match value:
        case str():
            return None, _mask_string(value, log)
        case dict():
            return _mask_fields(value, log), None
        case list() | tuple():
            return _mask_items(value, log), None
    return None, (value, 0)


def _mask_string(value: str, log: SecretLog | None) -> tuple[str, int]:
    masked = mask(value)
    _report(value, masked.secrets, log)
    return (masked.text, len(masked.secrets)) if masked.secrets else (value, 0)


def _mask_fields(fields: dict[Any, Any], log: SecretLog | None) -> _Masking:
    masked: dict[Any, Any] = {}
    count = 0
    for name, value in fields.items():
        key, in_name = _mask_string(name, log) if isinstance(name, str) else (name, 0)
        if name in _ID_FIELDS and isinstance(value, str):
            masked[key], number = value, 0
        elif isinstance(value, str):
            own_name = _name_of(fields) if name in _VALUE_FIELDS else None
            masked[key], number = _mask_named(own_name or str(name), value, log)
        else:
            masked[key], number = yield value
        count += number + in_name
    if count == 0:
        return fields, 0
    return masked, count


def _name_of(fields: dict[Any, Any]) -> str | None:
    """Return the name of an object that has a name and a value."""
    names = (fields.get(name) for name in _NAME_FIELDS)
    return next((name for name in names if isinstance(name, str)), None)


def _mask_named(name: str, value: str, log: SecretLog | None) -> tuple[str, int]:
    """Mask a field's value. A short one is a secret if the name of the field says so."""
    masked, count = _mask_string(value, log)
    if count or not value or len(value) > 400 or not _PLAIN_NAME.fullmatch(name):
        return masked, count
    introduction = f'"{name}": "'
    for secret in find_secrets(f'{introduction}{value}"'):
        start = secret.start - len(introduction)
        if start >= 0:
            end = min(secret.end - len(introduction), len(value))
            named = secret._replace(start=start, end=end)
            _report(value, [named], log)
            return _replace(value, [named]), 1
    return value, 0


def _mask_items(items: list[Any] | tuple[Any, ...], log: SecretLog | None) -> _Masking:
    """Mask the items of a list, and the arguments of a command that follow an option."""
    if items and all(isinstance(item, str) for item in items):
        texts = _mask_arguments([str(item) for item in items], log)
        if texts.total:
            return list(texts.texts), texts.total
        if len(items) == 2:  # such as a header and its value
            value, count = _mask_named(items[0], items[1], log)
            return ([items[0], value], count) if count else (items, 0)
        return items, 0
    masked: list[Any] = []
    count = 0
    for item in items:
        masked_item, number = yield item
        masked.append(masked_item)
        count += number
    return (masked, count) if count else (items, 0)


def _mask_arguments(arguments: list[str], log: SecretLog | None) -> MaskedParts:
    parts: list[str] = []
    for argument in arguments:
        parts += [argument, " "]
    masked = mask_parts(parts[:-1], log)
    return MaskedParts(masked.texts[::2], masked.total, masked.replaced[::2])
