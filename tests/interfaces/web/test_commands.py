"""The commands on pages run as they are and contain no secrets."""

import html
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from segue.factory import open_hub
from segue.interfaces.web.request import DATABASE_VARIABLE, redact_database_url
from segue.model.content import Diff
from segue.model.event import Location, ToolCall
from segue.model.principal import LOCAL, Principal
from tests.interfaces.web.site import open_site, site_of


def run(command: str, **environment: str) -> str:
    """Return what a command prints in an environment without settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SEGUE_")}
    program = f'segue() {{ {shlex.quote(sys.executable)} -m segue "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-c", program + command],
        env={**clean, **environment},
        input="/say heard from afar\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def resume_command(page: str) -> str:
    """Return the command that a session's page offers."""
    [command] = re.findall(r'<input id="a-command" readonly value="([^"]+)"', page)
    return html.unescape(command)


async def test_resume_command_continues_a_session_in_a_terminal(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL, title="Mine")
        command = resume_command(await site.get(f"/s/{session.id}"))
    assert "heard from afar" in run(command)


async def test_resume_command_continues_a_session_in_a_database(
    tmp_path: Path, fresh_database_url: str
) -> None:
    separator = "&" if "?" in fresh_database_url else "?"
    url = f"{fresh_database_url}{separator}password=very-secret"
    async with await open_hub(tmp_path, url) as hub, site_of(hub) as site:
        session = await site.hub.editor.create(LOCAL, title="Mine")
        page = await site.get(f"/s/{session.id}")
        assert "very-secret" not in page and "PGPASSWORD or use ~/.pgpass" in html.unescape(page)
        command = resume_command(page)
        assert "--database-url" in command
        team = Principal(workspace="team")
        team_session = await hub.editor.create(team, title="Theirs")
        site.client.cookies.clear()
        await site.sign_in(team)
        page = await site.get(f"/s/{team_session.id}")
        assert fresh_database_url not in html.unescape(page)  # holders of a key must not see it
        team_command = resume_command(page)
        assert f'"{DATABASE_VARIABLE}"' in team_command
    assert "heard from afar" in run(command)
    assert "heard from afar" in run(team_command, SEGUE_DATABASE_URL=fresh_database_url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@db.example:5433/segue", "postgresql://me@db.example:5433/segue"),
        (
            "postgresql://me:se%40cret@[::1]/segue?sslmode=require",
            "postgresql://me@[::1]/segue?sslmode=require",
        ),
        ("postgresql:///segue?host=/run&password=secret", "postgresql:///segue?host=/run"),
        ("postgresql://h/d?sslpassword=secret&a=b", "postgresql://h/d?a=b"),
        ("postgresql://me:sec/ret@h/d", DATABASE_VARIABLE),
        ("postgresql://me:secret@h:port/d", DATABASE_VARIABLE),
        ("postgresql://[oops/d", DATABASE_VARIABLE),
    ],
)
def test_a_database_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redact_database_url(url) == shown


async def test_only_the_local_user_sees_the_data_directory(tmp_path: Path) -> None:
    team = Principal(workspace="team")
    async with open_site(tmp_path, signed_in=False) as site:
        await site.sign_in(team)
        assert str(tmp_path) not in await site.get("/")
        session = await site.hub.editor.create(team, title="Theirs")
        project_session = await site.hub.editor.create(
            team, title="In a project", cwd="/home/me/src/courier"
        )
        await site.hub.turns.run(team, session.id, "/say hi")
        file = f"{session.cwd}/notes.txt"
        call = ToolCall(
            call_id="c",
            name="write",
            content=(Diff(path=file, new="a"),),
            locations=(Location(path=file),),
        )
        await site.hub.editor.append(team, session.id, call)
        page = await site.get(f"/s/{session.id}")
        assert '<figcaption><span class="path">notes.txt</span> ' in page
        assert resume_command(page) == f"segue resume --workspace team {session.id}"
        assert "SEGUE_DATA_DIR" in page
        pages = [page, await site.get("/"), await site.get("/facets")]
        pages += [await site.get(f"/s/{session.id}/export.{format}") for format in ("md", "html")]
        await site.get("/")
        for shared in (session, project_session):
            await site.post(f"/s/{shared.id}/share")
            share = await site.hub.shares.get(team, shared.id)
            assert share is not None
            pages.append(await site.get(f"/shared/team/{shared.id}/{share.secret}"))
        assert [page for page in pages if str(tmp_path) in page] == []
        assert "<span>courier</span>" in pages[-1] and "/home/me" not in pages[-1]
        assert "/home/me/src/courier" in await site.get(f"/s/{project_session.id}")


async def test_page_shows_the_command_that_continues_a_session_and_what_is_lost(
    tmp_path: Path,
) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL, title="<b>Mine", cwd=str(tmp_path))
        call = ToolCall(call_id="c", name="bash", input={"command": "ls"})
        await site.hub.editor.append(LOCAL, session.id, call)
        assert f'href="/s/{session.id}/continue-in"' in await site.get(f"/s/{session.id}")
        page = await site.get(f"/s/{session.id}/continue-in")
        for name in site.hub.continuing.targets():
            assert f'href="/s/{session.id}/continue-in?tool={name}"' in page
        page = await site.get(f"/s/{session.id}/continue-in?tool=codex")
        assert f"{session.id} --in codex" in page and "tool calls: 1," in page
        assert "<td>unfinished calls</td><td>as text</td>" in page and "<b>Mine" not in page
        await site.get(f"/s/{session.id}/continue-in?tool=nothing", 400)
