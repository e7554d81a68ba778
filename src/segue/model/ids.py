"""Ids: UUIDs, which each protocol formats in its own way; every format is parsed.

Internally, an id is the canonical lower-case UUID string. REST writes `sesn_01` and 22 base58
characters of the same 128 bits, so no lookup table is needed in either direction.
"""

from __future__ import annotations

import os
import re
import threading
import time
import uuid

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_VALUES = {char: value for value, char in enumerate(_ALPHABET)}
_PREFIXED = re.compile(r"([a-z]+)_01([1-9A-HJ-NP-Za-km-z]{22})", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}", re.ASCII)
_BASE58 = re.compile(r"[1-9A-HJ-NP-Za-km-z]{1,22}", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{1,32}", re.ASCII)
_NAMESPACE = uuid.UUID("5e90e5e9-0000-5000-8000-5e5510000001")

_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """Return a UUIDv7 that is greater than the previous one of this process, even if the clock
    goes back."""
    global _last
    # 48 bits of milliseconds, then 12 of sub-millisecond time: a 60-bit tick that only goes up.
    tick = (time.time_ns() * 4096) // 1_000_000
    with _lock:
        _last = tick = max(tick, _last + 1)
    return _v7(tick, int.from_bytes(os.urandom(8)))


def _v7(tick: int, noise: int) -> str:
    bits = (tick >> 12) << 80 | 0x7 << 76 | (tick & 0xFFF) << 64
    bits |= 0b10 << 62 | (noise & 0x3FFF_FFFF_FFFF_FFFF)
    return _uuid(bits)


def derived_id(*parts: str) -> str:
    """Return the UUIDv5 of some names, for tools whose ids are not UUIDs and for fixed records."""
    name = "\0".join(parts).encode("utf-8", "surrogatepass")
    # In Python 3.11, uuid5 takes text only; hex represents any bytes, and is as unique.
    return str(uuid.uuid5(_NAMESPACE, name.hex()))


def fork_event_id(fork: str, id: str) -> str:
    """Return an event's id in a fork. PostgreSQL computes the same: `md5(fork || id)::uuid`."""
    from hashlib import md5

    return _hyphenated(md5((fork + id).encode(), usedforsecurity=False).hexdigest())


def format_id(prefix: str, id: str) -> str:
    """Return the id as REST writes it: `format_id("sesn", id)` gives `sesn_01…`."""
    # A list formats hundreds of ids. Small numbers divide faster, so split into halves, then pairs.
    high, low = divmod(int(id.replace("-", ""), 16), 58**16)
    middle, low = divmod(low, 58**8)
    a, b = divmod(high, 58**4)
    c, d = divmod(middle, 58**4)
    e, f = divmod(low, 58**4)
    p = _PAIRS
    return (
        f"{prefix}_01{p[a]}{p[b // 3364]}{p[b % 3364]}{p[c // 3364]}{p[c % 3364]}"
        f"{p[d // 3364]}{p[d % 3364]}{p[e // 3364]}{p[e % 3364]}{p[f // 3364]}{p[f % 3364]}"
    )


def parse(text: str, prefix: str | None = None) -> str | None:
    """Return the id that a text represents in any format, None if it is not an id.

    With `prefix`, an id in REST's format must have that prefix.
    """
    if match := _PREFIXED.fullmatch(text):
        if prefix is not None and match[1] != prefix:
            return None
        number = _number(match[2])
        return _uuid(number) if number >> 128 == 0 else None
    folded = text.lower()
    if not _UUID.fullmatch(folded):
        return None
    return folded if len(folded) == 36 else _hyphenated(folded)


def prefix_range(text: str, prefix: str) -> tuple[str, str] | None:
    """Return the lowest and the highest id that begin with a text, None if no id can.

    Both formats are understood. Base 58 keeps the order of its digits, so a prefix is a range
    there as it is in hexadecimal.
    """
    if text.startswith(f"{prefix}_01"):
        digits = text[len(prefix) + 3 :]
        if not _BASE58.fullmatch(digits):
            return None
        low, high = _number(digits.ljust(22, "1")), _number(digits.ljust(22, "z"))
        return None if low >> 128 else (_uuid(low), _uuid(min(high, (1 << 128) - 1)))
    digits = text.lower().replace("-", "")
    if not _HEX.fullmatch(digits):
        return None
    return _hyphenated(digits.ljust(32, "0")), _hyphenated(digits.ljust(32, "f"))


def _number(digits: str) -> int:
    number = 0
    for char in digits:
        number = number * 58 + _VALUES[char]
    return number


def _uuid(number: int) -> str:
    return _hyphenated(f"{number:032x}")


def _hyphenated(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
