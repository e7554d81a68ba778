"""`segue open` looks for the running server of a data directory."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.hub.access.server_proof import server_proof
from segue.interfaces.cli import server_lookup
from segue.interfaces.cli.commands.serve import local_url, network_notes
from segue.model.errors import InvalidInput
from segue.store.memory import MemoryStore

SLOW_SECONDS = 0.5

Respond = Callable[[Hub, str, int], Awaitable[bytes]]  # to a nonce, sent to a port


async def prove_slowly(hub: Hub, nonce: str, port: int) -> bytes:
    await asyncio.sleep(SLOW_SECONDS)
    proof = await server_proof(hub.store, nonce, port)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(proof)}\r\nConnection: close\r\n\r\n"
    return (head + proof).encode()


async def speak_another_protocol(hub: Hub, nonce: str, port: int) -> bytes:
    return b"SSH-2.0-OpenSSH_9.6\r\n"


@asynccontextmanager
async def listening(hub: Hub, respond: Respond) -> AsyncIterator[str]:
    """Listen on a port, and yield its URL."""
    async with asyncio.TaskGroup() as requests:

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = await reader.readuntil(b"\r\n\r\n")
            nonce = request.split()[1].decode().partition("nonce=")[2]
            writer.write(await respond(hub, nonce, port))
            writer.close()
            with suppress(ConnectionError):  # the client has gone
                await writer.wait_closed()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            requests.create_task(handle(reader, writer))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        async with server:
            yield f"http://127.0.0.1:{port}"


def ended_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


async def test_a_slow_server_is_found_if_its_process_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_lookup, "DEAD_SERVER_SECONDS", SLOW_SECONDS / 5)
    async with Hub(MemoryStore(), tmp_path) as hub, listening(hub, prove_slowly) as url:
        with server_lookup.registered(tmp_path, url):
            assert await server_lookup.find_server(hub) == url
            (path,) = tmp_path.glob("server.*")
            path.rename(tmp_path / f"server.{ended_process()}.json")
            assert await server_lookup.find_server(hub) is None


async def test_of_several_servers_the_port_chooses_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        Hub(MemoryStore(), tmp_path) as hub,
        listening(hub, prove_slowly) as first,
        listening(hub, prove_slowly) as second,
    ):
        for number, url in enumerate((first, second)):
            (tmp_path / f"server.{os.getpid()}.{number}.json").write_text(json.dumps({"url": url}))
        assert await server_lookup.find_server(hub) == first
        note = f"Using {first}. Also running: {second}; --port chooses one.\n"
        assert capsys.readouterr().err == note
        assert await server_lookup.find_server(hub, int(second.rpartition(":")[2])) == second
        assert capsys.readouterr().err == ""
        with pytest.raises(InvalidInput, match=f"on port 1; running: {first}, {second}"):
            await server_lookup.find_server(hub, 1)


async def test_a_slow_server_at_the_port_is_found_behind_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_lookup, "DEAD_SERVER_SECONDS", SLOW_SECONDS / 5)
    async with Hub(MemoryStore(), tmp_path) as hub, listening(hub, prove_slowly) as first:
        (tmp_path / f"server.{os.getpid()}.0.json").write_text(json.dumps({"url": first}))
        async with listening(hub, prove_slowly) as second:
            (tmp_path / f"server.{os.getpid()}.1.json").write_text(json.dumps({"url": second}))
            assert await server_lookup.find_server(hub, int(second.rpartition(":")[2])) == second


async def test_a_program_of_another_protocol_on_the_port_is_skipped(tmp_path: Path) -> None:
    async with Hub(MemoryStore(), tmp_path) as hub, listening(hub, speak_another_protocol) as url:
        (tmp_path / f"server.{os.getpid()}.json").write_text(json.dumps({"url": url}))
        assert await server_lookup.find_server(hub) is None


def test_a_server_on_all_addresses_is_opened_at_loopback_and_names_its_hosts() -> None:
    assert local_url("http://0.0.0.0:8787") == "http://127.0.0.1:8787"
    assert local_url("http://[::]:8787") == "http://[::1]:8787"
    assert local_url("http://10.0.0.2:8787") == "http://10.0.0.2:8787"
    notes = network_notes("0.0.0.0", ("build-server",))
    assert "localhost, 127.0.0.1, ::1, build-server;" in notes and "--allow-host NAME" in notes
    assert "plain HTTP" in notes
    assert "::1, 10.0.0.2;" in network_notes("10.0.0.2", ())
