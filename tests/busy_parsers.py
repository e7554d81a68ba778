"""Occupy the parsers of untrusted input, as hostile texts would."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from segue.untrusted import PARSERS


@contextmanager
def busy_parsers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make every call of a parser wait until the block ends, and then parse."""
    end = threading.Event()
    call = PARSERS.call

    def wait_and_call(*arguments: object, **limits: object) -> object:
        end.wait()
        return call(*arguments, **limits)  # type: ignore[arg-type]

    monkeypatch.setattr(PARSERS, "call", wait_and_call)
    try:
        yield
    finally:
        end.set()
