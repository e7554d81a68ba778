"""A pytest plugin that puts the real `claude_agent_sdk` in the place of `segue.claude`.

Our tests of the SDK's defects then run against the SDK: they have to fail there. One that hangs is
stopped.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import claude_agent_sdk
import pytest

import segue

SECONDS = 5

claude_agent_sdk.SessionIsLive = type("SessionIsLive", (Exception,), {})
claude_agent_sdk.archive_session = claude_agent_sdk.get_session_info
sys.modules["segue.claude"] = segue.claude = claude_agent_sdk


def _late(*_: object) -> None:
    pytest.fail("it hangs")  # which no `except Exception` of the SDK catches


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)
