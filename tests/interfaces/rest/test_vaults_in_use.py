"""Credentials of vaults in use: an agent calls an MCP server that requires a token."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from segue.hub.resources import credentials
from segue.model import ids
from segue.model.event import ConfigChanged
from segue.model.principal import LOCAL, Principal
from tests.agents.provider import Provider, Use
from tests.interfaces.rest.api import Api, open_api
from tests.small_mcp_server import answer, http_server, send

TOKEN = "sesame"


class ProtectedServer:
    """An MCP server that requires `TOKEN`, and its token endpoint."""

    def __init__(self) -> None:
        self.url = ""
        self.token_requests: list[dict[str, str]] = []

    def handle(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        if request.path == "/token":
            self.token_requests.append(dict(parse_qsl(body.decode())))
            tokens = {"access_token": TOKEN, "expires_in": 3600, "refresh_token": "more"}
            accepted = self.token_requests[-1]["refresh_token"] == "again"
            send(request, 200, tokens) if accepted else send(request, 400, {"error": "invalid"})
        elif request.headers["authorization"] != f"Bearer {TOKEN}":
            send(request, 401, {"error": "no"})
        else:
            response = answer(json.loads(body))
            send(request, 202 if response is None else 200, response)


@pytest.fixture
def server() -> Iterator[ProtectedServer]:
    server = ProtectedServer()
    with http_server(server.handle) as server.url:
        yield server


async def create_agent(api: Api, model: Provider, server: ProtectedServer) -> str:
    """Return an agent that may call the server, and let the model call it."""
    await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
    await api.hub.config.set("local", "model.base_url", model.url)
    await api.hub.config.set("local", "web.private", "true")
    policy = {"permission_policy": {"type": "always_allow"}}
    agent = await api.agent(
        mcp_servers=[{"type": "url", "name": "adder", "url": f"{server.url}/mcp"}],
        tools=[{"type": "mcp_toolset", "mcp_server_name": "adder", "default_config": policy}],
    )
    return str(agent["id"])


async def create_vault(api: Api, auth: dict[str, Any]) -> tuple[str, str]:
    created = await api.ok("POST", "/v1/vaults", {"display_name": "v"})
    path = f"/v1/vaults/{created['id']}/credentials"
    credential = await api.ok("POST", path, {"auth": auth})
    return created["id"], f"{path}/{credential['id']}"


async def new_events(api: Api, model: Provider, session: str) -> list[dict[str, Any]]:
    model.scripts.append([Use("mcp__adder__add", {"a": 2, "b": 40})])
    return await api.say(session, "Add")


def results(events: list[dict[str, Any]]) -> list[str]:
    return [e["content"][0]["text"] for e in events if e["type"] == "agent.mcp_tool_result"]


async def test_mcp_server_receives_the_token_of_the_vault_and_no_response_shows_it(
    tmp_path: Path, model: Provider, server: ProtectedServer
) -> None:
    async with model, open_api(tmp_path) as api:
        agent = await create_agent(api, model, server)
        # The URL is compared, not its notation.
        url = f"{server.url}/mcp/"
        empty = (await api.ok("POST", "/v1/vaults", {"display_name": "e"}))["id"]
        auth = {"type": "static_bearer", "mcp_server_url": url, "token": TOKEN}
        vault_id, _ = await create_vault(api, auth)
        session = (await api.session(agent=agent, vault_ids=[empty, vault_id]))["id"]
        response = await new_events(api, model, session)
        assert results(response) == ["42"]
        assert TOKEN not in str(response) and TOKEN not in str(model.requests)
        stored = b"".join(item.read_bytes() for item in tmp_path.glob("segue.db*"))
        assert TOKEN.encode() not in stored


async def test_session_without_a_token_has_an_authentication_error(
    tmp_path: Path, model: Provider, server: ProtectedServer
) -> None:
    async with model, open_api(tmp_path) as api:
        agent = await create_agent(api, model, server)
        auth = {"type": "static_bearer", "mcp_server_url": f"{server.url}/mcp", "token": "no"}
        wrong, credential = await create_vault(api, auth)
        for vaults in ([], [wrong]):
            session = (await api.session(agent=agent, vault_ids=vaults))["id"]
            response = await api.say(session, "Add")
            (error,) = [item["error"] for item in response if item["type"] == "session.error"]
            assert error["type"] == "mcp_authentication_failed_error"
            assert error["mcp_server_name"] == "adder"
        # A corrected token is used from the next turn on.
        change = {"auth": {"type": "static_bearer", "token": TOKEN}}
        await api.ok("POST", credential, change)
        assert results(await new_events(api, model, session)) == ["42"]


@pytest.mark.parametrize("how", ["expired", "refused"])
async def test_expired_token_is_renewed_and_stored(
    tmp_path: Path, model: Provider, server: ProtectedServer, how: str
) -> None:
    async with model, open_api(tmp_path) as api:
        agent = await create_agent(api, model, server)
        auth = {
            "type": "mcp_oauth",
            "mcp_server_url": f"{server.url}/mcp",
            "access_token": "stale",
            "expires_at": "2020-01-01T00:00:00Z" if how == "expired" else None,
            "refresh": {
                "client_id": "us",
                "refresh_token": "again",
                "token_endpoint": f"{server.url}/token",
                "token_endpoint_auth": {"type": "client_secret_post", "client_secret": "hush"},
                "scope": "add",
            },
        }
        vault_id, credential = await create_vault(api, auth)
        session = (await api.session(agent=agent, vault_ids=[vault_id]))["id"]
        # A key chose the token endpoint, so it is not used at a private address without a setting.
        new_session = await api.hub.sessions.get(api.principal, ids.parse(session) or "")
        keyring = api.hub.credentials.keyring(new_session, private=False, local=True)
        assert await keyring.token(f"{server.url}/mcp", "stale") is None
        assert server.token_requests == []
        assert results(await new_events(api, model, session)) == ["42"]
        (request,) = server.token_requests
        expected = {"refresh_token": "again", "client_id": "us", "client_secret": "hush"}
        assert expected.items() <= request.items() and "add" in request["scope"]
        shown = await api.ok("GET", credential)
        assert shown["auth"]["expires_at"] > "2026"
        # The new tokens are stored: another process does not renew them again.
        stored_session = await api.hub.sessions.get(api.principal, ids.parse(session) or "")
        keyring = api.hub.credentials.keyring(stored_session, private=True, local=False)
        assert await keyring.token(f"{server.url}/mcp") == TOKEN
        assert await keyring.token(f"{server.url}/mcp", TOKEN) is None  # `more` is refused


async def test_token_is_sent_only_to_its_server_and_in_its_workspace(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        url = "https://a.example/mcp"
        auth = {"type": "static_bearer", "mcp_server_url": url, "token": TOKEN}
        vault_id, credential = await create_vault(api, auth)
        session = await api.session(vault_ids=[vault_id])
        stored_session = await api.hub.sessions.get(api.principal, ids.parse(session["id"]) or "")
        keyring = api.hub.credentials.keyring(stored_session, private=False, local=False)
        assert await keyring.token("HTTPS://A.example:443/mcp/") == TOKEN
        for other in ("http://a.example/mcp", "https://a.example/", "https://b.example/mcp", "x"):
            assert await keyring.token(other) is None
        await api.ok("POST", f"{credential}/archive")
        assert await keyring.token(url) is None


async def test_secrets_archived_during_a_renewal_stay_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(tmp_path) as api:
        refresh = {
            "client_id": "us",
            "refresh_token": "again",
            "token_endpoint": "https://a.example/token",
            "token_endpoint_auth": {"type": "none"},
        }
        url = "https://a.example/mcp"
        auth = {"type": "mcp_oauth", "mcp_server_url": url, "access_token": "stale"}
        vault_id, credential = await create_vault(api, {**auth, "refresh": refresh})
        session = await api.session(vault_ids=[vault_id])

        async def archive_then_answer(*_: Any, **options: Any) -> dict[str, Any]:
            await api.ok("POST", f"{credential}/archive")
            return {"access_token": "new", "refresh_token": "more"}

        monkeypatch.setattr(credentials, "_exchange", archive_then_answer)
        stored_session = await api.hub.sessions.get(api.principal, ids.parse(session["id"]) or "")
        keyring = api.hub.credentials.keyring(stored_session, private=False, local=False)
        assert await keyring.token(url, "stale") is None
        assert (await api.ok("GET", credential))["archived_at"] is not None
        assert await keyring.token(url) is None


def variable(name: str, value: str, **networking: Any) -> dict[str, Any]:
    where = networking or {"type": "unrestricted"}
    names = {"secret_name": name, "secret_value": value}
    return {"type": "environment_variable", "networking": where, **names}


def shown(events: list[dict[str, Any]]) -> list[str]:
    return [item["content"][0]["text"] for item in events if item["type"] == "agent.tool_result"]


async def test_programs_have_the_variables_of_a_vault_and_no_response_shows_them(
    tmp_path: Path, model: Provider
) -> None:
    secret = 'plover\'s "$HOME"\nxyzzy'
    async with model, open_api(tmp_path / "data") as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        first, credential = await create_vault(api, variable("API_KEY", secret))
        second, _ = await create_vault(api, variable("API_KEY", "of another"))
        path = f"/v1/vaults/{second}/credentials"
        hosts = {"type": "limited", "allowed_hosts": ["api.example.com"]}
        await api.ok("POST", path, {"auth": variable("HELD_BACK", "elsewhere", **hosts)})
        agent = await api.agent(tools=[{"type": "agent_toolset_20260401"}])
        session = (await api.session(agent=agent["id"], vault_ids=[first, second]))["id"]

        async def run_command(command: str) -> str:
            model.scripts.append([Use("bash", {"command": command})])
            return shown(await api.say(session, "on"))[-1]

        assert await run_command('printf %s "$API_KEY" | wc -c') == f"{len(secret)}\n"
        assert (
            await run_command('echo "<$API_KEY>"; echo ${HELD_BACK-none}') == "<[API_KEY]>\nnone\n"
        )
        response = await run_command('X=1; env; printf %s "$API_KEY" > kept; cat kept')
        assert "API_KEY=[API_KEY]" in response and response.endswith("[API_KEY]")
        model.scripts.append([Use("read", {"file_path": "kept"})])
        assert "[API_KEY]" in shown(await api.say(session, "on"))[-1]
        assert "API_KEY" in str(model.requests[0]["system"])
        # The next turn has a new shell with the new value, and none once the credential is deleted.
        change = {"auth": {"type": "environment_variable", "secret_value": "plugh77"}}
        await api.ok("POST", credential, change)
        assert await run_command("printf %s $API_KEY | wc -c; echo ${X-none}") == "7\nnone\n"
        # A variable of the dynamic loader does not affect the sandbox.
        await api.ok("POST", path, {"auth": variable("LD_PRELOAD", "/nowhere.so")})
        assert await run_command("echo $LD_PRELOAD") == "[LD_PRELOAD]\n"
        for item in (first, second):
            await api.ok("POST", f"/v1/vaults/{item}/archive")
        assert await run_command("echo ${API_KEY-none}") == "none\n"
        assert "API_KEY" not in str(model.requests[-1]["system"])
        recorded_text = str(await api.events(session)) + str(model.requests)
        assert "xyzzy" not in recorded_text and "plugh77" not in recorded_text
        stored = b"".join(item.read_bytes() for item in (tmp_path / "data").glob("segue.db*"))
        assert b"xyzzy" not in stored


async def test_variables_of_keys_do_not_reach_programs_of_the_local_user(
    tmp_path: Path, model: Provider
) -> None:
    """One such as PATH or LD_PRELOAD would choose the code that runs with the user's rights."""
    async with model, open_api(tmp_path / "data") as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        vault, _ = await create_vault(api, variable("OF_KEY", "evil"))
        record = await api.hub.records.get("local", "vault", ids.parse(vault) or "")
        auth = {**variable("OWN", "secret"), "injection_location": None}
        await api.hub.credentials.create(LOCAL, record, auth, display_name=None, metadata={})
        session = await api.session(vault_ids=[vault])
        id = ids.parse(session["id"]) or ""
        await api.hub.editor.configure(LOCAL, id, ConfigChanged(mode="bypassPermissions"))

        async def variables(principal: Principal) -> str:
            model.scripts.append([Use("bash", {"command": "echo ${OF_KEY-none} ${OWN-none}"})])
            await api.hub.turns.run(principal, id, "on")
            return shown(await api.events(session["id"]))[-1]

        assert await variables(api.principal) == "[OF_KEY] [OWN]\n"
        assert await variables(LOCAL) == "none [OWN]\n"
        change = {"auth": {"type": "environment_variable", "secret_value": "plugh77"}}
        await api.ok("POST", await newest_credential(api, vault), change)
        assert await variables(LOCAL) == "none none\n"


async def newest_credential(api: Api, vault: str) -> str:
    """Return the path of the newest credential of a vault."""
    path = f"/v1/vaults/{vault}/credentials"
    return f"{path}/{(await api.ok('GET', path))['data'][0]['id']}"
