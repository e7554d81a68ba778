"""Generated secrets in the sessions of every tool are masked in every output."""

import os
import random
import re
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from msgspec.json import encode

import segue
from segue.hub import Hub
from segue.interfaces.mcp.scope import McpSettings
from segue.interfaces.mcp.server import McpServer
from segue.model.principal import LOCAL
from segue.model.session import Session
from tests.command_server import CommandServer
from tests.conftest import HOME_VARIABLES
from tests.interfaces.cli.child import COMMAND
from tests.interfaces.web.site import Site, site_of
from tests.secrets import generated_secrets as generated
from tests.secrets.planted_sessions import (
    Planted,
    described,
    leaked,
    plant,
    readable,
    store_session,
)
from tests.sources.writing.tool_sessions import use_homes, writable_tools

TOOLS = ["segue", *writable_tools()]
MAX_MISSED = 0.01
WHOLE_OUTPUTS = ["share link", "browser's export.html", "JSONL --mask", "continued --mask"]
WHOLE_OUTPUTS += ["MCP read_session turn", "MCP resource", "segue export --format markdown"]
WHOLE_OUTPUTS += ["segue export --format html", "segue export --format claude"]


@asynccontextmanager
async def open_hub(directory: Path) -> AsyncIterator[Hub]:
    sources = ",".join(TOOLS[1:])
    async with await segue.open_hub(directory / "store", sources=sources, lasting=True) as hub:
        yield hub


async def call(client: Client, tool: str, **arguments: Any) -> str:
    """Return all pages of a tool's answer."""
    pages: list[str] = []
    while True:
        content = (await client.call_tool(tool, {"max_chars": 60_000, **arguments})).content[0]
        assert content.type == "text", content
        pages.append(content.text)
        if "cursor=" not in content.text or len(pages) > 40:
            return "\n".join(pages)
        arguments["cursor"] = content.text.rsplit("cursor=", 1)[1].split()[0]


async def mcp_outputs(
    hub: Hub, session: Session, planted: list[Planted], turns: int
) -> dict[str, str]:
    """Return what the tools, resources and prompts of the MCP server answer."""

    async def get_hub() -> Hub:
        return hub

    server = McpServer(get_hub, lambda context: LOCAL, McpSettings(scope="all"))
    answers: dict[str, list[str]] = {}

    def add(name: str, text: str) -> None:
        answers.setdefault(f"MCP {name}", []).append(text)

    async with Client(server.protocol) as client:
        for part in ("outline", "prompts"):
            add(
                f"read_session {part}",
                await call(client, "read_session", session=session.id, part=part),
            )
        for number in range(1, turns + 1):
            arguments = {"session": session.id, "part": "turn", "turn": number}
            add("read_session turn", await call(client, "read_session", **arguments))
            uri = f"segue://session/{session.id}/turn/{number}"
            resource = (await client.read_resource(uri)).contents[0]
            add("resource", resource.text)  # type: ignore[union-attr]
        async for event in hub.history.read(LOCAL, session.id):
            if event.seq % 3 == 0:
                arguments = {
                    "session": session.id,
                    "part": "around",
                    "event": event.seq,
                    "window": 1,
                }
                add("read_session around", await call(client, "read_session", **arguments))
        for item in planted:
            add("search_sessions", await call(client, "search_sessions", words=item.marker))
            add("similar_failures", await call(client, "similar_failures", error=item.marker))
            if item.place in ("write", "edit"):
                path = f"{item.marker}.py"
                add("sessions_touching", await call(client, "sessions_touching", path=path))
            if item.place in ("command", "output"):
                add("find_command", await call(client, "find_command", words=item.marker))
        add("recent_work", await call(client, "recent_work"))
        for prompt in ("continue_from", "summarise_for_handoff"):
            (message,) = (await client.get_prompt(prompt, {"session": session.id})).messages
            add(f"prompt {prompt}", message.content.text)  # type: ignore[union-attr]
        resources = await client.list_resources()
        add("list of resources", resources.model_dump_json())
    return {name: "\n".join(texts) for name, texts in answers.items()}


async def page_outputs(site: Site, session: Session, planted: list[Planted]) -> dict[str, str]:
    """Return what readers of a share link see, and the files of the session browser."""
    await site.get(f"/s/{session.id}/share")
    await site.post(f"/s/{session.id}/share")
    share = await site.hub.shares.get(LOCAL, session.id)
    assert share is not None
    path = f"/shared/local/{session.id}/{share.secret}"
    pages = [f"{path}/chunks?first=0&last=99999999999", f"{path}/outline", f"{path}/info", path]
    pages += [f"{path}/turns?q={item.marker}" for item in planted[::5]]
    texts = [(await site.client.get(page)).text for page in pages]
    async for event in site.hub.history.read(LOCAL, session.id):
        for part in ("whole", "markdown"):
            response = await site.client.get(f"{path}/{part}/{event.seq}")
            assert response.status_code in (200, 404)
            texts.append(response.text)
    outputs = {"share link": "\n".join(texts)}
    for format in ("html", "md"):
        response = await site.client.get(f"/s/{session.id}/export.{format}")
        if response.status_code == 200:
            outputs[f"browser's export.{format}"] = response.text
    return outputs


