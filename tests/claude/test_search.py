"""Search the index: every strategy gives the same answers, and reads no more than a page needs."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from segue import fts5
from segue.model import ids, search_text
from segue.model.event import UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.claude.format import jsonl as reading
from segue.sources.index import ranking, terms
from segue.sources.index.writer import write_index
from tests.claude.entries import Home, S, as_line, assistant, title, user
from tests.claude.helpers import claude_hub, list_ids

WORDS = ["the", "then", "there", "bird", "birds", "kingfisher", "café", "東京", "x" * 70, "Zug"]
QUERIES = [
    "the",
    "th",
    "bird",
    "bir",
    "kingfish",
    "the bird",
    '"the bird"',
    '"bird the" kingfisher',
]
QUERIES += ["cafe", "café", "東京", "x" * 64, "nowhere", "the nowhere", "kingfisher the", '"bird"']


def random_text(chance: random.Random) -> str:
    weights = [20, 4, 4, 8, 2, 1, 1, 1, 1, 1]
    return " ".join(chance.choices(WORDS, weights, k=chance.randrange(1, 6)))


@asynccontextmanager
async def filled(home: Home, sessions: int = 60) -> AsyncIterator[Any]:
    chance = random.Random(1)
    for number in range(sessions):
        at = f"2026-01-01T{number // 60:02}:{number % 60:02}:00.000Z"
        lines = [user("u1", None, random_text(chance), timestamp=at)]
        lines += [
            assistant(f"a{n}", "u1", [{"type": "text", "text": random_text(chance)}], timestamp=at)
            for n in range(chance.randrange(6))
        ]
        home.write(lines, f"{number:08x}-0000-4000-8000-000000000000", f"-p{number % 3}")
    async with claude_hub(home) as (hub, source):
        yield hub, source


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"MAX_EAGER_HITS": -1, "HITS_PER_TEXT": 0},  # always read one session after the other
        {"MAX_EAGER_HITS": -1, "HITS_PER_TEXT": 0, "MAX_TEXTS_READ": 1},  # only the last text
        {"MAX_EAGER_HITS": -1, "HITS_PER_TEXT": 1 << 20},  # looked up whole after the first
        {"MAX_EAGER_HITS": -1, "HITS_PER_TEXT": 3, "FIRST_CHUNK_TEXTS": 1},
        {"MIN_SELECTIVE_PREFIX": 0, "MAX_SPARSE_FILES": 0},
        {"MIN_SELECTIVE_PREFIX": 0, "MAX_SPARSE_FILES": 1000},
    ],
)
async def test_every_search_strategy_finds_the_same_sessions(
    home: Home, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(terms, name, value)
    async with filled(home) as (hub, _):
        sessions = (await hub.sessions.list(LOCAL, Query(limit=100))).sessions
        tokens_by_session = {}
        for session in sessions:
            events = [event async for event in hub.history.read(LOCAL, session.id)]
            spoken = [(event, search_text.searchable_text(event.body)) for event in events]
            tokens_by_session[session.id] = [
                (event, search_text.tokens(shown)) for event, shown in spoken if shown
            ]
        for query in QUERIES:
            wanted = search_text.terms(query)
            right = [
                session.id
                for session in sessions
                if all(
                    any(
                        search_text.words_have_term(term, has)
                        for _, has in tokens_by_session[session.id]
                    )
                    for term in wanted
                )
            ]
            assert await list_ids(hub, text=query, limit=100) == right
            page = await hub.sessions.search(LOCAL, Query(text=query, limit=100))
            for match in page.matches:
                assert match.event == next(
                    event
                    for event, has in reversed(tokens_by_session[match.session.id])
                    if any(search_text.words_have_term(term, has) for term in wanted)
                )


async def test_search_for_a_common_word_reads_only_its_page(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        home.write_conversation(ids.new_id(), prompt=f"common {number}")
    read: list[str] = []
    stands = search_text.text_has_term

    def counting(term: search_text.Term, words: str) -> bool:
        read.append(words)
        return stands(term, words)

    monkeypatch.setattr(search_text, "text_has_term", counting)
    monkeypatch.setattr(terms, "MAX_EAGER_HITS", 100)  # 300 hits are many
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        statements: list[str] = []
        source.current_index.index._reader.set_trace_callback(statements.append)
        assert len((await hub.sessions.search(LOCAL, Query(text="common", limit=5))).matches) == 5
        assert len(read) <= 2 * 2 * 6  # two texts of each of six sessions, to find and to show it
        assert not any("FROM search" in sql and "LIMIT" not in sql for sql in statements)


async def test_search_reads_one_snapshot_of_the_index(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_conversation(prompt="needle")
    async with claude_hub(home) as (hub, source), claude_hub(home) as (_, other):
        await list_ids(hub)
        has = terms.TermSearch.has_all

        def late(self: terms.TermSearch, pk: int) -> bool:
            with write_index(other.current_index.index) as writer:
                writer.remove(str(home.projects / "-w" / f"{S}.jsonl"))
            return has(self, pk)

        monkeypatch.setattr(terms.TermSearch, "has_all", late)
        sessions = await source.page(Query(text="needle"))
        assert [session.id for session in sessions] == [S]


async def test_search_result_is_read_from_its_own_line(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [user(f"u{n}", None, f"filler {n}") for n in range(300)]
    home.write([*lines, user("u", None, "needle"), title("other")])
    read: list[bytes] = []
    async with claude_hub(home) as (hub, _):
        await list_ids(hub)
        entries = reading.parse_entries
        monkeypatch.setattr(
            reading, "parse_entries", lambda line: read.append(line) or entries(line)
        )
        (match,) = (await hub.sessions.search(LOCAL, Query(text="needle"))).matches
        assert match.event is not None and isinstance(match.event.body, UserMessage)
        assert read == [as_line(user("u", None, "needle")).strip()]
        assert (await hub.history.events(LOCAL, S, after=match.event.seq - 1))[0] == match.event


async def test_search_result_without_a_time_is_read_with_earlier_lines(home: Home) -> None:
    late = {"timestamp": "2026-01-02T00:00:00.000Z"}
    home.write([user("u1", None, "hi"), assistant("a1", "u1", **late), title("needle")])
    async with claude_hub(home) as (hub, _):
        (match,) = (await hub.sessions.search(LOCAL, Query(text="needle"))).matches
        assert match.event is not None
        assert match.event == (await hub.history.events(LOCAL, S, after=match.event.seq - 1))[0]


@pytest.fixture
def texts_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list to which the keys of the texts that searches read are added."""
    read: list[int] = []
    texts = terms.TermSearch.read_texts

    def counting(self: terms.TermSearch, *args: int) -> Iterator[list[tuple[int, bytes]]]:
        for batch in texts(self, *args):
            read.extend(key for key, _ in batch)
            yield batch

    monkeypatch.setattr(terms.TermSearch, "read_texts", counting)
    return read


