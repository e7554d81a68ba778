"""Answers as they are printed: item by item, in a format, transformed if asked."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from segue.interfaces.cli.output import formats

from . import gjson
from .errors import warn

FORMATS = ("auto", "explore", "json", "jsonl", "pretty", "raw", "yaml")


class Printer:
    """Prints values in one format."""

    def __init__(self, format: str, transform: str | None = None, raw: bool = False) -> None:
        if format == "explore":
            warn("explore is not there; `segue` alone has a picker. Printing json.")
        self._format = format
        self._transform = transform
        self._raw = raw

    def __call__(self, value: Any) -> None:
        if self._transform:
            with suppress(gjson.Missing):  # then it is printed as it is
                value = gjson.get(value, self._transform)
        formats.write(self._bytes(value))

    def _bytes(self, value: Any) -> bytes:
        if self._raw and isinstance(value, str):
            return value.encode("utf-8", "backslashreplace") + b"\n"
        if self._format == "yaml":
            return formats.as_yaml(value)
        indent = None if self._format in ("jsonl", "raw") else 2
        separators = (",", ":") if indent is None else None
        text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
        return text.encode("utf-8", "backslashreplace") + b"\n"
