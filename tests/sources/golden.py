"""Compare what a source reads with the answers of the tool itself (golden.json)."""

import asyncio
import json
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from segue.model.event import Event, ToolResult
from segue.model.query import Query
from segue.model.session import Session, Thread
from segue.sources.base import SourceProblem
from segue.sources.kit.reader import Reader
from segue.sources.kit.source import KitSource


class ReadSession(NamedTuple):
    """A session as a source reads it: its row, its conversation and its threads."""

    row: Session
    conversation: list[Event]
    threads: list[Thread]

    def count(self, *types: str) -> int:
        """Return how many events of some types the conversation has."""
        counts = Counter(event.type for event in self.conversation)
        return sum(counts[type] for type in types)

    @property
    def tokens(self) -> dict[str, int]:
        """The tokens of the session; the input includes the cache."""
        usage = self.row.usage
        return {
            "input": usage.context_tokens,
            "cached": usage.cache_read_tokens or 0,
            "output": usage.output_tokens or 0,
        }

    @property
    def model(self) -> Any:
        """The last model."""
        return self.row.agent and self.row.agent.overrides.get("model")


class ReadHome(NamedTuple):
    """All sessions of a home by native id, and what could not be read."""

    sessions: dict[str, ReadSession]
    problems: list[SourceProblem]


class Home:
    """A home: what segue reads, and what the tool itself answers for each session."""

    def __init__(self, read: ReadHome, golden: dict[str, Any]) -> None:
        self.problems = read.problems
        self.sessions = read.sessions
        self.golden = golden
        self.answers = {answer["id"]: answer for answer in golden["sessions"]}

    def pairs(self, *left_out: str) -> list[tuple[ReadSession, dict[str, Any]]]:
        """Return each session that is no subagent with the tool's answer, but some cases."""
        pairs = [(session, self.answers[id]) for id, session in self.sessions.items()]
        return [pair for pair in pairs if not left_out or pair[1]["case"] not in left_out]

    def case(self, name: str) -> ReadSession:
        """Return the newest session that was made for a case."""
        if "labels" in self.golden:
            return self.sessions[self.golden["labels"][name]]
        return next(self.sessions[id] for id, row in self.answers.items() if row["case"] == name)

    def check_counts(self) -> None:
        """Assert that each session has as many messages and calls as the tool says."""
        for session, answer in self.pairs():
            label = answer["label"]
            assert session.count("user_message") == answer["user_messages"], label
            assert session.row.turns == answer["user_messages"], label
            assert session.count("agent_thought") == answer["thoughts"], label
            assert session.count("tool_call") == answer["tool_calls"], label
            assert session.count("tool_result") == answer["tool_results"], label
            failed = [
                event.body
                for event in session.conversation
                if isinstance(event.body, ToolResult) and event.body.status == "failed"
            ]
            assert len(failed) == answer["failed_tool_calls"], label


class Homes:
    """The homes in an archive, by version. Each is read once, when a test needs it."""

    def __init__(
        self, archive: Path, directory: Path, make_reader: Callable[[Path], Reader]
    ) -> None:
        self._golden = unpack_homes(archive, directory)
        self._directory = directory
        self._make_reader = make_reader
        self._homes: dict[str, Home] = {}

    def read(self, version: str) -> Home:
        """Return the home of a version."""
        if version not in self._homes:
            directory = self._directory / version
            reader = self._make_reader(directory / "home")
            read = read_home(reader, directory / "segue.index")
            self._homes[version] = Home(read, self._golden[version])
        return self._homes[version]


def unpack_homes(archive: Path, directory: Path) -> dict[str, dict[str, Any]]:
    """Unpack homes, each with a directory `home`, and return their golden answers by name."""
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    return {
        path.parent.name: json.loads(path.read_text()) for path in directory.glob("*/golden.json")
    }


def read_home(reader: Reader, index: Path) -> ReadHome:
    """Read every session of a home through a source with a new index."""
    return asyncio.run(_read_home(reader, index))


async def _read_home(reader: Reader, index: Path) -> ReadHome:
    source = KitSource(reader, index, reader.name)
    sessions = {}
    try:
        await source.refresh()
        for row in await source.page(Query(archived="include", limit=10_000)):
            conversation = [event async for event in source.conversation(row.id)]
            threads = await source.threads(row.id)
            sessions[row.native_id or row.id] = ReadSession(row, conversation, threads)
        return ReadHome(sessions, list((await source.examine()).problems))
    finally:
        await source.close()


def homes_fixture(test_file: str, open_reader: Callable[[Path], Reader]) -> Any:
    """Return the fixture with the homes in the archive next to a test file."""

    @pytest.fixture(scope="module")
    def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
        archive = Path(test_file).with_name("homes.tar.xz")
        return Homes(archive, tmp_path_factory.mktemp("homes"), open_reader)

    return homes


def home_fixture(*versions: str) -> Any:
    """Return the fixture with one of the homes; a test runs with each of these versions."""

    @pytest.fixture(params=versions)
    def home(homes: Homes, request: pytest.FixtureRequest) -> Home:
        return homes.read(request.param)

    return home