@pytest.mark.parametrize(("every", "most"), [(1, 60), (4, 250), (50, 250), (1000, 250)])
async def test_search_reads_a_bounded_number_of_texts(
    home: Home, monkeypatch: pytest.MonkeyPatch, texts_read: list[int], every: int, most: int
) -> None:
    for number in range(400):
        text = f"{'needle' if number % every == 0 else 'hay'} {number}"
        home.write([user("u", None, text), *(user(f"v{n}", "u", "more") for n in range(4))])
        (home.projects / "-w" / f"{S}.jsonl").rename(
            home.projects / "-w" / f"{number:08x}-0000-4000-8000-000000000000.jsonl"
        )
    monkeypatch.setattr(terms, "MAX_EAGER_HITS", -1)  # no term is looked up at once
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        statements: list[str] = []
        source.current_index.index._reader.set_trace_callback(statements.append)
        page = await hub.sessions.search(LOCAL, Query(text="needle", limit=5))
        assert len(page.matches) == min(5, 400 // every + (400 % every > 0))
        assert len(texts_read) <= most
        complete_lookups = [
            sql for sql in statements if sql.startswith(fts5.HITS[:40]) and "LIMIT" not in sql
        ]
        assert len(complete_lookups) <= 1  # the snippets use the search of the list
        assert bool(complete_lookups) == (every > 1)
        before = len(texts_read)
        repeated = await hub.sessions.search(LOCAL, Query(text="needle", limit=5))
        assert [one.session.id for one in repeated.matches] == [
            one.session.id for one in page.matches
        ]
        assert len(texts_read) - before <= 60  # the last search is reused


async def test_change_of_the_index_clears_the_last_search(home: Home) -> None:
    home.write_conversation(prompt="needle")
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, text="needle") == [S]
        home.write_conversation(other := ids.new_id(), prompt="needle")
        assert sorted(await list_ids(hub, text="needle")) == sorted([S, other])
        (home.projects / "-w" / f"{S}.jsonl").unlink()
        assert await list_ids(hub, text="needle") == [other]


