"""QR codes of login links."""

import re

import segno

from segue.interfaces.cli.output import qr_code

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
