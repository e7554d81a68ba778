"""Credentials: their secrets are stored and never shown."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from segue.model import ids
from tests.interfaces.rest.api import Api, open_api

BEARER = {"type": "static_bearer", "mcp_server_url": "https://a.example/mcp", "token": "S3CRET-a"}
VARIABLE = {
    "type": "environment_variable",
    "secret_name": "API_KEY",
    "secret_value": "S3CRET-b",
    "networking": {"type": "limited", "allowed_hosts": ["api.example.com", "*.example.org"]},
}
OAUTH = {
    "type": "mcp_oauth",
    "mcp_server_url": "https://b.example/mcp",
    "access_token": "S3CRET-c",
    "expires_at": "2030-01-01T00:00:00Z",
    "refresh": {
        "client_id": "id",
        "refresh_token": "S3CRET-d",
        "token_endpoint": "https://b.example/token",
        "token_endpoint_auth": {"type": "client_secret_basic", "client_secret": "S3CRET-e"},
        "scope": "read",
    },
}


async def create_vault(api: Api) -> str:
    vault = await api.ok("POST", "/v1/vaults", {"display_name": "v"})
    return f"/v1/vaults/{vault['id']}"


async def decrypted_secrets(api: Api, vault: str, credential: dict[str, Any]) -> dict[str, str]:
    """Return the decrypted secrets of a credential."""
    kind = f"credential:{_id(vault.rsplit('/', 1)[-1])}"
    record = await api.hub.records.get(api.workspace, kind, _id(credential["id"]))
    return {
        name: api.hub.secrets.open(sealed, api.workspace, "credential", record.id, name)
        for name, sealed in record.body["secrets"].items()
    }


def _id(value: str) -> str:
    return ids.parse(value) or ""


@pytest.mark.parametrize("auth", [BEARER, VARIABLE, OAUTH], ids=lambda auth: str(auth["type"]))
async def test_secrets_of_a_credential_are_never_shown(
    tmp_path: Path, auth: dict[str, Any]
) -> None:
    async with open_api(tmp_path) as api:
        vault = await create_vault(api)
        base = f"{vault}/credentials"
        created = await api.ok("POST", base, {"auth": auth, "metadata": {"k": "v"}})
        assert (created["type"], created["auth"]["type"]) == ("vault_credential", auth["type"])
        assert created["vault_id"] == vault.rsplit("/", 1)[-1]
        path = f"{base}/{created['id']}"
        shown = [created, await api.ok("GET", path), await api.ok("GET", base)]
        names = {"display_name": "n", "metadata": {"k": None}}
        shown.append(await api.ok("POST", path, names))
        assert (shown[-1]["display_name"], shown[-1]["metadata"]) == ("n", {})
        results = sorted((await decrypted_secrets(api, vault, created)).values())
        assert results and all(value.startswith("S3CRET") for value in results)
        shown.append(await api.ok("POST", f"{path}/archive"))
        assert await decrypted_secrets(api, vault, created) == {}
        assert (await api.ok("GET", base))["data"] == []
        assert len((await api.ok("GET", base, include_archived="true"))["data"]) == 1
        await api.fails(400, "POST", path, names)
        deleted = await api.ok("DELETE", path)
        assert deleted == {"type": "vault_credential_deleted", "id": created["id"]}
        await api.fails(404, "GET", path)
        stored = b"".join(file.read_bytes() for file in tmp_path.glob("segue.db*"))
        for text in (str(shown), stored.decode("latin-1")):
            assert "S3CRET" not in text


async def test_credential_update_changes_only_the_sent_fields(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        vault = await create_vault(api)
        base = f"{vault}/credentials"
        created = await api.ok("POST", base, {"auth": OAUTH})
        assert created["auth"]["refresh"]["token_endpoint_auth"] == {"type": "client_secret_basic"}
        refresh = {"refresh_token": "S3CRET-new", "scope": ""}
        auth = {"type": "mcp_oauth", "refresh": refresh, "expires_at": None}
        changed = await api.ok("POST", f"{base}/{created['id']}", {"auth": auth})
        assert (changed["auth"]["expires_at"], changed["auth"]["refresh"]["scope"]) == (None, None)
        assert await decrypted_secrets(api, vault, created) == {
            "access_token": "S3CRET-c",
            "refresh_token": "S3CRET-new",
            "client_secret": "S3CRET-e",
        }
        variable = await api.ok("POST", base, {"auth": VARIABLE})
        assert variable["auth"]["injection_location"] == {"header": True, "body": True}
        off = {"type": "environment_variable", "injection_location": {"header": False}}
        path = f"{base}/{variable['id']}"
        assert "cannot be disabled" in await api.fails(400, "POST", path, {"auth": off})
        wide = {"type": "environment_variable", "networking": {"type": "unrestricted"}}
        changed = await api.ok("POST", path, {"auth": {**wide, "secret_value": "S3CRET-z"}})
        assert changed["auth"]["networking"] == {"type": "unrestricted"}
        assert await decrypted_secrets(api, vault, variable) == {"secret_value": "S3CRET-z"}
        assert "type" in await api.fails(400, "POST", path, {"auth": {"type": "static_bearer"}})


async def test_secrets_archived_during_an_update_stay_deleted(
    tmp_path: Path, database: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(tmp_path, database=database) as api:
        vault = await create_vault(api)
        credential = await api.ok("POST", f"{vault}/credentials", {"auth": BEARER})
        path = f"{vault}/credentials/{credential['id']}"
        updates = [api.ok("POST", path, {"metadata": {str(item): "x"}}) for item in range(4)]
        await asyncio.gather(*updates)
        assert (await api.ok("GET", path))["metadata"].keys() == set("0123")
        archived = asyncio.Event()

        async def find_then_archive(*arguments: Any) -> Any:
            record = await find(*arguments)
            if arguments[1].startswith("credential:") and not archived.is_set():
                archived.set()
                await api.ok("POST", f"{path}/archive")
            return record

        find = api.hub.records.find
        with monkeypatch.context() as patch:
            patch.setattr(api.hub.records, "find", find_then_archive)
            token = {"auth": {"type": "static_bearer", "token": "S3CRET-new"}}
            assert "archived" in await api.fails(400, "POST", path, token)
        assert (await api.ok("GET", path))["archived_at"] is not None
        assert await decrypted_secrets(api, vault, credential) == {}


@pytest.mark.parametrize(
    ("resource", "name_field"),
    [("vaults", "display_name"), ("environments", "name"), ("memory_stores", "name")],
)
async def test_credential_archived_during_an_update_stays_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resource: str, name_field: str
) -> None:
    async with open_api(tmp_path) as api:
        created = await api.ok("POST", f"/v1/{resource}", {name_field: "a"})
        path = f"/v1/{resource}/{created['id']}"
        put = api.hub.records.update

        async def update_late(*arguments: Any, **options: Any) -> Any:
            monkeypatch.undo()
            await api.ok("POST", f"{path}/archive")
            return await put(*arguments, **options)

        monkeypatch.setattr(api.hub.records, "update", update_late)
        assert "archived" in await api.fails(400, "POST", path, {name_field: "b"})
        assert (await api.ok("GET", path))["archived_at"] is not None


async def test_vault_has_one_credential_for_each_server_or_variable(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        base = f"{await create_vault(api)}/credentials"
        first = await api.ok("POST", base, {"auth": BEARER})
        assert "already" in await api.fails(409, "POST", base, {"auth": BEARER})
        await api.ok("POST", f"{base}/{first['id']}/archive")
        await api.ok("POST", base, {"auth": BEARER})
        for number in range(19):
            auth = {**BEARER, "mcp_server_url": f"https://{number}.example"}
            await api.ok("POST", base, {"auth": auth})
        surplus = {**BEARER, "mcp_server_url": "https://more.example"}
        assert "at most" in await api.fails(400, "POST", base, {"auth": surplus})


async def test_archiving_or_deleting_a_vault_includes_its_credentials(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        vault = await create_vault(api)
        credential = await api.ok("POST", f"{vault}/credentials", {"auth": BEARER})
        path = f"{vault}/credentials/{credential['id']}"
        other = await create_vault(api)
        await api.fails(404, "GET", f"{other}/credentials/{credential['id']}")
        await api.ok("POST", f"{vault}/archive")
        assert (await api.ok("GET", path))["archived_at"] is not None
        assert await decrypted_secrets(api, vault, credential) == {}
        await api.fails(400, "POST", f"{vault}/credentials", {"auth": BEARER})
        await api.ok("DELETE", vault)
        await api.fails(404, "GET", path)


async def test_validation_of_a_credential_is_unknown(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        base = f"{await create_vault(api)}/credentials"
        created = await api.ok("POST", base, {"auth": OAUTH})
        response = await api.ok("POST", f"{base}/{created['id']}/mcp_oauth_validate")
        assert (response["status"], response["has_refresh_token"]) == ("unknown", True)
        bearer = await api.ok("POST", base, {"auth": BEARER})
        await api.fails(400, "POST", f"{base}/{bearer['id']}/mcp_oauth_validate")


@pytest.mark.parametrize(
    "auth",
    [
        {"type": "static_bearer", "mcp_server_url": "https://a.example", "token": ""},
        {"type": "static_bearer", "mcp_server_url": "ftp://a.example", "token": "t"},
        {**VARIABLE, "secret_name": "1x"},
        {**VARIABLE, "networking": {"type": "limited", "allowed_hosts": ["https://a"]}},
        {**VARIABLE, "injection_location": {"header": False, "body": False}},
        {**OAUTH, "expires_at": "tomorrow"},
        {"type": "unheard"},
        None,
    ],
)
async def test_invalid_credential_is_refused(tmp_path: Path, auth: Any) -> None:
    async with open_api(tmp_path) as api:
        base = f"{await create_vault(api)}/credentials"
        await api.fails(400, "POST", base, {"auth": auth})
        assert (await api.ok("GET", base))["data"] == []
