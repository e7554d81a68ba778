"""The server measures how late its event loop is."""

import asyncio
import time

import pytest

from segue.http.metrics import Metrics
from segue.server import serve


class RecordedLags(Metrics):
    """Keeps every measured lag."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def count_lag(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def test_a_callback_that_blocks_the_event_loop_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serve, "LAG_INTERVAL_SECONDS", 0.01)
    metrics = RecordedLags()
    measuring = asyncio.ensure_future(serve._measure_lag(metrics))
    while not metrics.seconds:
        await asyncio.sleep(0.01)
    time.sleep(0.5)  # as a parser does that runs on the loop
    await asyncio.sleep(0.02)
    measuring.cancel()
    assert max(metrics.seconds) > 0.4 and min(metrics.seconds) >= 0
