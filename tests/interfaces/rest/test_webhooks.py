"""Webhooks announce what happens in a workspace, signed as official clients verify it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from anthropic import Anthropic
from anthropic.types.beta import beta_webhook_event_data
from standardwebhooks import WebhookVerificationError

from segue.hub.webhooks import dispatcher, service
from segue.interfaces.rest.routes import ROUTES
from segue.model import clock, ids
from segue.model.webhooks.notices import TYPES
from tests.interfaces.rest.api import Api, open_api
from tests.webhook_receiver import NO_CONTENT, Received, Receiver, open_receiver

WEBHOOKS = "/v1/webhooks"
ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"


@asynccontextmanager
async def delivering(api: Api) -> AsyncIterator[None]:
    """Deliver webhooks as a server does."""
    task = asyncio.create_task(api.hub.webhook_dispatcher.run(asyncio.Event()))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def create(api: Api, receiver: Receiver, *types: str) -> dict[str, Any]:
    return await api.ok("POST", WEBHOOKS, {"url": receiver.url, "event_types": [*types] or ["*"]})


def unwrap(received: Received, secret: str) -> Any:
    client = Anthropic(api_key="unused", base_url="http://127.0.0.1:9", webhook_key=secret)
    return client.beta.webhooks.unwrap(received.body, headers=received.headers)


async def deliveries(api: Api, webhook: dict[str, Any]) -> list[dict[str, Any]]:
    return (await api.ok("GET", f"{WEBHOOKS}/{webhook['id']}/deliveries", limit=100))["data"]


async def test_turn_is_announced_and_verified_by_the_official_client(
    tmp_path: Path, database: str | None
) -> None:
    async with open_api(tmp_path, database=database) as api, open_receiver() as receiver:
        webhook = await create(api, receiver)
        assert webhook["secret"].startswith("whsec_")
        assert "secret" not in await api.ok("GET", f"{WEBHOOKS}/{webhook['id']}")
        async with delivering(api):
            session = (await api.session())["id"]
            await api.say(session, "hello")
            await api.ok("POST", f"/v1/sessions/{session}", {"title": "New"})
            await api.ok("POST", f"/v1/sessions/{session}/archive")
            await api.ok("DELETE", f"/v1/sessions/{session}")
            await receiver.wait_for(10)
            async with asyncio.timeout(30):
                while any(row["status"] != "delivered" for row in await deliveries(api, webhook)):
                    await asyncio.sleep(0.01)
            requests, connections = receiver.requests[:], receiver.connections
            await api.session()
            await receiver.wait_for(11)
            assert receiver.connections == connections  # idle connections are used again
        events = [unwrap(request, webhook["secret"]) for request in requests]
        by_type = {event.data.type: event for event in events}
        assert {
            "session.created",
            "session.status_run_started",
            "session.running",
            "session.status_idled",
            "session.idled",
            "session.updated",
            "session.archived",
            "session.status_terminated",
            "session.deleted",
        } <= set(by_type)
        for event in events:
            assert event.type == "event" and event.data.workspace_id == "local"
            if event.data.type.startswith("session."):
                assert event.data.id == session
        assert len({event.id for event in events}) == len(events)
        created = by_type["session.created"]
        assert abs((datetime.now(UTC) - created.created_at).total_seconds()) < 300
        with pytest.raises(WebhookVerificationError):
            unwrap(receiver.requests[0], service.signing.new_secret())


async def test_resources_are_announced_by_type(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api, open_receiver() as receiver:
        wanted = {
            "agent.created",
            "agent.updated",
            "agent.archived",
            "environment.updated",
            "vault_credential.created",
            "vault_credential.deleted",
            "vault.deleted",
            "memory_store.created",
            "deployment.created",
            "deployment.paused",
            "deployment.unpaused",
            "deployment_run.started",
            "deployment_run.succeeded",
        }
        webhook = await create(api, receiver, *wanted)
        async with delivering(api):
            agent = await api.agent()
            path = f"/v1/agents/{agent['id']}"
            await api.ok("POST", path, {"version": 1, "name": "b"})
            environment = await api.environment()
            await api.ok("POST", f"/v1/environments/{environment}", {"name": "f"})
            vault = (await api.ok("POST", "/v1/vaults", {"display_name": "v"}))["id"]
            auth = {"type": "static_bearer", "token": "t", "mcp_server_url": "https://a.example"}
            await api.ok("POST", f"/v1/vaults/{vault}/credentials", {"auth": auth})
            await api.ok("DELETE", f"/v1/vaults/{vault}")
            await api.ok("POST", "/v1/memory_stores", {"name": "m"})
            deployment = await api.ok(
                "POST",
                "/v1/deployments",
                {
                    "name": "d",
                    "agent": await api.built_in("agents"),
                    "environment_id": environment,
                    "initial_events": [
                        {"type": "user.message", "content": [{"type": "text", "text": "hi"}]}
                    ],
                },
            )
            for action in ("pause", "unpause", "run"):
                await api.ok("POST", f"/v1/deployments/{deployment['id']}/{action}")
            await api.ok("POST", path + "/archive")
            await receiver.wait_for(len(wanted))
        assert set(receiver.types) == wanted
        for request in receiver.requests:
            event = unwrap(request, webhook["secret"])
            if event.data.type == "vault_credential.created":
                assert event.data.vault_id == vault and event.data.id.startswith("vcrd_")
            if event.data.type.startswith("deployment."):
                assert event.data.id == deployment["id"]


def test_every_type_of_the_official_client_is_announced_or_refused() -> None:
    union = get_args(get_args(beta_webhook_event_data.BetaWebhookEventData)[0])
    types = {get_args(data.model_fields["type"].annotation)[0] for data in union}
    assert types == {*TYPES, *service.ABSENT_TYPES}
    for data in union:  # the fields that our payloads have
        fields = {*data.model_fields} - {"id", "type", "organization_id", "workspace_id"}
        assert fields <= {"vault_id", "session_thread_id", "enforcement_action_id"}


async def test_failed_delivery_is_retried_after_a_restart(
    tmp_path: Path, database: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "RETRY_SECONDS", (0.05, 3600))
    monkeypatch.setattr(dispatcher, "MAX_PAUSE_SECONDS", 0.05)
    async with open_receiver() as receiver:
        receiver.answer = lambda _: ERROR
        async with open_api(tmp_path, database=database) as api:
            webhook = await create(api, receiver, "agent.created")
            async with delivering(api):
                await api.agent()
                await receiver.wait_for(2)
        receiver.answer = lambda _: NO_CONTENT
        later = clock.now() + 5000 * clock.SECOND  # the longest time until a retry is 4320
        async with open_api(tmp_path, database=database) as api:
            row = (await deliveries(api, webhook))[0]
            assert row["status"] == "pending" and len(row["attempts"]) == 2
            assert [attempt["status_code"] for attempt in row["attempts"]] == [500, 500]
            monkeypatch.setattr(clock, "now", lambda: later)
            async with delivering(api):
                await receiver.wait_for(3)
            await api.hub.webhook_dispatcher.close()
            row = (await deliveries(api, webhook))[0]
            assert row["status"] == "delivered" and row["next_attempt_at"] is None
    first, *others = receiver.requests
    assert all(other.body == first.body for other in others)
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1
    # Each attempt has a signature of its own time, so that receivers accept it hours later.
    assert int(others[-1].headers["webhook-timestamp"]) > time.time() + 3000


async def test_several_servers_deliver_each_event_once(
    tmp_path: Path, database: str | None
) -> None:
    async with (
        open_receiver() as receiver,
        open_api(tmp_path, database=database) as one,
        open_api(tmp_path, database=database) as two,
    ):
        await create(one, receiver, "agent.created", "session.created")
        async with delivering(one), delivering(two):
            for _ in range(20):
                await one.agent()
                await two.session()
            await receiver.wait_for(40)
            await asyncio.sleep(0.2)
        events = [request.headers["webhook-id"] for request in receiver.requests]
        assert len(events) == len(set(events)) == 40


async def test_server_that_died_leaves_its_deliveries_to_another(tmp_path: Path) -> None:
    async with open_receiver() as receiver:
        async with open_api(tmp_path) as api:
            await create(api, receiver, "agent.created")
            await api.agent()
            now = clock.now()
            claimed = await api.hub.store.claim_deliveries(now=now, until=now + 1, limit=10)
            assert len(claimed) == 1  # and nothing more: the process is killed
        async with open_api(tmp_path) as api, delivering(api):
            await receiver.wait_for(1)


async def test_unreadable_encryption_key_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatcher, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(dispatcher, "CLAIM_SECONDS", 0)
    tries = []
    target = dispatcher.Dispatcher._target

    async def count(self: Any, delivery: Any) -> Any:
        tries.append(delivery)
        return await target(self, delivery)

    monkeypatch.setattr(dispatcher.Dispatcher, "_target", count)
    async with open_receiver() as receiver:
        async with open_api(tmp_path) as api:
            await create(api, receiver, "agent.created")
            await api.agent()
        (tmp_path / "secret.key").unlink()
        async with open_api(tmp_path) as api, delivering(api), asyncio.timeout(60):
            while len(tries) < 5:
                await asyncio.sleep(0.01)
    (record,) = (line for line in caplog.records if "could not be delivered" in line.message)
    assert "cannot read the encryption key" in record.message


async def test_slow_webhook_does_not_delay_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "MAX_IN_FLIGHT_PER_WEBHOOK", 2)
    async with open_receiver() as slow, open_receiver() as quick, open_api(tmp_path) as api:
        slow.answer = lambda _: b"HTTP/1.1 200 OK\r\n"  # the answer never ends
        await create(api, slow, "agent.created")
        await create(api, quick, "agent.created")
        async with delivering(api):
            for _ in range(10):
                await api.agent()
            await quick.wait_for(10)
            assert len(slow.requests) <= 2


async def test_rotated_secret_is_valid_together_with_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(tmp_path) as api, open_receiver() as receiver:
        webhook = await create(api, receiver, "session.created", "session.deleted")
        path = f"{WEBHOOKS}/{webhook['id']}"
        rotated = await api.ok("POST", path + "/rotate_secret", {"overlap_seconds": 60})
        assert rotated["secret"] != webhook["secret"]
        assert rotated["previous_secret_expires_at"] is not None
        await api.ok("POST", path + "/test", {"event_type": "session.deleted"})
        for secret in (webhook["secret"], rotated["secret"]):
            assert unwrap(receiver.requests[-1], secret).data.type == "session.deleted"
        now = clock.now()
        monkeypatch.setattr(clock, "now", lambda: now + 61 * clock.SECOND)
        sent = await api.ok("POST", path + "/test")
        assert sent["status"] == "delivered" and sent["test"]
        assert unwrap(receiver.requests[-1], rotated["secret"]).data.type == "session.created"
        with pytest.raises(WebhookVerificationError):
            unwrap(receiver.requests[-1], webhook["secret"])
        assert (await api.ok("GET", path))["previous_secret_expires_at"] is None


async def test_delivery_can_be_sent_again_and_is_logged(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api, open_receiver() as receiver:
        webhook = await create(api, receiver, "agent.created")
        path = f"{WEBHOOKS}/{webhook['id']}/deliveries"
        async with delivering(api):
            for _ in range(3):
                await api.agent()
            await receiver.wait_for(3)
        await api.hub.webhook_dispatcher.close()
        page = await api.ok("GET", path, limit=2)
        rest = await api.ok("GET", path, limit=2, page=page["next_page"])
        rows = [*page["data"], *rest["data"]]
        assert len(rows) == 3 and rest["next_page"] is None
        assert [row["id"] for row in rows] == sorted((row["id"] for row in rows), reverse=True)
        again = await api.ok("POST", f"{path}/{rows[0]['id']}/resend")
        assert again["event_id"] == rows[0]["event_id"] and again["id"] != rows[0]["id"]
        assert receiver.requests[-1].headers["webhook-id"] == rows[0]["event_id"]
        assert await api.ok("GET", f"{path}/{again['id']}") == again
        await api.fails(404, "GET", f"{path}/999")
        await api.fails(404, "GET", f"{path}/x")


async def test_answers_that_are_not_success_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.hub.webhooks.post.REQUEST_SECONDS", 0.2)
    async with open_api(tmp_path) as api, open_receiver() as receiver, open_receiver() as target:
        webhook = await create(api, receiver, "agent.created")
        redirect = f"HTTP/1.1 307 Moved\r\nLocation: {target.url}\r\nContent-Length: 0\r\n\r\n"
        answers: list[tuple[bytes, int | None, str | None]] = [
            (redirect.encode(), 307, None),
            (b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nno!!!", 404, None),
            (b"", None, "closed the connection"),
            (b"HTTP/1.1 200", None, "no answer within"),
            (b"SSH-2.0-OpenSSH\r\n\r\n", None, "not HTTP"),
            (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, None, ""),
            (b"HTTP/1.1 100 Continue\r\n\r\n" + NO_CONTENT, 204, None),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 90_000, 200, None),
            (
                b"HTTP/1.1 202 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
                202,
                None,
            ),
        ]
        for answer, status, error in answers:
            receiver.answer = lambda _, answer=answer: answer  # type: ignore[misc]
            sent = await api.ok("POST", f"{WEBHOOKS}/{webhook['id']}/test")
            (attempt,) = sent["attempts"]
            assert attempt["status_code"] == status, (answer[:30], attempt)
            assert (attempt["error"] is None) == (error is None)
            assert error is None or error in attempt["error"]
            success = status is not None and status < 300
            assert sent["status"] == ("delivered" if success else "failed")
        assert not target.requests


async def test_webhook_that_is_gone_or_dead_is_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(tmp_path) as api, open_receiver() as gone, open_receiver() as dead:
        gone.answer = lambda _: b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"
        dead.answer = lambda _: ERROR
        monkeypatch.setattr(dispatcher, "RETRY_SECONDS", ())
        hooks = [await create(api, gone, "agent.created"), await create(api, dead, "agent.created")]
        async with delivering(api):
            await api.agent()
            for webhook in hooks:
                async with asyncio.timeout(30):
                    while (shown := await api.ok("GET", f"{WEBHOOKS}/{webhook['id']}"))["enabled"]:
                        await asyncio.sleep(0.02)
                assert shown["disabled_reason"]
            await api.agent()  # is announced to neither
        assert len(gone.requests) == len(dead.requests) == 1
        path = f"{WEBHOOKS}/{hooks[0]['id']}"
        assert "disabled" in await api.fails(409, "POST", path + "/test")
        enabled = await api.ok("POST", path, {"enabled": True})
        assert enabled["enabled"] and enabled["disabled_reason"] is None


async def test_server_on_the_network_reaches_public_addresses_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_receiver() as receiver,
        open_api(tmp_path, private_webhooks=False) as api,
    ):
        for host in ("127.0.0.1", "localhost", "10.0.0.1", "[::1]", "[::ffff:127.0.0.1]"):
            body = {"url": f"http://{host}:{receiver.port}/", "event_types": ["agent.created"]}
            assert "public" in await api.fails(400, "POST", WEBHOOKS, body)
        # Names are checked when they are resolved, at each connection.
        monkeypatch.setattr(
            asyncio.get_running_loop(), "getaddrinfo", _resolve_to("93.184.216.34", "127.0.0.1")
        )
        body = {
            "url": f"http://rebind.example:{receiver.port}/",
            "event_types": ["agent.created"],
        }
        webhook = await api.ok("POST", WEBHOOKS, body)
        sent = await api.ok("POST", f"{WEBHOOKS}/{webhook['id']}/test")
        assert sent["status"] == "failed"
        assert "not on the public internet" in sent["attempts"][0]["error"]
        assert not receiver.requests and not receiver.connections


def _resolve_to(*addresses: str) -> Any:
    async def getaddrinfo(host: str, port: int, **_: Any) -> Any:
        return [(2, 1, 6, "", (address, port)) for address in addresses]

    return getaddrinfo


async def test_bad_webhooks_are_refused_by_name(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        good = {"url": "https://example.com/hook", "event_types": ["agent.created"]}
        for url in (
            "ftp://example.com",
            "https://",
            "example.com",
            "https://user:pass@example.com",
            "https://example.com/#a",
            "https://example.com/a b",
            "https://example.com/\u00e9",
            "https://example.com:99999",
            "https://example.com/\r\nX: y",
            "https://example.com:0/",
        ):
            assert await api.fails(400, "POST", WEBHOOKS, {**good, "url": url}), url
        for type in ("session.pending", "agent.deleted", "user_profile.program_status_updated"):
            error = await api.fails(400, "POST", WEBHOOKS, {**good, "event_types": [type]})
            assert type in error and "never occurs" in error
        error = await api.fails(400, "POST", WEBHOOKS, {**good, "event_types": ["session.x"]})
        assert "session.x" in error
        await api.fails(400, "POST", WEBHOOKS, {**good, "event_types": []})
        await api.fails(400, "POST", WEBHOOKS, {**good, "enabled": True})
        webhook = await api.ok("POST", WEBHOOKS, good)
        path = f"{WEBHOOKS}/{webhook['id']}"
        error = await api.fails(400, "POST", path, {"event_types": ["session.pending"]})
        assert "session.pending" in error
        await api.fails(400, "POST", path, {"url": "ftp://x"})
        await api.fails(400, "POST", path + "/rotate_secret", {"overlap_seconds": -1})
        await api.fails(400, "POST", path + "/test", {"event_type": "nothing"})
        changed = await api.ok("POST", path, {"description": "d", "url": "https://example.org/"})
        assert changed["description"] == "d" and changed["url"] == "https://example.org/"


async def test_webhooks_of_a_workspace_are_its_own(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api, open_receiver() as receiver:
        webhook = await create(api, receiver, "agent.created")
        neighbour = await api.other("another")
        path = f"{WEBHOOKS}/{webhook['id']}"
        assert (await neighbour.ok("GET", WEBHOOKS))["data"] == []
        for endpoint in ROUTES:
            if endpoint.path.startswith("/v1/webhooks/{webhook_id}"):
                tail = endpoint.path.removeprefix("/v1/webhooks/{webhook_id}")
                body = {} if endpoint.method == "POST" else None
                url = path + tail.replace("{delivery_id}", "1")
                await neighbour.fails(404, endpoint.method, url, body)
        async with delivering(api):
            await neighbour.agent()
            await api.agent(name="mine")
            await receiver.wait_for(1)
            await asyncio.sleep(0.1)
        assert len(receiver.requests) == 1
        assert unwrap(receiver.requests[0], webhook["secret"]).data.workspace_id == "local"
        assert len(await deliveries(api, webhook)) == 1


async def test_deleted_webhook_leaves_nothing_and_secrets_are_encrypted(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api, open_receiver() as receiver:
        body = {"url": receiver.url, "event_types": ["agent.created"]}
        headers = {"idempotency-key": "k"}
        first = await api.raw("POST", WEBHOOKS, json=body, headers=headers)
        again = await api.raw("POST", WEBHOOKS, json=body, headers=headers)
        assert first.json() == again.json()
        secret = first.json()["secret"]
        await api.agent()
        id = first.json()["id"]
        await api.ok("DELETE", f"{WEBHOOKS}/{id}")
        await api.fails(404, "GET", f"{WEBHOOKS}/{id}")
        assert await api.hub.store.deliveries("local", ids.parse(id) or "") == []
        assert await api.hub.store.next_delivery() is None
        await api.agent()
        assert await api.hub.store.next_delivery() is None
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("segue.db*"))
    assert secret.encode() not in stored
    assert secret.removeprefix("whsec_").encode() not in stored
