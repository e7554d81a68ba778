"""Secrets are counted, masked, listed and removed by commands."""

import json
from pathlib import Path
from typing import Any

import pytest

from segue.hub import Hub
from segue.model.content import as_content
from segue.model.event import AgentMessage, UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.store.sqlite import SQLiteStore
from tests.claude.entries import Home, assistant, user
from tests.interfaces.cli.child import Run

KEY = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
MASK = "ghp_…8B4a [masked]"


async def make_session(tmp_path: Path) -> str:
    directory = tmp_path / "data"
    directory.mkdir()
    async with Hub(SQLiteStore.open(directory / "segue.db"), directory) as hub:
        session = await hub.editor.create(LOCAL, cwd="/p", title="Deploy")
        await hub.editor.append(
            LOCAL,
            session.id,
            UserMessage(content=as_content(f"the token is {KEY}")),
            AgentMessage(content=as_content(f"I use {KEY[:20]}")),
            AgentMessage(content=as_content(f"{KEY[20:]} for the walrus")),
        )
        return session.id


@pytest.mark.parametrize("format", ["markdown", "html"])
async def test_documents_are_masked_unless_the_original_is_asked_for(
    tmp_path: Path, run: Run, format: str
) -> None:
    id = await make_session(tmp_path)
    masked = run("export", id, "--format", format)
    assert KEY not in masked.stdout and KEY[20:] not in masked.stdout and MASK in masked.stdout
    assert "contains 2 secrets: masked" in masked.stderr
    original = run("export", id, "--format", format, "--no-mask")
    assert KEY in original.stdout


async def test_lossless_exports_report_secrets_and_mask_them_on_request(
    tmp_path: Path, run: Run
) -> None:
    id = await make_session(tmp_path)
    original = run("export", id)
    assert KEY in original.stdout and "2 secrets: not masked" in original.stderr
    masked = run("export", id, "--mask")
    assert KEY not in masked.stdout and KEY[20:] not in masked.stdout
    assert len(masked.stdout.splitlines()) == len(original.stdout.splitlines())


async def test_scan_lists_where_secrets_are(tmp_path: Path, run: Run) -> None:
    id = await make_session(tmp_path)
    result = run("secrets", "scan", "--format", "json")
    rows = json.loads(result.stdout)
    assert result.returncode == 1
    assert [(row["session"], row["kind"], row["mask"]) for row in rows] == [
        (id, "github", MASK),
        (id, "github", MASK),
    ]
    assert KEY not in result.stdout


async def test_a_redacted_copy_leaves_the_original(tmp_path: Path, run: Run) -> None:
    id = await make_session(tmp_path)
    copy = run("secrets", "redact", id).stdout.strip()
    assert copy != id
    assert KEY not in run("export", copy).stdout
    assert KEY in run("export", id).stdout


async def test_redacting_in_place_removes_secrets_from_history_and_search(
    tmp_path: Path, run: Run
) -> None:
    id = await make_session(tmp_path)
    refused = run("secrets", "redact", id, "--in-place")
    assert refused.returncode != 0 and "--yes" in refused.stderr
    done = run("secrets", "redact", id, "--in-place", "--yes")
    assert "Replaced 2 secrets" in done.stderr and "Not undone" in done.stderr
    async with Hub(SQLiteStore.open(tmp_path / "data" / "segue.db"), tmp_path / "data") as hub:
        assert len((await hub.sessions.list(LOCAL)).sessions) == 1
        events = await hub.history.events(LOCAL, id)
        assert KEY not in str(events) and "walrus" in str(events)
        assert (await hub.sessions.search(LOCAL, Query(text="walrus"))).matches
        assert not (await hub.sessions.search(LOCAL, Query(text=KEY))).matches
        assert (await hub.sessions.get(LOCAL, id)).title == "Deploy"


def test_a_secret_that_is_split_over_lines_of_a_transcript_is_masked(run: Run, home: Home) -> None:
    def said(id: str, parent: str, text: str) -> dict[str, Any]:
        return assistant(id, parent, [{"type": "text", "text": text}])

    lines = [user("u1", None, "go", cwd="/p"), said("a1", "u1", f"It is {KEY[:15]}")]
    lines += [said("a2", "a1", KEY[15:30]), said("a3", "a2", f"{KEY[30:]} now")]
    id = home.write(lines).stem
    masked = run("export", id, "--format", "claude", "-o", "-", "--mask").stdout
    assert KEY[4:15] not in masked and KEY[15:30] not in masked
    assert MASK in masked and " now" in masked and masked.count("\n") == len(lines)
    assert KEY[15:30] in run("export", id, "--format", "claude", "-o", "-").stdout