async def test_ranked_search_ranks_all_hits_of_a_rare_word(home: Home) -> None:
    for number in range(30):
        home.write_conversation(
            f"{number:08x}-0000-4000-8000-000000000000", prompt="hay " * number + "needle"
        )
    async with claude_hub(home) as (hub, _):
        matches = (
            await hub.sessions.search(LOCAL, Query(text="needle", limit=5), ranked=True)
        ).matches
        assert [int(one.session.id[:8], 16) for one in matches] == [0, 1, 2, 3, 4]
        assert [one.score for one in matches] == sorted(
            (one.score for one in matches), reverse=True
        )


async def test_ranked_search_compares_the_newest_sessions_of_a_common_word(
    home: Home, monkeypatch: pytest.MonkeyPatch, texts_read: list[int]
) -> None:
    for number in range(300):
        at = f"2026-01-01T{number // 60:02}:{number % 60:02}:00.000Z"
        text = "common " * (1 + number % 7) + "hay " * 10 + ("rare" if number % 100 == 7 else "")
        lines = [user(f"u{n}", None, text, timestamp=at) for n in range(3)]
        home.write(lines, f"{number:08x}-0000-4000-8000-000000000000")
    monkeypatch.setattr(terms, "MAX_EAGER_HITS", 50)
    monkeypatch.setattr(terms, "HITS_PER_TEXT", 1)  # 900 texts are few
    monkeypatch.setattr(ranking, "MAX_RANKED_SESSIONS", 20)
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        statements: list[str] = []
        source.current_index.index._reader.set_trace_callback(statements.append)
        matches = (
            await hub.sessions.search(LOCAL, Query(text="common", limit=3), ranked=True)
        ).matches
        # The best three of the newest twenty.
        assert [int(one.session.id[:8], 16) for one in matches] == [293, 286, 299]
        assert all(one.event is not None and "common" in one.snippet for one in matches)
        assert len(texts_read) <= 2 * 4 * 20
        assert not any("ORDER BY rank" in sql for sql in statements)
        monkeypatch.setattr(ranking, "MAX_TEXTS_READ", 10)
        matches = (
            await hub.sessions.search(LOCAL, Query(text="common", limit=3), ranked=True)
        ).matches
        assert all(int(one.session.id[:8], 16) >= 296 for one in matches)
        both = (
            await hub.sessions.search(LOCAL, Query(text="rare common", limit=9), ranked=True)
        ).matches
        assert {int(one.session.id[:8], 16) for one in both} == {7, 107, 207}


@pytest.mark.parametrize("text", ["bird birds, a bird", "Bird the BIRD the", "Vögel, bird bird"])
def test_count_occurrences_counts_every_match(text: str) -> None:
    for query in ("bird", "bir", "bird the", '"bird the"', '"bird bird"', "vögel", "none"):
        for term in search_text.terms(query):
            tokens, size = search_text.tokens(text), len(term.tokens)
            right = sum(
                search_text.words_have_term(term, tokens[at : at + size])
                for at in range(len(tokens))
            )
            assert search_text.count_occurrences(term, text) == right
            assert search_text.text_has_term(term, text) == (right > 0)


async def test_search_ignores_terminal_codes(home: Home) -> None:
    shown = "2 \x1b[1;31mfailed\x1b[0m, \x1b[32m7 passed\x1b[0m"
    output = [{"type": "tool_result", "tool_use_id": "t", "content": shown}]
    home.write([user("u1", None, "go"), user("u2", "u1", output)])
    async with claude_hub(home) as (hub, _):
        for words, marked in (("failed", "failed"), ('"2 failed"', "2"), ("7 pass", "7")):
            (hit,) = (await hub.sessions.search(LOCAL, Query(text=words))).matches
            assert hit.snippet == "2 failed, 7 passed"
            assert hit.snippet[hit.marks[0].start : hit.marks[0].stop] == marked
        assert (await hub.sessions.search(LOCAL, Query(text="31mfailed"))).matches == []
