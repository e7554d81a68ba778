"""Every GET page of the session browser works on a read-only store and writes nothing."""

import asyncio
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.interfaces.web.routes import ROUTES
from segue.interfaces.web.templates import static_version
from segue.model.event import UserMessage
from segue.model.principal import LOCAL
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from tests.claude.entries import Home, S, user
from tests.claude.helpers import append, write_session_with_subagent
from tests.interfaces.web.site import open_site, site_of
from tests.read_only_store import ReadOnlyStore

AGENT = "a1b2c3"
IMAGE = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
GET_PATHS = [endpoint.path for endpoint in ROUTES if endpoint.method == "GET"]
# Query parameters that make a page read more than it does without them.
PARAMETERS = {
    "/compare": [f"?a={S}"],
    "/search": ["", "?q=hello", "?q=helo&order=recent"],
    "/dashboard.csv": ["", "?by=model", "?by=tool&name=claude"],
    "/": ["", "?q=birds", "?group=project", f"?deleted={S}", "?agent=unknown"],
    "/live": [f"?session={S}&as-of=1"],
    "/s/{id}/turns": ["", "?q=birds"],
    "/s/{id}/agents": ["?q=kingfisher"],
    "/s/{id}/next": ["?kind=error", "?kind=prompt&before=99"],
    "/shared/{workspace}/{id}/{secret}/next": ["?kind=message"],
}


@pytest.mark.parametrize("imported", [False, True], ids=["source", "imported"])
async def test_get_pages_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imported: bool
) -> None:
    home = Home(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home.root))
    transcript, agent_transcript = write_session_with_subagent(home)
    picture = [{"type": "image", "source": IMAGE}]
    append(transcript, user("u3", "a2", picture))
    append(agent_transcript, user("s3", "s2", picture, isSidechain=True, agentId=AGENT))
    source = ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(home.root)))
    async with open_site(tmp_path, sources=[source]) as site:
        if imported:
            await site.hub.sync.import_session(LOCAL, S, "claude")
            append(transcript, user("u4", "u3", "added after the import"))
        values = {
            "id": S,
            "workspace": "local",
            "secret": await site.hub.shares.share(LOCAL, S),
            "thread": AGENT,
            "index": "0",
            "version": static_version(),
            "name": "app.js",
            "format": "jsonl",
        }
        seq = await _last_message(site.hub)
        thread_seq = [event.seq async for event in site.hub.history.thread_events(LOCAL, S, AGENT)][
            -1
        ]
        reader = Hub(ReadOnlyStore(site.hub.store), tmp_path, sources=[source])  # type: ignore[arg-type]
        async with site_of(reader, signed_in=False) as pages:
            pages.client.cookies = site.client.cookies
            # Event streams end when the application closes.
            asyncio.get_running_loop().call_later(1, pages.app.closing.set)
            for path in GET_PATHS:
                values["seq"] = str(thread_seq if "{thread}" in path else seq)
                for query in PARAMETERS.get(path, [""]):
                    response = await pages.client.get(path.format(**values) + query)
                    assert response.status_code in (200, 307), (path, response.text[:500])
        await reader.history.close()
        assert await _last_message(site.hub) == seq


async def _last_message(hub: Hub) -> int:
    """Return the seq of the last user message that the hub has."""
    events = await hub.history.events(LOCAL, S)
    return [event.seq for event in events if isinstance(event.body, UserMessage)][-1]
