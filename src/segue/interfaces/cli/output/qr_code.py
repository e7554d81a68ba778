"""Show a text as a QR code in a terminal, for the camera of a phone."""

from __future__ import annotations

import segno


def show(text: str) -> str:
    """Return the lines of a text's QR code, black on white with two modules in a character."""
    code = segno.make(text, error="l", micro=False)
    rows = [[bool(module) for module in row] for row in code.matrix_iter()]
    if len(rows) % 2:
        rows.append([False] * len(rows[0]))
    lines = []
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        characters = [" ▄▀█"[2 * above + below] for above, below in zip(upper, lower, strict=True)]
        lines.append(f"\x1b[30;107m{''.join(characters)}\x1b[0m")
    return "\n".join(lines)
