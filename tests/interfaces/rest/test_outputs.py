"""What agents leave for people, in one place of a session's directory."""

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
from tests.interfaces.rest.test_files import uploaded


async def test_no_directory_for_outputs_is_made_behind_a_link(
    tmp_path: Path, model: Provider
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with model, open_api(tmp_path / "data") as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        session = await api.session()
        await api.say(session["id"], "on")
        mounted = Path(session["cwd"]) / "mnt"
        assert f"{mounted}/session/outputs" in str(model.requests[0]["system"])
        mounted.rename(mounted.with_name("away"))
        mounted.symlink_to(elsewhere)
        await api.say(session["id"], "on")
        assert "session/outputs" not in str(model.requests[1]["system"])
        # Nor is there such a place in a directory of the user's.
        theirs = await api.hub.editor.create(api.principal, cwd=str(elsewhere))
        await api.say(ids.format_id("sesn", theirs.id), "on")
        assert "session/outputs" not in str(model.requests[2]["system"])
        assert list(elsewhere.iterdir()) == []


async def test_the_demo_agent_s_files_may_be_named_as_they_are_mounted(tmp_path: Path) -> None:
    async with open_api(tmp_path / "data") as api:
        session = await api.session()
        file = await uploaded(api, b"a,b", "data.csv")
        given = {"type": "file", "file_id": file["id"], "mount_path": "/data/in.csv"}
        await api.ok("POST", f"/v1/sessions/{session['id']}/resources", given)
        hub, id = api.hub, ids.parse(session["id"], "sesn") or ""
        await hub.editor.configure(api.principal, id, ConfigChanged(mode="acceptEdits"))
        await api.say(session["id"], "/write /mnt/session/outputs/deep/o.txt hello")
        made = (await api.ok("GET", "/v1/files", scope_id=session["id"]))["data"]
        assert "deep/o.txt" in [each["filename"] for each in made]
        told = await api.say(session["id"], "/read /data/in.csv")
        assert "a,b" in str(told)
        refused = await api.say(session["id"], "/read /etc/hostname")
        assert "outside" in str(refused)
        # A directory of the user's has no such paths.
        theirs = await hub.editor.create(api.principal, cwd=str(tmp_path))
        refused = await api.say(
            ids.format_id("sesn", theirs.id), "/read /mnt/session/outputs/o.txt"
        )
        assert "outside" in str(refused)


async def test_what_a_turn_makes_for_people_is_kept_as_files(
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

        async def made() -> dict[str, bytes]:
            files = (await api.ok("GET", "/v1/files", scope_id=session["id"]))["data"]
            assert all(each["scope"]["id"] == session["id"] for each in files)
            paths = [(each["filename"], f"/v1/files/{each['id']}/content") for each in files]
            return {name: (await api.raw("GET", path)).content for name, path in paths}

        directory_agent.act = make
        await api.say(session["id"], "on")
        assert await made() == {"report.pdf": b"%PDF", "deep/a.txt": b"a" * 3_000_000}
        files = (await api.ok("GET", "/v1/files", scope_id=session["id"]))["data"]
        (old,) = [each["id"] for each in files if each["filename"] == "report.pdf"]
        directory_agent.act = lambda cwd: (cwd / "mnt/session/outputs/report.pdf").write_bytes(
            b"%PDF-2"
        )
        await api.say(session["id"], "on")
        await api.fails(404, "GET", f"/v1/files/{old}")
        directory_agent.act = lambda cwd: (cwd / "mnt/session/outputs/deep/a.txt").unlink()
        await api.say(session["id"], "on")
        assert (await made())["report.pdf"] == b"%PDF-2" and len(await made()) == 2
        # One more that people upload is nobody's output; all that is the session's goes with it.
        await uploaded(api, b"mine")
        assert len((await api.ok("GET", "/v1/files"))["data"]) == 3
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        (left,) = (await api.ok("GET", "/v1/files"))["data"]
        assert left["scope"] is None


async def test_a_page_of_a_session_s_files_goes_on_where_the_last_one_ended(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        mounts = [{"type": "file", "file_id": (await uploaded(api))["id"]} for _ in range(3)]
        session = await api.session(resources=mounts)
        top = Path(session["cwd"]) / "mnt/session/outputs"
        top.mkdir(parents=True)

        def make(*names: str) -> None:
            for name in names:
                (top / name).write_text(str(ids.new_id()))

        directory_agent.act = lambda _: make("a", "b", "c")
        await api.say(session["id"], "on")

        async def page(limit: int, **params: str) -> tuple[list[str], dict[str, Any]]:
            params["scope_id"] = session["id"]
            found = await api.ok("GET", "/v1/files", limit=limit, **params)
            return [each["id"] for each in found["data"]], found

        every, _ = await page(9)
        assert every[:3] == [each["file_id"] for each in session["resources"]]
        first, found = await page(2)
        # What was shown goes, and so does one that comes next; the output at the end is another.
        taken = f"/v1/sessions/{session['id']}/resources/{session['resources'][1]['id']}"
        await api.ok("DELETE", taken)
        await api.ok("DELETE", f"/v1/files/{every[3]}")
        directory_agent.act = lambda _: make("c", "d")
        await api.say(session["id"], "on")
        then, found = await page(2, page=found["next_page"])
        rest, found = await page(9, page=found["next_page"])
        assert (first, then) == (every[:2], [every[2], every[4]])
        assert len(rest) == 2 and every[5] not in rest and found["next_page"] is None
        # The older clients' way.
        assert (await page(9, after_id=every[2]))[0] == [every[4], *rest]
        older, found = await page(2, before_id=rest[0])
        assert (older, found["has_more"]) == ([every[2], every[4]], True)
        for name in ("after_id", "before_id"):
            params = {"scope_id": session["id"], name: every[1]}
            assert name in await api.fails(404, "GET", "/v1/files", **params)


@pytest.mark.parametrize("then", ["go on", "delete"])
async def test_a_cancel_does_not_wait_for_outputs_to_be_kept(
    tmp_path: Path, directory_agent: DirectoryAgent, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    go = asyncio.Event()

    class Endless(DirectoryAgent):
        async def run(self, turn: Turn) -> StopReason:
            await super().run(turn)
            if turn.text == "for ever":
                await asyncio.Event().wait()
            return "end_turn"

    endless = Endless()
    async with open_api(tmp_path, agent_registry=registry_with(endless)) as api:
        session = (await api.session())["id"]
        keep = api.hub.files.keep

        async def slow(*given: Any) -> Record:
            await go.wait()
            return await keep(*given)

        monkeypatch.setattr(api.hub.files, "keep", slow)
        made = asyncio.Event()

        def make(cwd: Path) -> None:
            (cwd / "mnt/session/outputs").mkdir(parents=True)
            (cwd / "mnt/session/outputs/a").write_text("a")
            made.set()

        endless.act = make
        (sent,) = (await api.send(session, message("for ever")))["data"]
        await made.wait()
        endless.act = lambda _: None
        await api.send(session, {"type": "user.interrupt"})
        id, turn = ids.parse(session) or "", ids.parse(sent["id"]) or ""
        asyncio.get_running_loop().call_later(5, go.set)  # so that a failure is one, and no wait
        assert await api.hub.turns.wait(api.principal, id, turn) == "cancelled"
        assert not go.is_set()
        if then == "delete":
            await api.ok("DELETE", f"/v1/sessions/{session}")
            go.set()
            await api.hub.turns.engine.rest()
            assert (await api.ok("GET", "/v1/files"))["data"] == []
        else:
            asyncio.get_running_loop().call_later(0.1, go.set)
            await api.say(session, "on")
            (file,) = (await api.ok("GET", "/v1/files", scope_id=session))["data"]
            assert file["filename"] == "a"
            assert not api.hub.workdirs._locks


async def test_where_there_are_too_many_outputs_those_that_change_are_kept(
    tmp_path: Path, directory_agent: DirectoryAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.hub.workdir.outputs.MAX_OUTPUTS", 2)
    monkeypatch.setattr("segue.hub.workdir.outputs.MAX_OUTPUT_BYTES", 9)
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        session = (await api.session())["id"]

        async def told(**texts: str) -> list[str]:
            def make(cwd: Path) -> None:
                top = cwd / "mnt/session/outputs"
                top.mkdir(parents=True, exist_ok=True)
                for name, text in texts.items():
                    (top / name).write_text(text)

            directory_agent.act = make
            before = len(await api.events(session))
            events = (await api.say(session, "on"))[before:]
            return [each["error"]["message"] for each in events if "error" in each]

        assert await told(y="one", z="one") == []
        wrong = "/mnt/session/outputs: at most 2 files are stored"
        assert await told(a="more", b="more", z="changed") == [wrong]
        files = (await api.ok("GET", "/v1/files", scope_id=session))["data"]
        assert {each["filename"]: each["size_bytes"] for each in files} == {"y": 3, "z": 7}
        assert await told() == []
        (long,) = await told(y="longer than that")
        assert long == "/mnt/session/outputs/y: not stored, longer than 9 bytes"
        assert await told() == []
