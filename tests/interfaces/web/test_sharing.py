"""Share links: when they end, and what their readers do not see."""

import re
from pathlib import Path

import pytest

from segue.hub.history.redacted import Redaction
from segue.interfaces.web.pages.shares import EXPIRY_DAYS
from segue.model import clock, ids
from segue.model.content import Diff, Text
from segue.model.errors import NotFound
from segue.model.event import (
    AgentMessage,
    Created,
    InfoChanged,
    ToolCall,
    ToolCallChanged,
    ToolResult,
    UserMessage,
)
from segue.model.principal import LOCAL
from tests.interfaces.web.examples import text
from tests.interfaces.web.site import Site, open_site

OUTPUT = "wombat-output"
BODIES = [
    Created(cwd="/p/x"),
    UserMessage(content=text("Look around")),
    ToolCall(
        call_id="a",
        name="Bash",
        kind="execute",
        input={"command": "ls -la"},
        content=(Text(text=f"partial {OUTPUT}"), Diff(path="a.py", old="x", new="shown-change")),
    ),
    ToolCallChanged(
        call_id="a",
        content=(Text(text=f"more {OUTPUT}"), Diff(path="a.py", old="x", new="shown-change")),
    ),
    ToolResult(call_id="a", status="failed", content=text(f"1 {OUTPUT}"), output={"out": OUTPUT}),
    AgentMessage(content=text("Two files are there")),
]


async def shared_session(site: Site) -> str:
    session = await site.hub.store.create("local", ids.new_id(), BODIES)
    return session.id


async def test_readers_of_a_link_without_tool_output_find_it_nowhere(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        id = await shared_session(site)
        await site.get(f"/s/{id}/share")
        await site.post(f"/s/{id}/share", tools="hidden", days="7")
        link = re.findall(r'value="(http[^"]+/shared/[^"]+)"', await site.get(f"/s/{id}/share"))[0]
        path = link.partition("8787")[2]
        page = await site.get(path)
        assert "shown-change" in page and "Two files" in page
        assert "What tools returned is hidden" in page
        paths = [f"{path}{end}" for end in ("", "?at=1", "/chunks?first=0&last=3", "/changes")]
        paths += [f"{path}{end}" for end in ("/errors", "/turns?q=wombat", "/agents?q=wombat")]
        paths += [f"{path}/{part}/{seq}" for part in ("whole", "markdown") for seq in (3, 5)]
        paths += [f"{path}/markdown/2?turn=1", f"{path}/preview?at=5", f"{path}/outline"]
        paths.append(f"/s/{id}/export.html?tools=hidden")
        for hidden in paths:
            response = await site.client.get(hidden)
            assert response.status_code in (200, 404), hidden
            assert OUTPUT not in response.text, hidden
        assert "shown-change" in await site.get(f"{path}/whole/3")
        await site.post(f"/s/{id}/share", tools="shown", days="7")  # the link stays the same
        assert OUTPUT in await site.get(path)


async def test_a_link_is_valid_until_it_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_site(tmp_path) as site:
        id = await shared_session(site)
        shares = site.hub.shares
        secret = await shares.share(LOCAL, id, days=2, redaction=Redaction())
        now = clock.now()
        await shares.authenticate("local", id, secret)
        monkeypatch.setattr(clock, "now", lambda: now + 2 * clock.DAY)
        with pytest.raises(NotFound, match="expired"):
            await shares.authenticate("local", id, secret)
        assert "expired" in await site.get(f"/shared/local/{id}/{secret}", 404)
        await site.sign_in()
        assert "Create link" in await site.get(f"/s/{id}/share")
        assert await shares.share(LOCAL, id) != secret
        for days in EXPIRY_DAYS:
            await site.post(f"/s/{id}/share", days=str(days))
        await site.post(f"/s/{id}/share", 400, days="13")


async def test_a_loopback_server_says_that_its_links_work_only_here(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        id = await shared_session(site)
        page = await site.get(f"/s/{id}/share")
        assert "Only this computer can reach the server" in page and "/export.html" in page


async def test_secrets_are_counted_and_masked_for_readers(tmp_path: Path) -> None:
    key = "ghp_" + "a8Kd3Lm9Qw2Er5Ty7Ui1Op4Zx6Cv0Bn3Mq8S"
    async with open_site(tmp_path) as site:
        session = await site.hub.store.create(
            "local",
            ids.new_id(),
            [
                Created(cwd="/p/x"),
                InfoChanged(title=f"Use {key}"),
                UserMessage(content=text(f"My token is {key}, use it")),
                AgentMessage(content=text(f"export GITHUB_TOKEN={key}")),
            ],
        )
        page = await site.get(f"/s/{session.id}/share")
        assert "2 found" in page or "3 found" in page
        await site.post(f"/s/{session.id}/share")
        share = await site.hub.shares.get(LOCAL, session.id)
        assert share is not None and share.redaction.mask_secrets
        path = f"/shared/local/{session.id}/{share.secret}"
        for part in ("", "/whole/3", "/markdown/3", "/turns?q=token", "/outline", "/info"):
            shown = await site.get(f"{path}{part}")
            assert key not in shown, part
        assert "[masked]" in await site.get(path)
        assert key not in await site.get(f"/s/{session.id}/export.html")
        assert key in await site.get(f"/s/{session.id}/export.html?secrets=shown")
        assert key in await site.get(f"/s/{session.id}")
        await site.post(f"/s/{session.id}/share", secrets="shown")
        assert key in await site.get(path)
