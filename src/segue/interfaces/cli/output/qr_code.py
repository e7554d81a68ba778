"""Show a text as a QR code in a terminal, for the camera of a phone (ISO/IEC 18004)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

from segue.model.errors import InvalidInput

Matrix = list[list[bool]]

QUIET_ZONE = 4  # light modules around the code
# By version, at the lowest level of error correction: error correction codewords in each block,
# blocks, data codewords in all blocks, and the centres of the alignment patterns.
_VERSIONS: tuple[tuple[int, int, int, tuple[int, ...]], ...] = (
    (7, 1, 19, ()),
    (10, 1, 34, (6, 18)),
    (15, 1, 55, (6, 22)),
    (20, 1, 80, (6, 26)),
    (26, 1, 108, (6, 30)),
    (18, 2, 136, (6, 34)),
    (20, 2, 156, (6, 22, 38)),
    (24, 2, 194, (6, 24, 42)),
    (30, 2, 232, (6, 26, 46)),
    (18, 4, 274, (6, 28, 50)),
    (20, 4, 324, (6, 30, 54)),
    (24, 4, 370, (6, 32, 58)),
    (26, 4, 428, (6, 34, 62)),
)
_LEVEL_BITS = 0b01
_LONG_COUNT_VERSION = 10  # from here the length of a text takes 16 bits instead of 8


def show(text: str) -> str:
    """Return the lines of a text's QR code, black on white with two modules in a character."""
    matrix = encode(text)
    width = len(matrix) + 2 * QUIET_ZONE
    blank = [[False] * width for _ in range(QUIET_ZONE)]
    side = [False] * QUIET_ZONE
    rows = [*blank, *([*side, *row, *side] for row in matrix), *blank]
    if len(rows) % 2:
        rows.append([False] * width)
    lines = []
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        characters = [" ▄▀█"[2 * above + below] for above, below in zip(upper, lower, strict=True)]
        lines.append(f"\x1b[30;107m{''.join(characters)}\x1b[0m")
    return "\n".join(lines)


def encode(text: str, mask: int | None = None) -> Matrix:
    """Return the modules of a text's QR code, True for a dark one.

    Without a mask it has the one that is the easiest to read. Raises InvalidInput if the text is
    too long.
    """
    data = text.encode()
    version = _version_for(len(data))
    codewords = _codewords(data, version)
    masks = range(8) if mask is None else (mask,)
    return min((_draw(version, codewords, number) for number in masks), key=_penalty)


def _version_for(length: int) -> int:
    for version, (_, _, capacity, _) in enumerate(_VERSIONS, 1):
        if length + (3 if version >= _LONG_COUNT_VERSION else 2) <= capacity:
            return version
    raise InvalidInput(f"a QR code cannot hold {length} bytes; use a shorter address")


def _codewords(data: bytes, version: int) -> bytes:
    """Return the data and its error correction, the blocks interleaved."""
    correction, count, capacity, _ = _VERSIONS[version - 1]
    length_bits = 16 if version >= _LONG_COUNT_VERSION else 8
    bits = f"0100{len(data):0{length_bits}b}" + "".join(f"{byte:08b}" for byte in data)
    bits += "0" * min(4, 8 * capacity - len(bits))
    bits += "0" * (-len(bits) % 8)
    filled = bytes(int(bits[start : start + 8], 2) for start in range(0, len(bits), 8))
    filled += bytes((0xEC, 0x11)[index % 2] for index in range(capacity - len(filled)))
    blocks = []
    start = 0
    for index in range(count):
        end = start + (capacity + index) // count  # the last blocks may have one more
        blocks.append(filled[start:end])
        start = end
    corrections = [_correction(block, correction) for block in blocks]
    return bytes(_interleaved(blocks)) + bytes(_interleaved(corrections))


def _interleaved(blocks: Sequence[bytes]) -> Iterator[int]:
    for index in range(max(map(len, blocks))):
        yield from (block[index] for block in blocks if index < len(block))


def _multiply(a: int, b: int) -> int:
    """Multiply in the Galois field of 256 elements."""
    product = 0
    while b:
        if b & 1:
            product ^= a
        a = (a << 1) ^ (0x11D if a & 0x80 else 0)
        b >>= 1
    return product


@cache
def _generator(degree: int) -> tuple[int, ...]:
    """Return the coefficients of the Reed-Solomon generator, without the first, which is 1."""
    coefficients, root = [1], 1
    for _ in range(degree):
        shifted = [*coefficients, 0]
        for index, coefficient in enumerate(coefficients):
            shifted[index + 1] ^= _multiply(coefficient, root)
        coefficients, root = shifted, _multiply(root, 2)
    return tuple(coefficients[1:])


