"""A killed process leaves a streamed message: every read shows the session as interrupted."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from segue.hub import Hub
from segue.interfaces.rest import RestApp
from segue.interfaces.rest.events.stream_ack import StreamAcks
from segue.model import ids
from segue.model.content import plain_text
from segue.model.event import AgentMessage, Delta
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.store.memory import MemoryStore
from tests.faults.processes import TIMEOUT_SECONDS, StoreLocation, child, environment
from tests.faults.takeover import bodies, recover_sessions
from tests.interfaces.rest.api import Api
from tests.interfaces.web.site import site_of
from tests.read_only_store import ReadOnlyStore

SHORT = 2_000_000  # a lease, in microseconds
STREAM = "/slow 0.03\n/say " + " ".join(f"word{number}" for number in range(1000))
INTERRUPTED = "the process that ran this turn ended before it did"


class Killed:
    """A session whose process was killed, and the text that it had streamed."""

    def __init__(self, hub: Hub, location: StoreLocation, id: str, text: str) -> None:
        self.hub, self.location, self.id, self.text = hub, location, id, text

    async def command(self, *words: str) -> str:
        """Run the `segue` command on the store."""
        variables = {
            **environment(),
            "SEGUE_DATA_DIR": str(self.location.directory),
            "SEGUE_DATABASE_URL": self.location.url or "",
            "SEGUE_SOURCES": "none",
            "NO_COLOR": "1",
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "segue",
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=variables,
        )
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return output.decode()


@asynccontextmanager
async def killed_session(location: StoreLocation) -> AsyncIterator[Killed]:
    """Yield a session whose process is killed in the middle of a streamed message.

    The hub does not recover turns, because its turn engine is not started.
    """
    async with Hub(await location.open(), location.directory, lease=SHORT) as hub:
        session = (await hub.editor.create(LOCAL, cwd="/work", title="A long answer")).id
        text = ""
        async with child("holder.py", *location.arguments, SHORT) as process:
            await process.request(do="prompt", session=session, text=STREAM)
            async with asyncio.timeout(TIMEOUT_SECONDS):
                async for item in hub.history.follow(LOCAL, session, deltas=True):
                    text += item.text if isinstance(item, Delta) else ""
                    if len(text) > 20:
                        break
            assert (await hub.sessions.get(LOCAL, session)).status == "running"
            process.kill()
            await process.ended()
        yield Killed(hub, location, session, text)


def run_with_killed_session(
    location: StoreLocation, check: Callable[[Killed], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with killed_session(location) as killed:
            before = await killed.hub.store.get("local", killed.id)
            await check(killed)
            assert before is not None and before.status == "running"
            assert await killed.hub.store.get("local", killed.id) == before  # nothing was written

    asyncio.run(main())


async def list_ids(hub: Hub, *statuses: Any, text: str | None = None) -> list[str]:
    page = await hub.sessions.list(LOCAL, Query(statuses=statuses, text=text))
    return [session.id for session in page.sessions]


def test_hub_reads_a_killed_session_as_idle_without_a_write(location: StoreLocation) -> None:
    async def check(killed: Killed) -> None:
        store: Any = ReadOnlyStore(killed.hub.store)
        hub, id = Hub(store, killed.location.directory), killed.id
        found = await hub.sessions.search(LOCAL, Query(text="word1", statuses=("idle",)))
        ranked = await hub.sessions.search(LOCAL, Query(text="word1", limit=5), ranked=True)
        for session in (
            await hub.sessions.get(LOCAL, id),
            *(await hub.sessions.list(LOCAL)).sessions,
            *(await hub.sessions.list(LOCAL, Query(order="created"))).sessions,
            *await hub.sessions.in_id_range(LOCAL, id, id),
            *(match.session for match in [*found.matches, *ranked.matches]),
        ):
            assert (session.id, session.status, session.stop_reason) == (id, "idle", "error")
            assert (session.turn, session.pending, session.running_since) == (None, (), None)
        assert found.matches and ranked.matches
        assert await list_ids(hub, "idle") == [id]
        assert await list_ids(hub, "idle", "running") == [id]
        assert await list_ids(hub, "running") == []
        assert await list_ids(hub, "rescheduling", "terminated") == []
        ranked = await hub.sessions.search(
            LOCAL, Query(text="word1", statuses=("running",)), ranked=True
        )
        assert ranked.matches == []

    run_with_killed_session(location, check)


def test_export_of_a_killed_session_has_its_text_and_the_end_of_its_turn(
    location: StoreLocation, tmp_path: Path
) -> None:
    async def check(killed: Killed) -> None:
        store: Any = ReadOnlyStore(killed.hub.store)
        hub = Hub(store, killed.location.directory)
        lines = [line async for line in hub.exchange.export(LOCAL, killed.id)]
        assert lines == [line async for line in hub.exchange.export(LOCAL, killed.id)]
        header, *events = map(json.loads, lines)
        assert header["session"]["last_seq"] == len(events)
        end = events[-1]["body"]
        assert (end["status"], end["stop_reason"]) == ("idle", "error")
        derived = [event["body"]["type"] for event in events if event.get("derived")]
        assert derived == ["agent_message", "interrupted", "status_changed"]
        assert not any("derived" in event for event in events[: -len(derived)])
        assert events[-3]["body"]["partial"] and len(events[-3]["body"]["content"]) == 1
        assert events[-3]["body"]["content"][0]["text"].startswith(killed.text)

        async with Hub(MemoryStore(), tmp_path / "copy") as copy:
            imported = await copy.exchange.import_session(LOCAL, lines)
            assert imported.status == "idle"
            # An import adds the limits of a file that a stranger may have made.
            assert imported.directory_is_unconfirmed == Path("/work").is_dir()
            again = [json.loads(line) async for line in copy.exchange.export(LOCAL, killed.id)]
        for event in events:
            event.pop("derived", None)
        # An export leaves out the limits if they are in the last event.
        assert again[1:] == events

        for format, cut_off in (("markdown", "Interrupted"), ("html", "cut off")):
            document = await killed.command("export", killed.id, "--format", format)
            assert killed.text in document and cut_off in document, document

    run_with_killed_session(location, check)


def test_commands_show_a_killed_session_as_interrupted(location: StoreLocation) -> None:
    async def check(killed: Killed) -> None:
        listed = await killed.command("list")
        assert "running" not in listed and "failed" in listed
        (row,) = json.loads(await killed.command("list", "--status", "idle", "--format", "json"))
        assert (row["id"], row["status"], row["stop_reason"]) == (killed.id, "idle", "error")
        running = await killed.command("list", "--status", "running", "--format", "json")
        assert json.loads(running) == []
        shown = await killed.command("show", killed.id)
        assert killed.text in shown
        assert "(cut off)" in shown and f"-- {INTERRUPTED} --" in shown

    run_with_killed_session(location, check)


def test_rest_and_the_browser_show_a_killed_session_as_idle(location: StoreLocation) -> None:
    async def main() -> None:
        async with killed_session(location) as killed:
            hub = killed.hub
            _, key = await hub.keys.create("local")
            app = RestApp(hub)
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                api = Api(app, client, "local", key)
                id = ids.format_id("sesn", killed.id)
                assert (await api.ok("GET", f"/v1/sessions/{id}"))["status"] == "idle"
                for status, expected in (("idle", [id]), ("running", [])):
                    rows = await api.ok("GET", f"/v1/sessions?statuses[]={status}")
                    assert [row["id"] for row in rows["data"]] == expected
            row = await hub.sessions.get(LOCAL, killed.id)
            prompt = await hub.history.events(LOCAL, killed.id, types=("user_message",))
            replayed = await StreamAcks(hub).replay_start(LOCAL, row)
            assert replayed == prompt[0].seq - 1  # a stream begins with the turn that was cut off
            async with site_of(hub) as site:
                for path in ("/", f"/s/{killed.id}"):
                    page = await site.get(path)
                    assert "A long answer" in page and "running: " not in page
                    assert 'class="status running"' not in page
                assert killed.text in await site.get(f"/s/{killed.id}/export.md")
            stored = await hub.store.get("local", killed.id)
            assert stored is not None and stored.status == "running"

    asyncio.run(main())


def test_recovery_stores_what_reads_have_shown(location: StoreLocation) -> None:
    async def main() -> None:
        async with killed_session(location) as killed:
            hub = killed.hub
            history = await hub.history.as_ended(LOCAL, killed.id)
            shown = [event async for event in history.conversation(LOCAL, killed.id)]
            await recover_sessions(hub, killed.id)
            stored = list(await hub.history.events(LOCAL, killed.id))
            assert [(event.seq, event.body) for event in shown] == [
                (event.seq, event.body) for event in stored
            ]
            assert [event.at for event in shown[-3:]] == [history.session.updated_at] * 3
            (message,) = bodies(stored, AgentMessage)
            assert message.partial and plain_text(message.content).startswith(killed.text)

    asyncio.run(main())
