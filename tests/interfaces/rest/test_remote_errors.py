"""Errors name no path, host or database of the server, except to the local user."""

from pathlib import Path

import httpx2
import pytest

from segue.agents.base import Turn
from segue.agents.registry import AgentRegistry
from segue.hub import Hub
from segue.interfaces.rest import RestApp
from segue.model import errors, ids
from segue.model.event import Failed
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL, Principal
from segue.model.query import Query
from tests.interfaces.rest.api import HEADERS, open_api
from tests.interfaces.web.site import site_of

SECRETS = ("/srv/secret", "db.internal", "10.1.2.3", "tenants")
FAILURES = [
    errors.StoreError("the store failed (disk I/O error): /srv/secret/segue.db"),
    errors.StoreFull("the disk is full: nothing of this change was kept in /srv/secret/segue.db"),
    errors.StoreReadOnly("writing is not allowed in database tenants at db.internal:5432"),
    errors.StoreLocked("another program has been holding the lock of /srv/secret/segue.db"),
    errors.StoreTooNew("database tenants at db.internal was written by a newer segue"),
    errors.StoreTooOld("/srv/secret/segue.db is a store of an unreleased segue"),
    errors.StoreCorrupt("damaged: /srv/secret/segue.db"),
    errors.AgentFailed("/srv/secret/agent could not be started: /srv/secret/agent"),
    OSError(5, "Input/output error", "/srv/secret/x"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_a_key_gets_no_locations_and_the_log_has_them(
    tmp_path: Path, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_api(tmp_path) as api:

        async def fail(*_: object, **__: object) -> None:
            raise failure

        api.hub.sessions.list = fail  # type: ignore[method-assign, assignment]
        answers = [(await api.raw("GET", "/v1/sessions")).text]
        answers.append((await api.client.get("/readyz")).text)
        async with site_of(api.hub, signed_in=False) as site:
            token = await api.hub.logins.create_link(Principal(workspace="local"))
            await site.client.get(f"/login?token={token}")
            answers.append((await site.client.get("/")).text)
            answers.append((await site.client.get("/", headers={"x-segue": "1"})).text)
    for answer in answers:
        assert not [secret for secret in SECRETS if secret in answer]
    assert [secret for secret in SECRETS if secret in caplog.text]


async def test_the_local_user_gets_the_locations(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:

        async def fail(*_: object, **__: object) -> None:
            raise errors.StoreCorrupt("damaged: /srv/secret/segue.db")

        api.hub.sessions.list = fail  # type: ignore[method-assign, assignment]
        transport = httpx2.ASGITransport(RestApp(api.hub, principal=LOCAL))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get("/v1/sessions", headers=HEADERS)
            assert "/srv/secret/segue.db" in answer.text
        async with site_of(api.hub, signed_in=False) as site:
            token = await api.hub.logins.create_link(LOCAL)
            await site.client.get(f"/login?token={token}")
            assert "/srv/secret/segue.db" in (await site.client.get("/")).text


class BrokenAgent:
    """Fails with an error that names a file and a host."""

    async def run(self, turn: Turn) -> StopReason:
        raise ConnectionError("no needle at http://10.1.2.3:80/x, see '/srv/secret/log'")


async def test_a_failed_turn_names_locations_to_the_local_user_only(tmp_path: Path) -> None:
    registry = AgentRegistry({"default": lambda _: BrokenAgent()})
    async with open_api(tmp_path, agent_registry=registry) as api:
        session = await api.session()
        events = await api.say(session["id"], "x")
        (shown,) = [event["error"] for event in events if event["type"] == "session.error"]
        assert shown["message"] == "ConnectionError: no needle at (address), see (path)"
        id = ids.parse(session["id"]) or ""
        failures = await api.hub.history.events(LOCAL, id, types=["failed"])
        assert isinstance(failures[0].body, Failed)
        assert "/srv/secret/log" in failures[0].body.message
        await check_all_reads(api.hub, id)


async def check_all_reads(hub: Hub, id: str) -> None:
    """Check that no way of reading a session's events shows locations to a key."""
    key = Principal(workspace="local", key_id="k")
    texts = [str(await hub.history.events(key, id))]
    texts.append(str([event async for event in hub.history.read(key, id)]))
    texts.append(str([event async for event in hub.history.conversation(key, id)]))
    texts.append(str((await hub.sessions.search(key, Query(text="needle"))).matches))
    texts.append(str(await hub.history.find(key, id, "needle")))
    following = hub.history.follow(key, id)
    followed = []
    async for item in following:
        followed.append(item)
        if "needle" in str(item):
            break
    await following.aclose()
    texts.append(str(followed))
    for text in texts:
        assert "needle" in text
        assert not [secret for secret in SECRETS if secret in text]
