"""Uploads of skills do not occupy the threads that everything else uses."""

import asyncio
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.model.errors import Overloaded
from segue.model.principal import LOCAL
from segue.store.memory import MemoryStore
from tests.busy_parsers import busy_parsers

SKILL = b"---\nname: s\ndescription: d\n---\n"


async def test_uploads_wait_in_threads_of_their_own_and_further_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Hub(MemoryStore(), tmp_path) as hub:
        with busy_parsers(monkeypatch):
            files = {"s/SKILL.md": SKILL}
            uploads = [
                asyncio.ensure_future(hub.skills.create(LOCAL, files, None)) for _ in range(50)
            ]
            async with asyncio.timeout(30):
                assert await asyncio.to_thread(len, "free") == 4
        results = await asyncio.gather(*uploads, return_exceptions=True)
    errors = [error for error in results if isinstance(error, BaseException)]
    assert 0 < len(errors) < 50 and {type(error) for error in errors} == {Overloaded}
    assert "try again later" in str(errors[0])
