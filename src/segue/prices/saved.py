"""Save looked-up prices in a file that can be deleted."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from . import saved_in
from .values import ModelPrices

_MAX_MODELS = 500

_decode = msgspec.json.Decoder(dict[str, ModelPrices]).decode


class SavedPrices:
    """The saved prices of the installed price table, by the names of the models."""

    def __init__(self) -> None:
        directory = saved_in()
        self._path = None if directory is None else directory / f"prices-{_table_key()}.json"

    def get(self, model: str) -> ModelPrices | None:
        """Return the saved prices of a model."""
        return self._read().get(model)

    def add(self, model: str, prices: ModelPrices) -> None:
        """Save the prices of a model, unless there are many."""
        saved = self._read()
        if self._path is None or len(saved) >= _MAX_MODELS:
            return
        temporary = self._path.with_suffix(f".{os.getpid()}")
        with suppress(OSError, UnicodeEncodeError):  # the prices are looked up again
            if not saved:
                for other_table in self._path.parent.glob("prices-*.json"):
                    other_table.unlink()
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(msgspec.json.encode({**saved, model: prices}))
            os.replace(temporary, self._path)

    def _read(self) -> dict[str, ModelPrices]:
        if self._path is None:
            return {}
        try:
            return _decode(self._path.read_bytes())
        except (OSError, msgspec.DecodeError):  # a damaged file is replaced
            return {}


@cache
def _table_key() -> str:
    """Return a name for the installed price table, without importing it."""
    from importlib.util import find_spec

    spec = find_spec("genai_prices")
    assert spec is not None and spec.origin is not None
    status = os.stat(Path(spec.origin).with_name("data.py"))
    return f"{status.st_size:x}-{status.st_mtime_ns:x}"
