"""Change bytes at random, as a coverage-guided fuzzer does."""

import random
from collections.abc import Sequence

PIECES = [
    *(
        b"\0",
        b"\xff",
        b"\xed\xa0\x80",
        b"\\ud800",
        b"\\u0000",
        b"\r\n",
        b"\xe2\x80\xa8",
        b"\xef\xbb\xbf",
    ),
    *(b"null", b"-1", b"1e999", b"9" * 30, b'""', b"[]", b"{}", b"[[[[", b"}}", b'"', b"\\"),
    *(b"<", b">", b"&#x110000;", b"<!--", b"](", b"```", b"|", b"%00", b"../", b"PK\x03\x04"),
]


def mutate(data: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Return data with a few changes; `others` are inputs of which parts may be inserted."""
    for _ in range(chance.choice([1, 1, 2, 4, 8])):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice([0, 1, 2, 8, 64]))
        match chance.choice(["piece", "byte", "delete", "repeat", "splice", "cut"]):
            case "piece":
                data = data[:start] + chance.choice(PIECES) + data[end:]
            case "byte":
                data = data[:start] + chance.randbytes(1) + data[start + 1 :]
            case "delete":
                data = data[:start] + data[end:]
            case "repeat":
                data = data[:start] + data[start:end] * chance.choice([2, 10]) + data[end:]
            case "splice" if others:
                other = chance.choice(others)
                begin = chance.randrange(len(other) + 1)
                data = data[:start] + other[begin : begin + 100] + data[end:]
            case "cut" if chance.random() < 0.2:
                data = data[:start]
    return data
