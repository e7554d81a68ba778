"""QR codes of login links."""

import re

import pytest
import segno

from segue.interfaces.cli.commands.serve import phone_address
from segue.interfaces.cli.output import qr_code
from segue.model.errors import InvalidInput

LINK = "https://segue.example.com/login?token=" + "a1-_" * 20
HALVES = {" ": (0, 0), "▄": (0, 1), "▀": (1, 0), "█": (1, 1)}


def test_lines_have_every_module_of_the_code() -> None:
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in qr_code.show(LINK).splitlines()]
    rows = [[HALVES[character][half] for character in line] for line in lines for half in (0, 1)]
    expected = [list(row) for row in segno.make(LINK, error="l", micro=False).matrix_iter()]
    assert rows[: len(expected)] == expected


def test_a_code_fits_into_a_terminal() -> None:
    lines = qr_code.show(LINK).splitlines()
    assert len(lines) == 25 and len(re.sub(r"\x1b\[[\d;]*m", "", lines[0])) < 80


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://[x", "is not a URL"),
        ("http://segue.example.com:99999", "is not a URL"),
        ("https://segue.example.com/?a=b", "is not a URL"),
        ("segue.example.com", "is not a URL"),
        (f"http://segue.example.com/{'x' * 4000}", "too long"),
        ("http://0.0.0.0", "http://192.168.1.2:8787"),
        ("", "cannot reach http://127.0.0.1:8787"),
    ],
)
def test_an_address_that_no_phone_can_open_is_refused(url: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        phone_address(url, "http://127.0.0.1:8787")


def test_a_phone_gets_the_address_that_the_user_names() -> None:
    server = "http://192.168.1.2:8787"
    assert phone_address("", server) == server
    assert phone_address("https://segue.example.com/base", server).endswith("/base")
