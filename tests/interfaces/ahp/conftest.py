"""Check what servers send in the tests of the protocol with its published types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interfaces.ahp.client import AhpClient
from tests.interfaces.ahp.published import NotPublished, published_types


@pytest.fixture(autouse=True)
def fitting_messages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test in which a server sends what does not fit the published types, if there are any.

    Without them, `test_published.py` is skipped and says why.
    """
    try:
        types = published_types()
    except NotPublished:
        yield
        return
    problems: list[str] = []

    def check(message: dict[str, Any], method: str | None) -> None:
        try:
            if "rejectionReason" in message.get("params", {}):
                return  # the client's own action
            if "method" in message:
                types.check_notification(message["method"], message["params"], of_server=True)
            elif "result" in message and method is not None:
                types.check_command(method, "result", message["result"])
        except ValueError as error:
            problems.append(str(error))

    monkeypatch.setattr(AhpClient, "observe", staticmethod(check))
    yield
    assert not problems, "\n".join(dict.fromkeys(problems))
