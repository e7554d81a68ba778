"""`--format`: the same rows for a person, or for a program in one of five ways.

`json` is one array, `jsonl` and `raw` a line a row, `yaml` one list, `csv` a table with a header.
All but `raw` show the fields that `views` promises; `raw` is the record as the store keeps it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import click
import msgspec

from segue.model import codec

FORMATS = ("json", "jsonl", "yaml", "csv", "raw")
F = TypeVar("F", bound=Callable[..., Any])
Row = Mapping[str, Any]
_SOME = 256


def formatted(command: F) -> F:
    """Give a command the option `--format`, as the argument `format`; None means for a person."""
    option = click.option(
        "--format",
        "format",
        type=click.Choice(FORMATS),
        help="For programs: fields that stay the same.  [default: for people]",
    )
    return option(command)


def write_rows(format: str, rows: Iterable[tuple[Any, Row]]) -> None:
    """Print rows, each given as the record itself and as its fields, of which all have the same.

    Some at a time: all of them need not fit into memory.
    """
    left = iter(rows)
    batches = iter(lambda: list(islice(left, _SOME)), [])
    pieces: Iterable[bytes]
    if format == "raw":
        pieces = (_lines(record for record, _ in some) for some in batches)
    else:
        pieces = _WRITTEN[format]([fields for _, fields in some] for some in batches)
    for piece in pieces:
        write(piece)


def write_value(format: str, value: Any) -> None:
    """Print one value."""
    if format == "yaml":
        write(_yaml(value))
    elif format in ("jsonl", "raw"):
        write(_lines([value]))
    elif format == "csv":
        write_rows("csv", [(value, value)])
    else:
        write(msgspec.json.format(codec.encode(value), indent=2) + b"\n")


def as_yaml(value: Any) -> bytes:
    """A value of plain types as a YAML document."""
    import yaml

    text: str = yaml.dump(
        value, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, width=1000
    )
    return text.encode("utf-8", "backslashreplace")


def write(data: bytes) -> None:
    """Bytes to standard output, whatever encoding it has for text."""
    sys.stdout.flush()
    left = memoryview(data)
    while left:  # unbuffered, as PYTHONUNBUFFERED makes it, it may take a part only
        left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.buffer.flush()


@contextmanager
def written(path: str) -> Iterator[Callable[[bytes], object]]:
    """Writes a file that takes the place of one that is there when it is whole, and not before."""
    if path == "-":
        yield write
        return
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe, or a device
        with open(path, "wb") as out:
            yield out.write
        return
    path = os.path.realpath(path)  # a link stays one
    unfinished = f"{path}.{os.getpid()}.part"
    try:
        with open(unfinished, "xb") as out:
            yield out.write
            out.flush()
            os.fsync(out.fileno())
        os.replace(unfinished, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(unfinished)
        if isinstance(error, OSError) and error.filename == unfinished:
            error.filename = path
        raise


def _lines(values: Iterable[Any]) -> bytes:
    return b"".join(codec.encode(each) + b"\n" for each in values)


def _json_list(batches: Iterable[list[Row]]) -> Iterator[bytes]:
    before = b"[\n"
    for some in batches:
        listed = b"[%b]" % b",".join(map(codec.encode, some))
        yield before + msgspec.json.format(listed, indent=2)[2:-2]
        before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"


def _yaml_list(batches: Iterable[list[Row]]) -> Iterator[bytes]:
    piece = b""
    for some in batches:
        yield (piece := _yaml(some))
    if not piece:
        yield _yaml([])


def _yaml(value: Any) -> bytes:
    import json

    return as_yaml(json.loads(codec.encode(value)))


def _csv_table(batches: Iterable[list[Row]]) -> Iterator[bytes]:
    import csv
    import io

    names: list[str] = []
    for some in batches:
        out = io.StringIO(newline="")
        rows = [_flat(row) for row in some]
        if not names:
            names = list(rows[0])
            csv.writer(out, lineterminator="\n").writerow(names)
        csv.DictWriter(out, names, lineterminator="\n").writerows(rows)
        yield out.getvalue().encode("utf-8", "backslashreplace")


_WRITTEN: dict[str, Callable[[Iterable[list[Row]]], Iterator[bytes]]] = {
    "json": _json_list,
    "jsonl": partial(map, _lines),
    "yaml": _yaml_list,
    "csv": _csv_table,
}


def _flat(row: Row, under: str = "") -> dict[str, str]:
    """One level, `usage.cost`; lists, free-form maps and an event's body as JSON."""
    found: dict[str, str] = {}
    for name, value in row.items():
        if name == "usage" and isinstance(value, dict):
            found |= _flat(value, f"{name}.")
        elif isinstance(value, dict | list | tuple | msgspec.Struct):
            found[under + name] = codec.encode(value).decode()
        else:
            shown = str(value).lower() if isinstance(value, bool) else value
            found[under + name] = "" if shown is None else str(shown)
    return found
