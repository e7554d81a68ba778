"""The option `--format`: rows for programs as JSON, JSON lines, YAML, CSV or raw records.

`json` is one array, `jsonl` and `raw` one line per row, `yaml` one list, `csv` a table with a
header. All but `raw` print the fields of `output_fields`; `raw` prints the stored record.

Text of sessions is not trusted. On a terminal, control characters are escaped, as JSON and YAML
allow. CSV has no escapes, and people open it in spreadsheets: there they are replaced, and a cell
that a spreadsheet would run as a formula begins with an apostrophe.
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
from segue.model.ansi import controls, csv_cell

FORMATS = ("json", "jsonl", "yaml", "csv", "raw")
F = TypeVar("F", bound=Callable[..., Any])
Row = Mapping[str, Any]
_BATCH_ROWS = 256


def format_option(command: F) -> F:
    """Add the option `--format`; None means output for people."""
    option = click.option(
        "--format",
        "format",
        type=click.Choice(FORMATS),
        help="Machine-readable output with stable fields.",
    )
    return option(command)


def write_rows(format: str, rows: Iterable[tuple[Any, Row]]) -> None:
    """Print rows, each a pair of the stored record and its fields; all have the same fields.

    Rows are printed in batches, so they need not fit into memory.
    """
    iterator = iter(rows)
    batches = iter(lambda: list(islice(iterator, _BATCH_ROWS)), [])
    chunks: Iterable[bytes]
    if format == "raw":
        chunks = (_json_lines(record for record, _ in batch) for batch in batches)
    else:
        chunks = _ENCODERS[format]([fields for _, fields in batch] for batch in batches)
    for chunk in chunks:
        write(chunk)


def write_value(format: str, value: Any) -> None:
    """Print one value."""
    if format == "yaml":
        write(_encode_yaml(value))
    elif format in ("jsonl", "raw"):
        write(_json_lines([value]))
    elif format == "csv":
        write_rows("csv", [(value, value)])
    else:
        write(_indented(codec.encode(value)) + b"\n")


def to_yaml(value: Any) -> bytes:
    """Return a value of plain types as a YAML document.

    On a terminal, text with control characters is in double quotes, where YAML has escapes.
    """
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # it has no types
        pass

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = '"' if controls().search(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)

    if sys.stdout.isatty():
        Dumper.add_representer(str, represent)
    text: str = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return text.encode("utf-8", "backslashreplace")


def write(data: bytes) -> None:
    """Write bytes to standard output, regardless of its text encoding.

    On a terminal, control characters other than tabs and newlines are escaped as in JSON.
    """
    if sys.stdout.isatty():
        text = data.decode("utf-8", "surrogateescape")
        text = controls().sub(lambda control: f"\\u{ord(control[0]):04x}", text)
        data = text.encode("utf-8", "surrogateescape")
    sys.stdout.flush()
    unwritten = memoryview(data)
    while unwritten:  # unbuffered output (PYTHONUNBUFFERED) may write only a part
        unwritten = unwritten[sys.stdout.buffer.write(unwritten) :]
    sys.stdout.buffer.flush()


@contextmanager
def output_file(path: str) -> Iterator[Callable[[bytes], object]]:
    """Open a file for writing; `-` is standard output.

    An existing file is replaced when the new one is complete, and kept if writing fails.
    """
    if path == "-":
        yield write
        return
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device
        with open(path, "wb") as file:
            yield file.write
        return
    path = os.path.realpath(path)  # write through a symbolic link, do not replace it
    partial_path = f"{path}.{os.getpid()}.part"
    try:
        with open(partial_path, "xb") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial_path, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(partial_path)
        if isinstance(error, OSError) and error.filename == partial_path:
            error.filename = path
        raise


def _json_lines(values: Iterable[Any]) -> bytes:
    return b"".join(codec.encode(value) + b"\n" for value in values)


def _json_array(batches: Iterable[list[Row]]) -> Iterator[bytes]:
    separator = b"[\n"
    for batch in batches:
        array = b"[%b]" % b",".join(map(codec.encode, batch))
        yield separator + _indented(array)[2:-2]
        separator = b",\n"
    yield b"[]\n" if separator == b"[\n" else b"\n]\n"


def _indented(encoded: bytes) -> bytes:
    """Return JSON with line breaks and indentation."""
    try:
        return msgspec.json.format(encoded, indent=2)
    except msgspec.DecodeError:  # a text has half of an emoji
        import json

        return json.dumps(json.loads(encoded), indent=2).encode()


def _yaml_list(batches: Iterable[list[Row]]) -> Iterator[bytes]:
    chunk = b""
    for batch in batches:
        yield (chunk := _encode_yaml(batch))
    if not chunk:
        yield _encode_yaml([])


def _encode_yaml(value: Any) -> bytes:
    import json

    return to_yaml(json.loads(codec.encode(value)))


def _csv_table(batches: Iterable[list[Row]]) -> Iterator[bytes]:
    import csv
    import io

    names: list[str] = []
    for batch in batches:
        out = io.StringIO(newline="")
        rows = [_flatten(row) for row in batch]
        if not names:
            names = list(rows[0])
            csv.writer(out, lineterminator="\n").writerow(map(csv_cell, names))
        csv.DictWriter(out, names, lineterminator="\n").writerows(rows)
        yield out.getvalue().encode("utf-8", "backslashreplace")


_ENCODERS: dict[str, Callable[[Iterable[list[Row]]], Iterator[bytes]]] = {
    "json": _json_array,
    "jsonl": partial(map, _json_lines),
    "yaml": _yaml_list,
    "csv": _csv_table,
}


def _flatten(row: Row, prefix: str = "") -> dict[str, str]:
    """Return a row as text: `usage.cost` on one level, other lists and objects as JSON."""
    cells: dict[str, str] = {}
    for name, value in row.items():
        if name == "usage" and isinstance(value, dict):
            cells |= _flatten(value, f"{name}.")
        elif isinstance(value, dict | list | tuple | msgspec.Struct):
            cells[prefix + name] = csv_cell(codec.encode(value).decode())
        elif value is None:
            cells[prefix + name] = ""
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            cells[prefix + name] = csv_cell(text)
    return cells
