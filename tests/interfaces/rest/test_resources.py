"""Resources of sessions: files and repositories, which are really cloned, and their tokens."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from segue.model import ids
from tests.interfaces.rest.api import open_api
from tests.interfaces.rest.test_files import upload_file

TOKEN = "ghp_the_token_itself"


def git(*arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    position = tmp_path / "origin" / "project.git"
    git("init", "-q", "-b", "main", str(position))
    for number, branch in enumerate(("main", "other")):
        if number:
            git("-C", str(position), "checkout", "-q", "-b", branch)
        (position / "file").write_text(branch)
        git("-C", str(position), "add", "file")
        git("-C", str(position), "commit", "-q", "-m", branch)
    git("-C", str(position), "checkout", "-q", "main")
    return position


async def test_repository_is_cloned_to_its_mount_path(tmp_path: Path, repository: Path) -> None:
    url = f"file://{repository}"
    first = git("-C", str(repository), "rev-parse", "main")
    async with open_api(tmp_path / "data", clone=[f"file://{tmp_path}/"]) as api:
        for checkout, text in (
            (None, "main"),
            ({"type": "branch", "name": "other"}, "other"),
            ({"type": "commit", "sha": first}, "main"),
        ):
            sent = {"type": "github_repository", "url": url, "authorization_token": TOKEN}
            session = await api.session(resources=[{**sent, "checkout": checkout}])
            (shown,) = session["resources"]
            assert (shown["url"], shown["checkout"]) == (url, checkout)
            assert shown["mount_path"] == "/workspace/project"
            clone = api.directory(session) / "workspace/project"
            assert (clone / "file").read_text() == text
            assert TOKEN not in (clone / ".git/config").read_text()
            assert await api.events(session["id"]) == []
            assert [item.name for item in clone.parent.iterdir()] == ["project"]


@pytest.mark.parametrize(
    ("name", "checkout", "kind"),
    [
        ("nowhere", None, "repository_not_found_error"),
        ("project.git", {"type": "branch", "name": "none"}, "repository_checkout_error"),
        ("project.git", {"type": "commit", "sha": "0" * 40}, "repository_checkout_error"),
    ],
)
async def test_failed_clone_is_reported_and_the_session_continues(
    tmp_path: Path, repository: Path, name: str, checkout: Any, kind: str
) -> None:
    url = f"file://{repository.parent}/{name}"
    async with open_api(tmp_path / "data", clone=["file://"]) as api:
        sent = {"type": "github_repository", "url": url, "mount_path": "/repo"}
        session = await api.session(resources=[{**sent, "checkout": checkout}])
        (event,) = await api.events(session["id"])
        assert (event["type"], event["error"]["type"]) == ("session.error", kind)
        assert event["error"]["retry_status"] == {"type": "retrying"}
        assert list(api.directory(session).iterdir()) == []
        message_sent = [item["type"] for item in await api.say(session["id"], "/say on")]
        assert "agent.message" in message_sent


async def test_only_allowed_hosts_are_cloned_from(tmp_path: Path, repository: Path) -> None:
    async with open_api(tmp_path / "data", clone=["https://example.com/"]) as api:
        sent = {"type": "github_repository", "url": f"file://{repository}"}
        session = await api.session(resources=[sent])
        assert list(api.directory(session).iterdir()) == []
        (error,) = await api.events(session["id"])
        assert error["type"] == "session.error"
        assert "does not clone repositories from there" in error["error"]["message"]
        for url in ("ext::sh -c true", "--upload-pack=true", "ssh://example.com/x", "/etc"):
            body = {"agent": session["agent"]["id"], "environment_id": session["environment_id"]}
            body["resources"] = [{"type": "github_repository", "url": url}]
            await api.fails(400, "POST", "/v1/sessions", body)


async def test_repository_token_is_encrypted_replaced_and_deleted(
    tmp_path: Path, repository: Path
) -> None:
    async with open_api(tmp_path / "data", clone=["file://"]) as api:
        sent = {"type": "github_repository", "url": f"file://{repository}"}
        session = await api.session(resources=[{**sent, "authorization_token": TOKEN}])
        path = f"/v1/sessions/{session['id']}/resources/{session['resources'][0]['id']}"
        results = await api.hub.sessions.get(api.principal, ids.parse(session["id"]) or "")
        resource = results.resources[0]
        assert await api.hub.mounts.get_token(results, resource) == TOKEN
        changed = await api.ok("POST", path, {"authorization_token": "ghp_another_one"})
        assert changed["updated_at"] > changed["created_at"]
        assert await api.hub.mounts.get_token(results, resource) == "ghp_another_one"
        stored = b"".join(file.read_bytes() for file in (tmp_path / "data").glob("segue.db*"))
        for secret in (TOKEN, "ghp_another_one"):
            assert secret.encode() not in stored
            assert secret not in str(await api.ok("GET", f"/v1/sessions/{session['id']}"))
            assert secret not in str(await api.events(session["id"]))
        assert (await api.ok("DELETE", path))["type"] == "session_resource_deleted"
        assert await api.hub.mounts.get_token(results, resource) is None
        assert (await api.ok("GET", f"/v1/sessions/{session['id']}"))["resources"] == []
        assert (api.directory(session) / "workspace/project/file").exists()  # it may have changes


async def test_clone_is_retried_until_its_origin_is_available(
    tmp_path: Path, repository: Path
) -> None:
    hidden = repository.rename(repository.with_name("hidden"))
    async with open_api(tmp_path / "data", clone=["file://"]) as api:
        sent = {"type": "github_repository", "url": f"file://{repository}"}
        session = await api.session(resources=[sent])
        hidden.rename(repository)
        path = f"/v1/sessions/{session['id']}/resources/{session['resources'][0]['id']}"
        await api.ok("POST", path, {"authorization_token": TOKEN})
        await api.hub.workdirs.wait_mounted()
        assert (api.directory(session) / "workspace/project/file").read_text() == "main"


async def test_mounted_file_is_a_copy_that_belongs_to_the_session(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        file = await upload_file(api, b"one")
        sent = {"type": "file", "file_id": file["id"], "mount_path": "/data/a.txt"}
        session = await api.session(resources=[sent])
        (mounted,) = session["resources"]
        assert mounted["file_id"] != file["id"]
        assert (api.directory(session) / "data/a.txt").read_bytes() == b"one"
        loose = await api.session(resources=[{**sent, "mount_path": "b/c.txt"}])
        assert loose["resources"][0]["mount_path"] == "/uploads/b/c.txt"
        assert (api.directory(loose) / "uploads/b/c.txt").read_bytes() == b"one"
        scoped = (await api.ok("GET", "/v1/files", scope_id=session["id"]))["data"]
        assert [item["id"] for item in scoped] == [mounted["file_id"]]
        assert scoped[0]["scope"] == {"type": "session", "id": session["id"]}
        await api.ok("DELETE", f"/v1/files/{file['id']}")
        stored = await api.raw("GET", f"/v1/files/{mounted['file_id']}/content")
        assert stored.content == b"one"


async def test_resources_can_be_added_and_deleted(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session()
        base = f"/v1/sessions/{session['id']}/resources"
        created = []
        for number in range(3):
            file = await upload_file(api, b"x" * number, f"{number}")
            created.append(await api.ok("POST", base, {"type": "file", "file_id": file["id"]}))
        assert created[0]["mount_path"].startswith("/mnt/session/uploads/file_")
        first = await api.ok("GET", base, limit=2)
        rest = await api.ok("GET", base, limit=2, page=first["next_page"])
        assert [*first["data"], *rest["data"]] == created
        assert await api.ok("GET", f"{base}/{created[1]['id']}") == created[1]
        body = {"type": "file", "file_id": file["id"], "mount_path": created[0]["mount_path"]}
        assert "already" in await api.fails(400, "POST", base, body)
        token = {"authorization_token": "t"}
        await api.fails(400, "POST", f"{base}/{created[1]['id']}", token)
        position = api.directory(session) / created[1]["mount_path"][1:]
        assert position.exists()
        await api.ok("DELETE", f"{base}/{created[1]['id']}")
        assert not position.exists()
        await api.fails(404, "GET", f"/v1/files/{created[1]['file_id']}")
        assert (await api.ok("GET", base))["data"] == [created[0], created[2]]
        await api.fails(404, "POST", base, {"type": "file", "file_id": "file_x"})
        await api.ok("POST", f"/v1/sessions/{session['id']}/archive")
        await api.fails(400, "DELETE", f"{base}/{created[0]['id']}")


@pytest.mark.parametrize(
    "path", ["/", "", "../x", "/../x", "/a/../../x", "/a//b", "/.", "/a\0b", "/a/"]
)
async def test_mount_path_cannot_leave_the_session_directory(tmp_path: Path, path: str) -> None:
    async with open_api(tmp_path) as api:
        file = await upload_file(api)
        session = await api.session()
        body = {"type": "file", "file_id": file["id"], "mount_path": path}
        await api.fails(400, "POST", f"/v1/sessions/{session['id']}/resources", body)


async def test_links_in_a_clone_cannot_leave_the_session_directory(
    tmp_path: Path, repository: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repository / "way").symlink_to(outside)
    git("-C", str(repository), "add", "way")
    git("-C", str(repository), "commit", "-q", "-m", "a link")
    async with open_api(tmp_path / "data", clone=["file://"]) as api:
        file = await upload_file(api)
        mounted = {"type": "file", "file_id": file["id"]}
        sent = {"type": "github_repository", "url": f"file://{repository}"}
        mounted["mount_path"] = "/workspace/project/way/x"
        session = await api.session(resources=[mounted, sent])
        (event,) = await api.events(session["id"])
        assert "leads out" in event["error"]["message"]
        path = f"/v1/sessions/{session['id']}/resources"
        other = {**mounted, "mount_path": "/workspace/project/way/y"}
        assert "leads out" in await api.fails(400, "POST", path, other)
        assert list(outside.iterdir()) == []


async def test_deleting_a_session_deletes_its_directory_and_files(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        file = await upload_file(api)
        session = await api.session(resources=[{"type": "file", "file_id": file["id"]}])
        id = ids.parse(session["id"]) or ""
        fork = await api.hub.editor.fork(api.principal, id)
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        copy = f"/v1/files/{session['resources'][0]['file_id']}"
        await api.ok("GET", copy)  # the fork uses the same directory
        assert api.directory(session).exists()
        await api.ok("DELETE", f"/v1/sessions/{ids.format_id('sesn', fork.id)}")
        await api.fails(404, "GET", copy)
        assert list((tmp_path / "work").iterdir()) == []
        await api.ok("GET", f"/v1/files/{file['id']}")


async def test_session_without_resources_has_no_directory(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session()
        assert api.directory(session).exists()
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        assert not api.directory(session).exists()


async def test_deployment_stores_its_token_encrypted(tmp_path: Path, repository: Path) -> None:
    async with open_api(tmp_path / "data", clone=["file://"]) as api:
        sent = {"type": "github_repository", "url": f"file://{repository}"}
        body = {
            "name": "d",
            "agent": await api.built_in("agents"),
            "environment_id": await api.built_in("environments"),
            "initial_events": [
                {"type": "user.message", "content": [{"type": "text", "text": "hi"}]}
            ],
            "resources": [{**sent, "authorization_token": TOKEN}],
        }
        deployment = await api.ok("POST", "/v1/deployments", body)
        path = f"/v1/deployments/{deployment['id']}"
        await api.ok("POST", path, {"name": "e"})
        run = await api.ok("POST", f"{path}/run")
        await api.hub.workdirs.wait_mounted()
        session = await api.hub.sessions.get(api.principal, ids.parse(run["session_id"]) or "")
        assert await api.hub.mounts.get_token(session, session.resources[0]) == TOKEN
        assert (Path(session.cwd) / "workspace/project/file").exists()
        stored = b"".join(file.read_bytes() for file in (tmp_path / "data").glob("segue.db*"))
        assert TOKEN.encode() not in stored


async def test_run_without_a_session_has_an_error(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        file = await upload_file(api)
        vault = await api.ok("POST", "/v1/vaults", {"display_name": "v"})
        body = {
            "name": "d",
            "agent": await api.built_in("agents"),
            "environment_id": await api.environment(),
            "initial_events": [
                {"type": "user.message", "content": [{"type": "text", "text": "hi"}]}
            ],
            "resources": [{"type": "file", "file_id": file["id"]}],
            "vault_ids": [vault["id"]],
        }
        deployment = await api.ok("POST", "/v1/deployments", body)
        path = f"/v1/deployments/{deployment['id']}/run"
        await api.ok("DELETE", f"/v1/files/{file['id']}")
        assert (await api.ok("POST", path))["error"]["type"] == "file_not_found_error"
        await api.ok("POST", f"/v1/vaults/{vault['id']}/archive")
        assert (await api.ok("POST", path))["error"]["type"] == "vault_archived_error"
        await api.ok("DELETE", f"/v1/environments/{body['environment_id']}")
        run = await api.ok("POST", path)
        assert (run["error"]["type"], run["session_id"]) == ("environment_not_found_error", None)
        failed = (await api.ok("GET", "/v1/deployment_runs", has_error="true"))["data"]
        assert len(failed) == 3
        assert (await api.ok("GET", "/v1/deployment_runs", has_error="false"))["data"] == []
        assert (await api.ok("GET", "/v1/sessions"))["data"] == []


async def test_clone_counts_for_the_quota_of_bytes(tmp_path: Path, repository: Path) -> None:
    (repository / "large").write_bytes(os.urandom(3_000_000))
    git("-C", str(repository), "add", "large")
    git("-C", str(repository), "commit", "-q", "-m", "large")
    async with open_api(tmp_path / "data", clone=["file://"], quotas={"bytes": 2_000_000}) as api:
        sent = {"type": "github_repository", "url": f"file://{repository}"}
        session = await api.session(resources=[sent])
        await api.hub.workdirs.wait_mounted()
        path = f"/v1/sessions/{session['id']}"
        text = await api.fails(403, "POST", path, {"title": "more"})
        assert "the quota 'bytes' of this workspace is used up" in text
