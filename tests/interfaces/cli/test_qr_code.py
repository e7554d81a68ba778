"""QR codes of login links."""

import zlib

import pytest

from segue.interfaces.cli.output import qr_code
from segue.model.errors import InvalidInput

LINK = "https://segue.example.com/login?token="


@pytest.mark.parametrize(
    ("text", "size", "checksum"),
    [
        ("segue", 21, 1138994800),
        (LINK + "a1-_" * 12, 37, 3280847729),
        (LINK + "a1-_" * 30, 49, 3489914162),
        ("x" * 400, 69, 2820015236),
    ],
)
def test_a_code_is_the_one_that_other_encoders_make(text: str, size: int, checksum: int) -> None:
    matrix = qr_code.encode(text, mask=2)
    assert len(matrix) == size
    rows = "\n".join("".join(" #"[dark] for dark in row) for row in matrix)
    assert zlib.crc32(rows.encode()) == checksum


def test_a_code_fits_into_a_terminal_and_a_text_that_is_too_long_is_refused() -> None:
    lines = qr_code.show(LINK + "a1-_" * 20).splitlines()
    assert len(lines) == 25 and len(lines[0]) < 80
    with pytest.raises(InvalidInput, match="cannot hold"):
        qr_code.encode("x" * 1000)
