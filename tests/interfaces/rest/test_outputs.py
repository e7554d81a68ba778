"""Store the files that agents write for people."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from segue.agents.base import Turn
from segue.model import ids
from segue.model.event import ConfigChanged
from segue.model.lifecycle import StopReason
from segue.model.record import Record
from tests.agents.provider import Provider
from tests.interfaces.rest.api import message, open_api
from tests.interfaces.rest.directory_agent import DirectoryAgent, registry_with
from tests.interfaces.rest.test_files import upload_file


async def test_outputs_directory_is_not_created_through_a_link(
    tmp_path: Path, model: Provider
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with model, open_api(tmp_path / "data") as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        session = await api.session()
        await api.say(session["id"], "continue")
        mounted = api.directory(session) / "mnt"
        assert f"{mounted}/session/outputs" in str(model.requests[0]["system"])
        mounted.rename(mounted.with_name("away"))
        mounted.symlink_to(elsewhere)
        await api.say(session["id"], "continue")
        assert "session/outputs" not in str(model.requests[1]["system"])
        # A directory of the user's has no outputs directory.
        user_session = await api.hub.editor.create(api.principal, cwd=str(elsewhere))
        await api.say(ids.format_id("sesn", user_session.id), "continue")
        assert "session/outputs" not in str(model.requests[2]["system"])
        assert list(elsewhere.iterdir()) == []


async def test_demo_agent_accepts_mount_paths(tmp_path: Path) -> None:
    async with open_api(tmp_path / "data") as api:
        session = await api.session()
        file = await upload_file(api, b"a,b", "data.csv")
        resource = {"type": "file", "file_id": file["id"], "mount_path": "/data/in.csv"}
        await api.ok("POST", f"/v1/sessions/{session['id']}/resources", resource)
        hub, id = api.hub, ids.parse(session["id"], "sesn") or ""
        await hub.editor.configure(api.principal, id, ConfigChanged(mode="acceptEdits"))
        await api.say(session["id"], "/write /mnt/session/outputs/deep/o.txt hello")
        files = (await api.ok("GET", "/v1/files", scope_id=session["id"]))["data"]
        assert "deep/o.txt" in [file["filename"] for file in files]
        events = await api.say(session["id"], "/read /data/in.csv")
        assert "a,b" in str(events)
        events = await api.say(session["id"], "/read /etc/hostname")
        assert "outside" in str(events)
        # Mount paths do not exist in a directory of the user's.
        user_session = await hub.editor.create(api.principal, cwd=str(tmp_path))
        events = await api.say(
            ids.format_id("sesn", user_session.id), "/read /mnt/session/outputs/o.txt"
        )
        assert "outside" in str(events)


async def test_outputs_of_a_turn_are_stored_as_files(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("S3CRET")
    async with open_api(tmp_path / "data", agent_registry=registry_with(directory_agent)) as api:
        session = await api.session()

        def make(cwd: Path) -> None:
            top = cwd / "mnt/session/outputs"
            (top / "deep").mkdir(parents=True)
            (top / "report.pdf").write_bytes(b"%PDF")
            (top / "deep/a.txt").write_text("a" * 3_000_000)
            (top / "link").symlink_to(secret)
            os.link(secret, top / "other")
            os.mkfifo(top / "pipe")

        async def contents() -> dict[str, bytes]:
            files = (await api.ok("GET", "/v1/files", scope_id=session["id"]))["data"]
            assert all(file["scope"]["id"] == session["id"] for file in files)
            paths = [(file["filename"], f"/v1/files/{file['id']}/content") for file in files]
            return {name: (await api.raw("GET", path)).content for name, path in paths}

        directory_agent.act = make
        await api.say(session["id"], "continue")
        assert await contents() == {"report.pdf": b"%PDF", "deep/a.txt": b"a" * 3_000_000}
        files = (await api.ok("GET", "/v1/files", scope_id=session["id"]))["data"]
        (old_id,) = [file["id"] for file in files if file["filename"] == "report.pdf"]
        directory_agent.act = lambda cwd: (cwd / "mnt/session/outputs/report.pdf").write_bytes(
            b"%PDF-2"
        )
        await api.say(session["id"], "continue")
        await api.fails(404, "GET", f"/v1/files/{old_id}")
        directory_agent.act = lambda cwd: (cwd / "mnt/session/outputs/deep/a.txt").unlink()
        await api.say(session["id"], "continue")
        assert (await contents())["report.pdf"] == b"%PDF-2" and len(await contents()) == 2
        # Purging the session deletes its outputs, but no uploaded file.
        await upload_file(api, b"mine")
        assert len((await api.ok("GET", "/v1/files"))["data"]) == 3
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        (remaining,) = (await api.ok("GET", "/v1/files"))["data"]
        assert remaining["scope"] is None


async def test_pages_of_session_files_continue_after_the_last_file(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        mounts = [{"type": "file", "file_id": (await upload_file(api))["id"]} for _ in range(3)]
        session = await api.session(resources=mounts)
        top = api.directory(session) / "mnt/session/outputs"
        top.mkdir(parents=True)

        def make(*names: str) -> None:
            for name in names:
                (top / name).write_text(str(ids.new_id()))

        directory_agent.act = lambda _: make("a", "b", "c")
        await api.say(session["id"], "continue")

        async def page(limit: int, **params: str) -> tuple[list[str], dict[str, Any]]:
            params["scope_id"] = session["id"]
            response = await api.ok("GET", "/v1/files", limit=limit, **params)
            return [file["id"] for file in response["data"]], response

        all_ids, _ = await page(9)
        assert all_ids[:3] == [resource["file_id"] for resource in session["resources"]]
        first, response = await page(2)
        # A listed file and a later one are deleted, and the last output is replaced.
        removed = f"/v1/sessions/{session['id']}/resources/{session['resources'][1]['id']}"
        await api.ok("DELETE", removed)
        await api.ok("DELETE", f"/v1/files/{all_ids[3]}")
        directory_agent.act = lambda _: make("c", "d")
        await api.say(session["id"], "continue")
        second, response = await page(2, page=response["next_page"])
        rest, response = await page(9, page=response["next_page"])
        assert (first, second) == (all_ids[:2], [all_ids[2], all_ids[4]])
        assert len(rest) == 2 and all_ids[5] not in rest and response["next_page"] is None
        # Older clients page by id.
        assert (await page(9, after_id=all_ids[2]))[0] == [all_ids[4], *rest]
        previous, response = await page(2, before_id=rest[0])
        assert (previous, response["has_more"]) == ([all_ids[2], all_ids[4]], True)
        for name in ("after_id", "before_id"):
            params = {"scope_id": session["id"], name: all_ids[1]}
            assert name in await api.fails(404, "GET", "/v1/files", **params)


@pytest.mark.parametrize("next_step", ["prompt", "delete"])
async def test_cancel_does_not_wait_until_outputs_are_stored(
    tmp_path: Path, directory_agent: DirectoryAgent, monkeypatch: pytest.MonkeyPatch, next_step: str
) -> None:
    may_store = asyncio.Event()

    class EndlessAgent(DirectoryAgent):
        async def run(self, turn: Turn) -> StopReason:
            await super().run(turn)
            if turn.text == "for ever":
                await asyncio.Event().wait()
            return "end_turn"

    endless = EndlessAgent()
    async with open_api(tmp_path, agent_registry=registry_with(endless)) as api:
        session = (await api.session())["id"]
        store_file = api.hub.files.store

        async def store_slowly(*arguments: Any) -> Record:
            await may_store.wait()
            return await store_file(*arguments)

        monkeypatch.setattr(api.hub.files, "store", store_slowly)
        written = asyncio.Event()

        def make(cwd: Path) -> None:
            (cwd / "mnt/session/outputs").mkdir(parents=True)
            (cwd / "mnt/session/outputs/a").write_text("a")
            written.set()

        endless.act = make
        (sent,) = (await api.send(session, message("for ever")))["data"]
        await written.wait()
        endless.act = lambda _: None
        await api.send(session, {"type": "user.interrupt"})
        id, turn = ids.parse(session) or "", ids.parse(sent["id"]) or ""
        asyncio.get_running_loop().call_later(5, may_store.set)  # so that a failing test ends
        assert await api.hub.turns.wait(api.principal, id, turn) == "cancelled"
        assert not may_store.is_set()
        if next_step == "delete":
            await api.ok("DELETE", f"/v1/sessions/{session}")
            may_store.set()
            await api.hub.turns.engine.wait_idle()
            assert (await api.ok("GET", "/v1/files"))["data"] == []
        else:
            asyncio.get_running_loop().call_later(0.1, may_store.set)
            await api.say(session, "continue")
            (file,) = (await api.ok("GET", "/v1/files", scope_id=session))["data"]
            assert file["filename"] == "a"
            assert not api.hub.workdirs._locks


async def test_with_too_many_outputs_only_changed_ones_are_stored(
    tmp_path: Path, directory_agent: DirectoryAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.hub.workdir.outputs.MAX_OUTPUTS", 2)
    monkeypatch.setattr("segue.hub.workdir.outputs.MAX_OUTPUT_BYTES", 9)
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        session = (await api.session())["id"]

        async def write_and_list_errors(**texts: str) -> list[str]:
            def make(cwd: Path) -> None:
                top = cwd / "mnt/session/outputs"
                top.mkdir(parents=True, exist_ok=True)
                for name, text in texts.items():
                    (top / name).write_text(text)

            directory_agent.act = make
            before = len(await api.events(session))
            events = (await api.say(session, "continue"))[before:]
            return [event["error"]["message"] for event in events if "error" in event]

        assert await write_and_list_errors(y="one", z="one") == []
        too_many = "/mnt/session/outputs: at most 2 files are stored"
        assert await write_and_list_errors(a="more", b="more", z="changed") == [too_many]
        files = (await api.ok("GET", "/v1/files", scope_id=session))["data"]
        assert {file["filename"]: file["size_bytes"] for file in files} == {"y": 3, "z": 7}
        assert await write_and_list_errors() == []
        (error,) = await write_and_list_errors(y="longer than that")
        assert error == "/mnt/session/outputs/y: not stored, longer than 9 bytes"
        assert await write_and_list_errors() == []
