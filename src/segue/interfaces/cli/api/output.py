"""Print API responses: item by item, in a format, transformed on request."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from segue.interfaces.cli.output import formats

from . import gjson
from .errors import warn

FORMATS = ("auto", "explore", "json", "jsonl", "pretty", "raw", "yaml")


class ResponsePrinter:
    """Prints values in one format."""

    def __init__(
        self, format: str, transform: str | None = None, *, raw_strings: bool = False
    ) -> None:
        if format == "explore":
            warn("--format explore is not supported; printing json. `segue` alone has a picker.")
        self._format = format
        self._transform = transform
        self._raw_strings = raw_strings

    def print(self, value: Any) -> None:
        """Print a value, or the part that --transform selects if the value has it."""
        if self._transform:
            with suppress(gjson.PathNotFound):
                value = gjson.get(value, self._transform)
        formats.write(self._encode(value))

    def _encode(self, value: Any) -> bytes:
        if self._raw_strings and isinstance(value, str):
            return value.encode("utf-8", "backslashreplace") + b"\n"
        if self._format == "yaml":
            return formats.to_yaml(value)
        indent = None if self._format in ("jsonl", "raw") else 2
        separators = (",", ":") if indent is None else None
        text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
        return text.encode("utf-8", "backslashreplace") + b"\n"
