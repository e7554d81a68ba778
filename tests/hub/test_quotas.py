"""Limits of what a workspace stores and runs."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from segue.hub import Hub
from segue.hub.access import quotas
from segue.hub.access.quotas import (
    LIMITS_VALID_SECONDS,
    QUOTAS,
    QuotaState,
    format_amount,
    parse_limit,
    parse_limits,
)
from segue.model.errors import InvalidInput, QuotaExceeded, QuotaInUse
from segue.model.principal import LOCAL, Principal
from tests.hub.conftest import MakeHub

KEY = Principal(workspace="team", key_id="a key")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("0", 0),
        ("1234", 1234),
        (" 5 GB ", 5_000_000_000),
        ("5gb", 5_000_000_000),
        ("2KiB", 2048),
        ("3M", 3_000_000),
        ("1TiB", 1 << 40),
        ("7B", 7),
    ],
)
def test_a_size_is_parsed(text: str, limit: int) -> None:
    assert parse_limit("bytes", text) == limit


@pytest.mark.parametrize("text", ["", "-1", "1.5GB", "GB", "1EB", "ten", "1e9", "९", "unlimited"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"bytes: .* is not a limit; use a size"):
        parse_limit("bytes", text)


@pytest.mark.parametrize("text", ["5GB", "5B", "5.0", ""])
def test_counts_have_no_unit(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"sessions: .* is not a limit; use a whole number"):
        parse_limit("sessions", text)


def test_limits_are_assigned_by_name() -> None:
    assert parse_limits(["sessions=5", "bytes=1kB", "sessions=7"]) == {"sessions": 7, "bytes": 1000}
    with pytest.raises(InvalidInput, match="there is no quota 'session'; the quotas are sessions,"):
        parse_limits(["session=5"])
    with pytest.raises(InvalidInput, match="'sessions' is not a quota; use NAME=LIMIT"):
        parse_limits(["sessions"])


def test_amounts_are_shown_with_units() -> None:
    assert format_amount("sessions", 12345) == "12,345"
    assert format_amount("bytes", 12345) == "12,345 bytes (12.3 kB)"
    assert format_amount("bytes", 999) == "999 bytes"
    assert format_amount("bytes", 10**10) == "10,000,000,000 bytes (10 GB)"


def test_a_hub_with_an_unknown_quota_is_refused(make_hub: MakeHub) -> None:
    with pytest.raises(InvalidInput, match="there is no quota 'x'"):
        make_hub(quotas={"x": 1}).quotas  # noqa: B018


async def test_a_limit_of_a_workspace_replaces_that_of_the_server(make_hub: MakeHub) -> None:
    async with make_hub(quotas={"sessions": 1, "files": 9}) as hub:
        await hub.editor.create(KEY, cwd="/work")
        with pytest.raises(QuotaExceeded):
            await hub.editor.create(KEY, cwd="/work")
        await hub.quotas.set_limit("team", "sessions", "2")
        await hub.editor.create(KEY, cwd="/work")
        with pytest.raises(QuotaExceeded) as refusal:
            await hub.editor.create(KEY, cwd="/work")
        assert refusal.value.data["details"] == {"quota": "sessions", "limit": 2, "used": 2}
        await hub.quotas.set_limit("team", "sessions", "unlimited")
        await hub.editor.create(KEY, cwd="/work")
        await hub.quotas.unset_limit("team", "sessions")
        with pytest.raises(QuotaExceeded):
            await hub.editor.create(KEY, cwd="/work")
        for change in (hub.quotas.set_limit("team", "x", "1"), hub.quotas.unset_limit("team", "x")):
            with pytest.raises(InvalidInput, match="there is no quota 'x'"):
                await change


async def test_a_limit_that_another_process_sets_applies_soon(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_hub(quotas={"sessions": 1}) as hub:
        await hub.editor.create(KEY, cwd="/work")
        await hub.store.set_setting("team", "quota.sessions", 2)
        with pytest.raises(QuotaExceeded):
            await hub.editor.create(KEY, cwd="/work")
        later = time.monotonic() + LIMITS_VALID_SECONDS
        monkeypatch.setattr(quotas, "time", SimpleNamespace(monotonic=lambda: later))
        await hub.editor.create(KEY, cwd="/work")
        with pytest.raises(QuotaExceeded):
            await hub.editor.create(KEY, cwd="/work")


async def test_states_have_limits_and_uses(make_hub: MakeHub) -> None:
    async with make_hub(quotas={"sessions": 5, "files": 9}) as hub:
        await hub.editor.create(KEY, cwd="/work")
        await hub.quotas.set_limit("team", "files", "unlimited")
        await hub.quotas.set_limit("team", "turns", "3")
        states = {state.name: state for state in await hub.quotas.states("team")}
        assert list(states) == list(QUOTAS)
        assert states["sessions"] == QuotaState("sessions", 5, 1, "server")
        assert states["files"] == QuotaState("files", None, 0, "workspace")
        assert states["turns"] == QuotaState("turns", 3, 0, "workspace")
        assert states["schedules"] == QuotaState("schedules", None, 0, None)
        assert states["streams"].used is None


async def test_the_settings_of_a_workspace_do_not_show_or_change_its_quotas(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        await hub.quotas.set_limit("team", "sessions", "1")
        assert await hub.config.all("team") == {}
        with pytest.raises(InvalidInput):
            await hub.config.set("team", "quota.sessions", "5")
        with pytest.raises(InvalidInput):
            await hub.config.unset("team", "quota.sessions")


async def fork(hub: Hub, id: str) -> Any:
    return await hub.editor.fork(KEY, id)


async def import_copy(hub: Hub, id: str) -> Any:
    lines = [line async for line in hub.exchange.export(KEY, id)]
    return await hub.exchange.import_session(KEY, lines, new_id=True)


@pytest.mark.parametrize("copy", [fork, import_copy])
@pytest.mark.parametrize("quota", ["sessions", "bytes"])
async def test_forks_and_imports_beyond_a_quota_are_refused(
    make_hub: MakeHub, copy: Callable[[Hub, str], Any], quota: str
) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(KEY, cwd="/work")
        used = await hub.store.usage("team")
        await hub.quotas.set_limit("team", quota, str(getattr(used, quota)))
        with pytest.raises(QuotaExceeded, match=f"the quota '{quota}'"):
            await copy(hub, session.id)
        assert await hub.store.usage("team") == used
        await hub.quotas.set_limit("team", quota, str(getattr(used, quota) + 1))
        await copy(hub, session.id)


async def test_streams_are_counted_by_workspace_until_they_are_closed(make_hub: MakeHub) -> None:
    async with make_hub(quotas={"streams": 2}) as hub:
        closes = [await hub.quotas.open_stream(KEY) for _ in range(2)]
        with pytest.raises(QuotaInUse, match="the quota 'streams'"):
            await hub.quotas.open_stream(KEY)
        (await hub.quotas.open_stream(Principal(workspace="other")))()
        (await hub.quotas.open_stream(LOCAL))()
        closes.pop()()
        closes.append(await hub.quotas.open_stream(KEY))
        for close in closes:
            close()
        results = await asyncio.gather(
            *(hub.quotas.open_stream(KEY) for _ in range(5)), return_exceptions=True
        )
        assert sum(isinstance(result, QuotaInUse) for result in results) == 3


async def test_a_refused_or_failed_creation_does_not_block_the_next(make_hub: MakeHub) -> None:
    async with make_hub(quotas={"sessions": 1}) as hub:
        session = await hub.editor.create(KEY, cwd="/work")
        for _ in range(2):
            with pytest.raises(QuotaExceeded):
                await hub.editor.create(KEY, cwd="/work")
        await hub.editor.purge(KEY, session.id)
        blocked = asyncio.ensure_future(hub.editor.create(KEY, cwd="/work"))
        blocked.cancel()
        await asyncio.gather(blocked, return_exceptions=True)
        async with asyncio.timeout(60):
            if not (await hub.store.usage("team")).sessions:
                await hub.editor.create(KEY, cwd="/work")


async def test_checks_without_limits_do_not_count(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A personal server has no quotas, and its creations read nothing more than the settings."""
    async with make_hub(quotas={"files": 5}) as hub:

        async def usage(workspace: str) -> Any:
            raise AssertionError("nothing is limited")

        monkeypatch.setattr(hub.store, "usage", usage)
        await hub.editor.create(KEY, cwd="/work")
        await hub.editor.create(LOCAL, cwd="/work")


async def test_last_free_place_goes_to_a_creation_that_waited_for_a_failed_one(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_hub(quotas={"sessions": 1}) as hub:
        create, begun, failing = hub.store.create, asyncio.Event(), asyncio.Event()

        async def fail(*_: Any, **__: Any) -> Any:
            monkeypatch.setattr(hub.store, "create", create)
            begun.set()
            await failing.wait()
            raise OSError("the disk is full")

        monkeypatch.setattr(hub.store, "create", fail)
        first = asyncio.ensure_future(hub.editor.create(KEY, cwd="/work"))
        async with asyncio.timeout(60):
            await begun.wait()
            others = [asyncio.ensure_future(hub.editor.create(KEY, cwd="/work")) for _ in range(20)]
            done, _ = await asyncio.wait(others, timeout=0.05)
            assert not done
            failing.set()
            results = await asyncio.gather(first, *others, return_exceptions=True)
        assert isinstance(results[0], OSError)
        assert sum(not isinstance(result, Exception) for result in results) == 1
