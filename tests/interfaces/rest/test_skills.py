"""Upload, list and download skills, and pin them in agents."""

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.rest.api import Api, open_api

MAIN = b"---\nname: greeting\ndescription: >\n  Says\n  ahoy.\n---\n\nSay ahoy.\n"
FILES = {"greeting/SKILL.md": MAIN, "greeting/scripts/run.sh": b"#!/bin/sh\necho ahoy\n"}
FORMER = {"anthropic-beta": "skills-2025-10-02"}


def form(files: dict[str, bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    return [("files[]", (path, data)) for path, data in files.items()]


async def skill(api: Api, files: dict[str, bytes] = FILES, **fields: Any) -> dict[str, Any]:
    status, created = await api.call("POST", "/v1/skills", files=form(files), data=fields)
    assert status == 200, created
    return dict(created)


async def upload_refused(api: Api, files: Any, path: str = "/v1/skills", **fields: Any) -> str:
    status, response = await api.call("POST", path, files=files, data=fields)
    assert status == 400, response
    return str(response["error"]["message"])


def make_archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return out.getvalue()


async def test_skill_is_stored_with_its_versions(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        created = await skill(api, display_name="Greets")
        path = f"/v1/skills/{created['id']}"
        assert created["display_name"] == "Greets" and created["source"] == {"type": "custom"}
        assert await api.ok("GET", path) == created
        first = await api.ok("GET", f"{path}/versions/{created['latest_version_id']}")
        assert (first["name"], first["description"]) == ("greeting", "Says ahoy.")
        status, second = await api.call("POST", f"{path}/versions", files=form(FILES))
        assert status == 200 and second["version"] == "2"
        assert (await api.ok("GET", path))["latest_version_id"] == second["id"]
        for page in ({}, {"limit": 1}):
            listed = (await api.ok("GET", f"{path}/versions", **page))["data"]
            assert [item["id"] for item in listed] == [second["id"], first["id"]][: len(listed)]
        for names in (second["id"], "2", "latest"):
            response = await api.raw("GET", f"{path}/versions/{names}/content")
            with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
                assert {name: archive.read(name) for name in archive.namelist()} == FILES
        await api.ok("DELETE", f"{path}/versions/2")
        assert (await api.ok("GET", path))["latest_version"] == "1"
        assert "only version" in await api.fails(400, "DELETE", f"{path}/versions/1")
        status, third = await api.call("POST", f"{path}/versions", files=form(FILES))
        assert third["version"] == "3"  # a number is not used again
        assert (await api.ok("DELETE", path))["type"] == "skill_deleted"
        for deleted in ("", "/versions", "/versions/1", "/versions/1/content"):
            await api.fails(404, "GET", path + deleted)
        assert (await api.ok("GET", "/v1/skills"))["data"] == []


async def test_skill_has_the_format_that_the_client_expects(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        created = await skill(api, display_title="Greets")
        former = (await api.raw("GET", "/v1/skills", headers=FORMER)).json()["data"][0]
        assert former == {**created, "source": "custom"}
        assert former["display_title"] == "Greets" and former["latest_version"] == "1"
        assert len((await api.ok("GET", "/v1/skills", source="custom"))["data"]) == 1
        assert (await api.ok("GET", "/v1/skills", source="anthropic"))["data"] == []


async def test_skill_can_be_uploaded_as_an_archive(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        created = await skill(api, {"greeting.zip": make_archive({**FILES, "greeting/docs/": b""})})
        response = await api.raw("GET", f"/v1/skills/{created['id']}/versions/1/content")
        with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
            assert set(archive.namelist()) == set(FILES)
        assert created["display_name"] == "greeting"  # the name in the files


def with_header(head: bytes) -> dict[str, bytes]:
    return {"a/SKILL.md": b"---\n" + head + b"\n---\n"}


@pytest.mark.parametrize(
    "files",
    [
        {"SKILL.md": MAIN},
        {"a/SKILL.md": MAIN, "b/x": b""},
        {"a/skill.txt": MAIN},
        {"a/../SKILL.md": MAIN},
        {"/a/SKILL.md": MAIN},
        {"a/SKILL.md": MAIN, "a/..\\x": b""},
        {"a/SKILL.md": MAIN, "a/x": b"", "a/x/y": b""},
        {"a/SKILL.md": b"no head"},
        {"a/SKILL.md": b"\xff\xfe"},
        with_header(b"name: greeting"),
        with_header(b"name: [a]\ndescription: x"),
        with_header(b"name: Not A Name\ndescription: x"),
        with_header(b"{{{"),
        with_header(b"name: " + b"a" * 65 + b"\ndescription: x"),
        {"a.zip": b"no archive"},
        {"a.zip": make_archive(FILES)[:-30]},
        {"a.zip": make_archive({"../SKILL.md": MAIN})},
        {"a.zip": make_archive({"a/SKILL.md": MAIN, "a/bomb": b"\0" * (31 << 20)})},
    ],
)
async def test_invalid_skill_is_refused(tmp_path: Path, files: dict[str, bytes]) -> None:
    async with open_api(tmp_path) as api:
        assert (
            "files" in (response := await upload_refused(api, form(files)))
            or "SKILL.md" in response
        )
        assert (await api.ok("GET", "/v1/skills"))["data"] == []
        assert [item async for item in api.hub.records.all("local", "archive")] == []


async def test_version_with_another_name_is_refused(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        path = f"/v1/skills/{(await skill(api))['id']}/versions"
        other = {"x/SKILL.md": MAIN.replace(b"greeting", b"farewell")}
        assert "cannot be changed" in await upload_refused(api, form(other), path)
        assert "unknown field" in await upload_refused(api, form(FILES), path, display_name="x")
        assert "files[]" in await upload_refused(api, [("display_name", (None, "x"))])
        assert "255" in await upload_refused(api, form(FILES), display_name="x" * 256)
        assert len([item async for item in api.hub.records.all("local", "archive")]) == 1


async def test_session_reports_the_skills_that_only_anthropic_has(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        xlsx = {"type": "anthropic", "skill_id": "xlsx"}
        agent = await api.agent(skills=[xlsx])
        assert agent["skills"] == [{**xlsx, "version": "latest"}]
        lead = await api.agent(multiagent={"type": "coordinator", "agents": [agent["id"]]})
        for id in (agent["id"], lead["id"]):
            session = await api.session(agent=id)
            (error,) = [
                event["error"]["message"]
                for event in await api.events(session["id"])
                if event["type"] == "session.error"
            ]
            assert error.startswith("skills: Anthropic's skill 'xlsx' is not available here")
            turn = await api.say(session["id"], "hello")
            assert turn[-1]["stop_reason"] == {"type": "end_turn"}


async def test_agent_pins_a_skill_version_that_its_session_shows(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        created = await skill(api)
        names = {"type": "custom", "skill_id": created["id"]}
        agent = await api.agent(skills=[names])
        assert agent["skills"] == [{**names, "version": "1"}]
        await api.call("POST", f"/v1/skills/{created['id']}/versions", files=form(FILES))
        session = await api.session(agent=agent["id"])
        assert session["agent"]["skills"] == agent["skills"]  # the version that was pinned
        override = {"type": "agent_with_overrides", "id": agent["id"], "skills": [names]}
        session = await api.session(agent=override)
        assert session["agent"]["skills"] == [{**names, "version": "2"}]
        by_id = {**names, "version": created["latest_version_id"]}
        assert (await api.agent(skills=[by_id]))["skills"] == [by_id]
        body = {"name": "a", "model": "m"}
        for wrong in ({**names, "version": "9"}, {**names, "skill_id": "skill_x"}):
            message = await api.fails(404, "POST", "/v1/agents", {**body, "skills": [wrong]})
            assert "not found" in message
        await api.ok("DELETE", f"/v1/skills/{created['id']}")
        environment_id = await api.built_in("environments")
        await api.fails(
            404, "POST", "/v1/sessions", {"agent": agent["id"], "environment_id": environment_id}
        )
        shown = await api.ok("GET", f"/v1/sessions/{session['id']}")
        assert shown["agent"]["skills"] == [{**names, "version": "2"}]