def _correction(block: bytes, degree: int) -> bytes:
    remainder = [0] * degree
    for byte in block:
        factor = byte ^ remainder[0]
        remainder = [*remainder[1:], 0]
        for index, coefficient in enumerate(_generator(degree)):
            remainder[index] ^= _multiply(coefficient, factor)
    return bytes(remainder)


def _draw(version: int, codewords: bytes, mask: int) -> Matrix:
    size = 17 + 4 * version
    modules: list[list[bool | None]] = [[None] * size for _ in range(size)]
    _draw_patterns(modules, version)
    _draw_format(modules, version, mask)
    bits = (byte >> shift & 1 == 1 for byte in codewords for shift in range(7, -1, -1))
    for row, column in _data_positions(modules):
        modules[row][column] = next(bits, False) ^ _is_masked(mask, row, column)
    return [[bool(module) for module in row] for row in modules]


def _draw_patterns(modules: list[list[bool | None]], version: int) -> None:
    """Draw the three finders, the alignment patterns and the timing lines."""
    size = len(modules)
    for top, left in ((0, 0), (0, size - 7), (size - 7, 0)):
        for row in range(max(0, top - 1), min(size, top + 8)):
            for column in range(max(0, left - 1), min(size, left + 8)):
                distance = max(abs(row - top - 3), abs(column - left - 3))
                modules[row][column] = distance not in (2, 4)
    centres = _VERSIONS[version - 1][3]
    for row in centres:
        for column in centres:
            if modules[row][column] is None:
                for y in range(-2, 3):
                    for x in range(-2, 3):
                        modules[row + y][column + x] = max(abs(y), abs(x)) != 1
    for index in range(8, size - 8):
        modules[6][index] = modules[index][6] = index % 2 == 0


def _draw_format(modules: list[list[bool | None]], version: int, mask: int) -> None:
    """Draw the level and the mask, and in larger codes the version, with their check bits."""
    size = len(modules)
    value = _LEVEL_BITS << 3 | mask
    bits = (value << 10 | _check_bits(value, 0x537, 10)) ^ 0x5412
    ends = [*range(6), 7, 8]
    for index in range(15):
        dark = bits >> index & 1 == 1
        if index < 8:
            modules[ends[index]][8] = modules[8][size - 1 - index] = dark
        else:
            modules[8][ends[14 - index]] = modules[size - 15 + index][8] = dark
    modules[size - 8][8] = True
    if version >= 7:
        bits = version << 12 | _check_bits(version, 0x1F25, 12)
        for index in range(18):
            row, column = index // 3, size - 11 + index % 3
            modules[row][column] = modules[column][row] = bits >> index & 1 == 1


def _check_bits(value: int, generator: int, count: int) -> int:
    remainder = value << count
    for shift in range(remainder.bit_length() - 1, count - 1, -1):
        if remainder >> shift & 1:
            remainder ^= generator << (shift - count)
    return remainder


def _data_positions(modules: list[list[bool | None]]) -> Iterator[tuple[int, int]]:
    """Yield the free modules, in columns of two from the right, up and down in turn."""
    size = len(modules)
    columns = [column for column in range(size - 1, 0, -2) if column > 6]
    columns += [column for column in range(5, 0, -2)]
    for index, right in enumerate(columns):
        for row in range(size) if index % 2 else range(size - 1, -1, -1):
            for column in (right, right - 1):
                if modules[row][column] is None:
                    yield row, column


def _is_masked(mask: int, row: int, column: int) -> bool:
    product = row * column
    values = (
        (row + column) % 2,
        row % 2,
        column % 3,
        (row + column) % 3,
        (row // 2 + column // 3) % 2,
        product % 2 + product % 3,
        (product % 2 + product % 3) % 2,
        ((row + column) % 2 + product % 3) % 2,
    )
    return values[mask] == 0


def _penalty(matrix: Matrix) -> int:
    """Return how hard a code is to read: long runs, large areas, more of one colour."""
    size = len(matrix)
    penalty = 0
    for lines in (matrix, [list(line) for line in zip(*matrix, strict=True)]):
        for line in lines:
            run = 1
            for previous, module in pairwise(line):
                run = run + 1 if module == previous else 1
                penalty += 3 if run == 5 else run > 5
    for row in range(size - 1):
        for column in range(size - 1):
            area = {matrix[row + y][column + x] for y in (0, 1) for x in (0, 1)}
            penalty += 3 * (len(area) == 1)
    dark = sum(map(sum, matrix))
    return penalty + 10 * (abs(20 * dark - 10 * size * size) // (size * size))
