"""What sessions have mounted: files, real clones of real repositories, tokens that nobody sees."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from segue.model import ids
from tests.interfaces.rest.api import open_api
from tests.interfaces.rest.test_files import uploaded

TOKEN = "ghp_the_token_itself"


def git(*arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "origin" / "project.git"
    git("init", "-q", "-b", "main", str(place))
    for number, branch in enumerate(("main", "other")):
        if number:
            git("-C", str(place), "checkout", "-q", "-b", branch)
        (place / "file").write_text(branch)
        git("-C", str(place), "add", "file")
        git("-C", str(place), "commit", "-q", "-m", branch)
    git("-C", str(place), "checkout", "-q", "main")
    return place


def directory(session: dict[str, Any]) -> Path:
    return Path(session["cwd"])


async def test_a_repository_is_cloned_where_it_says(tmp_path: Path, repository: Path) -> None:
    url = f"file://{repository}"
    first = git("-C", str(repository), "rev-parse", "main")
    async with open_api(tmp_path / "data", clone=[f"file://{tmp_path}/"]) as api:
        for checkout, text in (
            (None, "main"),
            ({"type": "branch", "name": "other"}, "other"),
            ({"type": "commit", "sha": first}, "main"),
        ):
            given = {"type": "github_repository", "url": url, "authorization_token": TOKEN}
            session = await api.session(resources=[{**given, "checkout": checkout}])
            (shown,) = session["resources"]
            assert (shown["url"], shown["checkout"]) == (url, checkout)
            assert shown["mount_path"] == "/workspace/project"
            clone = directory(session) / "workspace/project"
            assert (clone / "file").read_text() == text
            assert TOKEN not in (clone / ".git/config").read_text()
            assert await api.events(session["id"]) == []
            assert [each.name for each in clone.parent.iterdir()] == ["project"]


@pytest.mark.parametrize(
    ("name", "checkout", "kind"),
    [
        ("nowhere", None, "repository_not_found_error"),
        ("project.git", {"type": "branch", "name": "none"}, "repository_checkout_error"),
        ("project.git", {"type": "commit", "sha": "0" * 40}, "repository_checkout_error"),
    ],
)
async def test_a_clone_that_fails_is_told_and_the_session_goes_on(
    tmp_path: Path, repository: Path, name: str, checkout: Any, kind: str
) -> None:
    url = f"file://{repository.parent}/{name}"
    async with open_api(tmp_path / "data", clone=["file://"]) as api:
        given = {"type": "github_repository", "url": url, "mount_path": "/repo"}
        session = await api.session(resources=[{**given, "checkout": checkout}])
        (event,) = await api.events(session["id"])
        assert (event["type"], event["error"]["type"]) == ("session.error", kind)
        assert event["error"]["retry_status"] == {"type": "retrying"}
        assert list(directory(session).iterdir()) == []
        said = [each["type"] for each in await api.say(session["id"], "/say on")]
        assert "agent.message" in said


async def test_only_what_the_operator_allows_is_cloned(tmp_path: Path, repository: Path) -> None:
    async with open_api(tmp_path / "data", clone=["https://example.com/"]) as api:
        given = {"type": "github_repository", "url": f"file://{repository}"}
        session = await api.session(resources=[given])
        assert list(directory(session).iterdir()) == []
        assert await api.events(session["id"]) == []
        for url in ("ext::sh -c true", "--upload-pack=true", "ssh://example.com/x", "/etc"):
            body = {"agent": session["agent"]["id"], "environment_id": session["environment_id"]}
            body["resources"] = [{"type": "github_repository", "url": url}]
            await api.fails(400, "POST", "/v1/sessions", body)


async def test_a_token_is_sealed_replaced_and_forgotten(tmp_path: Path, repository: Path) -> None:
    async with open_api(tmp_path / "data", clone=["file://"]) as api:
        given = {"type": "github_repository", "url": f"file://{repository}"}
        session = await api.session(resources=[{**given, "authorization_token": TOKEN}])
        path = f"/v1/sessions/{session['id']}/resources/{session['resources'][0]['id']}"
        found = await api.hub.sessions.get(api.principal, ids.parse(session["id"]) or "")
        resource = found.resources[0]
        assert await api.hub.mounts.get_token(found, resource) == TOKEN
        changed = await api.ok("POST", path, {"authorization_token": "ghp_another_one"})
        assert changed["updated_at"] > changed["created_at"]
        assert await api.hub.mounts.get_token(found, resource) == "ghp_another_one"
        stored = b"".join(file.read_bytes() for file in (tmp_path / "data").glob("segue.db*"))
        for secret in (TOKEN, "ghp_another_one"):
            assert secret.encode() not in stored
            assert secret not in str(await api.ok("GET", f"/v1/sessions/{session['id']}"))
            assert secret not in str(await api.events(session["id"]))
        assert (await api.ok("DELETE", path))["type"] == "session_resource_deleted"
        assert await api.hub.mounts.get_token(found, resource) is None
        assert (await api.ok("GET", f"/v1/sessions/{session['id']}"))["resources"] == []
        assert (directory(session) / "workspace/project/file").exists()  # there may be work in it


async def test_a_clone_succeeds_once_its_origin_does(tmp_path: Path, repository: Path) -> None:
    hidden = repository.rename(repository.with_name("hidden"))
    async with open_api(tmp_path / "data", clone=["file://"]) as api:
        given = {"type": "github_repository", "url": f"file://{repository}"}
        session = await api.session(resources=[given])
        hidden.rename(repository)
        path = f"/v1/sessions/{session['id']}/resources/{session['resources'][0]['id']}"
        await api.ok("POST", path, {"authorization_token": TOKEN})
        await api.hub.workdirs.wait_mounted()
        assert (directory(session) / "workspace/project/file").read_text() == "main"


async def test_a_file_is_mounted_as_a_copy_of_the_sessions_own(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        file = await uploaded(api, b"one")
        given = {"type": "file", "file_id": file["id"], "mount_path": "/data/a.txt"}
        session = await api.session(resources=[given])
        (mounted,) = session["resources"]
        assert mounted["file_id"] != file["id"]
        assert (directory(session) / "data/a.txt").read_bytes() == b"one"
        loose = await api.session(resources=[{**given, "mount_path": "b/c.txt"}])
        assert loose["resources"][0]["mount_path"] == "/uploads/b/c.txt"
        assert (directory(loose) / "uploads/b/c.txt").read_bytes() == b"one"
        scoped = (await api.ok("GET", "/v1/files", scope_id=session["id"]))["data"]
        assert [each["id"] for each in scoped] == [mounted["file_id"]]
        assert scoped[0]["scope"] == {"type": "session", "id": session["id"]}
        await api.ok("DELETE", f"/v1/files/{file['id']}")
        kept = await api.raw("GET", f"/v1/files/{mounted['file_id']}/content")
        assert kept.content == b"one"


async def test_resources_come_and_go(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session()
        base = f"/v1/sessions/{session['id']}/resources"
        made = []
        for number in range(3):
            file = await uploaded(api, b"x" * number, f"{number}")
            made.append(await api.ok("POST", base, {"type": "file", "file_id": file["id"]}))
        assert made[0]["mount_path"].startswith("/mnt/session/uploads/file_")
        first = await api.ok("GET", base, limit=2)
        rest = await api.ok("GET", base, limit=2, page=first["next_page"])
        assert [*first["data"], *rest["data"]] == made
        assert await api.ok("GET", f"{base}/{made[1]['id']}") == made[1]
        body = {"type": "file", "file_id": file["id"], "mount_path": made[0]["mount_path"]}
        assert "already" in await api.fails(400, "POST", base, body)
        token = {"authorization_token": "t"}
        await api.fails(400, "POST", f"{base}/{made[1]['id']}", token)
        place = directory(session) / made[1]["mount_path"][1:]
        assert place.exists()
        await api.ok("DELETE", f"{base}/{made[1]['id']}")
        assert not place.exists()
        await api.fails(404, "GET", f"/v1/files/{made[1]['file_id']}")
        assert (await api.ok("GET", base))["data"] == [made[0], made[2]]
        await api.fails(404, "POST", base, {"type": "file", "file_id": "file_x"})
        await api.ok("POST", f"/v1/sessions/{session['id']}/archive")
        await api.fails(400, "DELETE", f"{base}/{made[0]['id']}")


@pytest.mark.parametrize(
    "path", ["/", "", "../x", "/../x", "/a/../../x", "/a//b", "/.", "/a\0b", "/a/"]
)
async def test_no_mount_path_leads_out(tmp_path: Path, path: str) -> None:
    async with open_api(tmp_path) as api:
        file = await uploaded(api)
        session = await api.session()
        body = {"type": "file", "file_id": file["id"], "mount_path": path}
        await api.fails(400, "POST", f"/v1/sessions/{session['id']}/resources", body)


async def test_no_link_in_a_clone_leads_out(tmp_path: Path, repository: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repository / "way").symlink_to(outside)
    git("-C", str(repository), "add", "way")
    git("-C", str(repository), "commit", "-q", "-m", "a link")
    async with open_api(tmp_path / "data", clone=["file://"]) as api:
        file = await uploaded(api)
        mounted = {"type": "file", "file_id": file["id"]}
        given = {"type": "github_repository", "url": f"file://{repository}"}
        mounted["mount_path"] = "/workspace/project/way/x"
        session = await api.session(resources=[mounted, given])
        (event,) = await api.events(session["id"])
        assert "leads out" in event["error"]["message"]
        path = f"/v1/sessions/{session['id']}/resources"
        other = {**mounted, "mount_path": "/workspace/project/way/y"}
        assert "leads out" in await api.fails(400, "POST", path, other)
        assert list(outside.iterdir()) == []


async def test_deleting_a_session_takes_what_was_its_own(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        file = await uploaded(api)
        session = await api.session(resources=[{"type": "file", "file_id": file["id"]}])
        id = ids.parse(session["id"]) or ""
        fork = await api.hub.editor.fork(api.principal, id)
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        copy = f"/v1/files/{session['resources'][0]['file_id']}"
        await api.ok("GET", copy)  # the fork works there
        assert directory(session).exists()
        await api.ok("DELETE", f"/v1/sessions/{ids.format_id('sesn', fork.id)}")
        await api.fails(404, "GET", copy)
        assert list((tmp_path / "work").iterdir()) == []
        await api.ok("GET", f"/v1/files/{file['id']}")


async def test_a_session_alone_leaves_no_directory(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session()
        assert directory(session).exists()
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        assert not directory(session).exists()


async def test_a_deployment_keeps_its_token_sealed(tmp_path: Path, repository: Path) -> None:
    async with open_api(tmp_path / "data", clone=["file://"]) as api:
        given = {"type": "github_repository", "url": f"file://{repository}"}
        body = {
            "name": "d",
            "agent": await api.built_in("agents"),
            "environment_id": await api.built_in("environments"),
            "initial_events": [
                {"type": "user.message", "content": [{"type": "text", "text": "hi"}]}
            ],
            "resources": [{**given, "authorization_token": TOKEN}],
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


async def test_a_run_that_makes_no_session_says_why(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        file = await uploaded(api)
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