async def lossless_outputs(hub: Hub, session: Session, tool: str, cwd: Path) -> dict[str, str]:
    """Return JSONL, Claude Code's transcript and the session in another tool, all masked."""
    chunks = [chunk async for chunk in hub.exchange.export(LOCAL, session.id, mask=True)]
    outputs = {"JSONL --mask": b"".join(chunks).decode()}
    following = {**dict(zip(TOOLS, [*TOOLS[1:], TOOLS[1]], strict=True))}[tool]
    files = snapshot(cwd)
    new = await hub.continuing.continue_in(LOCAL, session.id, following, mask=True)
    events = [event async for event in hub.history.read(LOCAL, new.session.id)]
    outputs["continued --mask"] = encode(events).decode(errors="replace")
    written = {path: data for path, data in snapshot(cwd).items() if files.get(path) != data}
    outputs["continued --mask, files"] = "\n".join(
        data.decode(errors="replace").removeprefix(files.get(path, b"").decode(errors="replace"))
        for path, data in written.items()
        if path.suffix in (".json", ".jsonl")
    )
    return outputs


def snapshot(directory: Path) -> dict[Path, bytes]:
    """Return the files of the tools' homes."""
    homes = [directory / name.lower() for name in HOME_VARIABLES]
    return {p: p.read_bytes() for home in homes for p in home.rglob("*") if p.is_file()}


Run = Callable[..., subprocess.CompletedProcess[str]]


def command_outputs(run: Run, session: Session, min_count: int) -> dict[str, str]:
    """Return what `segue export` writes; check that it counts the secrets before."""
    outputs: dict[str, str] = {}
    masking = {"markdown": [], "html": [], "claude": ["--mask"], "segue": ["--mask"]}
    for format, options in masking.items():
        done = run("export", session.id, "--format", format, "-o", "-", *options)
        assert done.returncode == 0, done.stderr
        outputs[f"segue export --format {format}"] = done.stdout
        note = re.search(r"contains (\d+) secrets: masked", done.stderr)
        assert note is not None and int(note[1]) >= min_count, done.stderr
    return outputs


async def check_tool(
    run: Run, tool: str, kinds: list[str], tmp_path: Path, rng: random.Random
) -> tuple[dict[str, int], list[str]]:
    """Return how many secrets each output of a tool's session leaks, and a line for each."""
    cwd = tmp_path / "work"
    cwd.mkdir(exist_ok=True)
    planted, bodies = plant(kinds, str(cwd), rng)
    async with open_hub(tmp_path) as hub, site_of(hub) as site:
        session = await store_session(hub, tool, bodies, str(cwd))
        planted = await readable(hub, session, planted)
        assert len(planted) >= 0.8 * len(kinds)
        original = [chunk async for chunk in hub.exchange.export(LOCAL, session.id)]
        there = leaked(planted, {"original": b"".join(original).decode()})["original"]
        whole = [item for item in planted if item.place != "chunks"]
        assert {*whole} <= {*there}, {*whole} - {*there}
        outputs = await mcp_outputs(hub, session, planted, len(kinds))
        outputs |= await page_outputs(site, session, planted)
        outputs |= await lossless_outputs(hub, session, tool, tmp_path)
        min_count = int((1 - MAX_MISSED) * len(planted)) - 1
        outputs |= command_outputs(run, session, min_count)
        dialog = await site.get(f"/s/{session.id}/share")
        counted = re.search(r"(\d+) found", dialog)
        assert counted is not None and int(counted[1]) >= min_count, dialog
    markers = [item.marker for item in whole]
    for name in WHOLE_OUTPUTS:
        assert all(marker in outputs[name] for marker in markers), name
    leaks = leaked(planted, outputs)
    return {name: len(items) for name, items in leaks.items()}, [
        f"{tool}, {line}" for line in described(leaks)
    ]


async def check_tools(
    server: CommandServer,
    tools: list[str],
    per_tool: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_homes(monkeypatch, tmp_path)
    monkeypatch.setenv("SEGUE_DATA_DIR", str(tmp_path / "store"))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return server.run([COMMAND, *words], env=dict(os.environ), cwd=tmp_path)

    seed = random.randrange(2**32)
    rng = random.Random(seed)
    total = per_tool * len(tools)
    kinds = (rng.sample(generated.KINDS, len(generated.KINDS)) * (total // 40 + 1))[:total]
    missed: Counter[str] = Counter()
    lines: list[str] = []
    for number, tool in enumerate(tools):
        part = kinds[number * per_tool : (number + 1) * per_tool]
        counts, leaks = await check_tool(run, tool, part, tmp_path, rng)
        missed.update(counts)
        lines += leaks
    for line in lines:
        print(line)
    allowed = max(1, int(MAX_MISSED * total))  # of a small sample, one
    too_many = {name: count for name, count in missed.items() if count > allowed}
    assert not too_many, f"of {total} secrets, seed {seed}: {too_many}"


async def test_secrets_of_two_tools_are_masked_in_every_output(
    command_server: CommandServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_tools(command_server, ["segue", "codex"], 16, tmp_path, monkeypatch)


@pytest.mark.full
async def test_secrets_of_all_tools_are_masked_in_every_output(
    command_server: CommandServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(TOOLS) == 9
    await check_tools(command_server, TOOLS, 50, tmp_path, monkeypatch)
