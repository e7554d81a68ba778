"""Compare the Agent Host Protocol with ACP, both over a WebSocket of `segue serve`."""

from __future__ import annotations

import asyncio
import base64
import sys
import time
import uuid
from typing import Any

from _common import Bench, Times, list_corpus, temporary_directory
from acp import WebSocketServer, make_data_dir

from segue.interfaces.ahp.subscriptions.session_list import FIRST_LISTED, MAX_LISTED

MAX_RATIO_OF_LIST = 2.0
MAX_RATIO_OF_CHUNK = 1.1  # processor times are measured in steps of 10 µs for a chunk
CHUNKS = 1000
LIST_SECONDS = 8.0  # until the server has sent the sessions of other directories
ROOT = "ahp-root://"


class AhpServer(WebSocketServer):
    """`segue serve` with a client of the Agent Host Protocol."""

    path = "/ahp"

    def initialize(self) -> None:
        self.request(
            "initialize",
            channel=ROOT,
            protocolVersions=["0.9.0"],
            clientId="bench",
            initialSubscriptions=[ROOT],
        )


def run_turn(server: WebSocketServer, text: str) -> float:
    """Run a turn in a new session, and return the server's processor time for each chunk."""
    if isinstance(server, AhpServer):
        session = f"segue:/{uuid.uuid4()}"
        chat = "ahp-chat://default/" + base64.urlsafe_b64encode(session.encode()).decode()
        chat = chat.rstrip("=")
        server.request("createSession", channel=session, provider="segue")
        server.request("subscribe", channel=chat)
        action = {"type": "chat/turnStarted", "turnId": "turn", "message": {"text": text}}
        before = server.cpu_seconds
        server.notify("dispatchAction", channel=chat, clientSeq=1, action=action)
        chunk, last = b'"chat/delta"', b'"chat/turnComplete"'
    else:
        id = server.request("session/new", cwd="/", mcpServers=[])["sessionId"]
        before = server.cpu_seconds
        prompt = [{"type": "text", "text": text}]
        server.send("session/prompt", sessionId=id, prompt=prompt)
        chunk, last = b'"agent_message_chunk"', b'"stopReason"'
    count, is_complete = 0, False
    while not is_complete:
        lines = server.lines()
        count += sum(chunk in line for line in lines)
        is_complete = any(last in line for line in lines)
    assert count >= CHUNKS * 0.9, count
    return (server.cpu_seconds - before) / count


async def main() -> int:
    bench = Bench("the Agent Host Protocol, compared with ACP", ("AHP", "ACP", "ratio"))
    count = 10_000 if bench.quick else 100_000
    with temporary_directory() as directory:
        data = await make_data_dir(bench, directory, f"listed-{count}", list_corpus(count), count)
        ahp, acp = AhpServer(data), WebSocketServer(data)

        list_seconds: dict[str, list[float]] = {"AHP": [], "ACP": []}
        for _ in range(20 if bench.quick else 200):
            began_at = time.perf_counter()
            assert len(ahp.request("listSessions", channel=ROOT)["items"]) == FIRST_LISTED
            list_seconds["AHP"].append(time.perf_counter() - began_at)
            added = 0
            while added < MAX_LISTED - FIRST_LISTED:  # what follows the answer is not timed
                added += sum(b'"root/sessionAdded"' in line for line in ahp.lines())
            began_at = time.perf_counter()
            assert acp.request("session/list")["sessions"]
            list_seconds["ACP"].append(time.perf_counter() - began_at)
        first, other = (Times(seconds).median for seconds in list_seconds.values())
        bench.row(
            f"the first list of {count:,} sessions",
            target=f"≤ {MAX_RATIO_OF_LIST:g}x",
            ok=first / other <= MAX_RATIO_OF_LIST,
            AHP=f"{first * 1e3:.2f} ms",
            ACP=f"{other * 1e3:.2f} ms",
            ratio=first / other,
        )
        time.sleep(LIST_SECONDS)
        text = "/slow 0.001\n/say " + " ".join(["word"] * CHUNKS)  # or words would be joined
        seconds: dict[Any, list[float]] = {ahp: [], acp: []}
        for number in range(-1, 3 if bench.quick else 10):
            for server, values in seconds.items():
                each = run_turn(server, text)
                if number >= 0:
                    values.append(each)
        own, other = Times(seconds[ahp]).median, Times(seconds[acp]).median
        bench.row(
            "processor time of a streamed chunk",
            target=f"≤ {MAX_RATIO_OF_CHUNK:g}x",
            ok=own / other <= MAX_RATIO_OF_CHUNK,
            AHP=f"{own * 1e6:.0f} µs",
            ACP=f"{other * 1e6:.0f} µs",
            ratio=own / other,
        )
        ahp.close()
        acp.close()
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
