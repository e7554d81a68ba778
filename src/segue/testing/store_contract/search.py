"""Search: what a text finds is said by `segue.model.search_text`; every store agrees with it."""

from __future__ import annotations

from msgspec.structs import replace

from segue.model import ids
from segue.model.content import Diff, ResourceLink, Text
from segue.model.event import (
    AgentThought,
    AnyBody,
    Compacted,
    Failed,
    InfoChanged,
    PlanChanged,
    PlanEntry,
    SystemMessage,
    ToolCall,
    ToolResult,
)
from segue.model.query import Query, position
from segue.model.search_text import searchable_text, terms, tokens, words_have_term
from segue.store.base import Store

from .harness import (
    HERE,
    THERE,
    Contract,
    add,
    agent,
    draft,
    found,
    history,
    ids_of,
    listed,
    make,
    tagged,
    texts,
    titled,
    user,
)


class TextContract(Contract):
    async def test_a_word_is_found_whole_and_in_any_case(self, store: Store) -> None:
        made = await make(store, user("The Quick brown foxes, jumping"))
        for text in ("quick", "QUICK", "Quick.", "foxes"):
            assert await found(store, text) == {made.id}
        assert await found(store, '"fox"') == set()
        assert await found(store, "slow") == set()

    async def test_the_last_word_may_be_only_begun(self, store: Store) -> None:
        made = await make(store, user("refactoring the parser"))
        assert await found(store, "refac") == {made.id}
        assert await found(store, "the refac") == {made.id}
        assert await found(store, "refac the") == set()
        assert await found(store, "refac ") == set()
        assert await found(store, '"refac"') == set()
        assert await found(store, "r") == set()

    async def test_a_phrase_is_found_in_one_row(self, store: Store) -> None:
        made = await make(store, user("one two three"), user("four"))
        assert await found(store, '"two three"') == {made.id}
        assert await found(store, '"three two"') == set()
        assert await found(store, '"one three"') == set()
        assert await found(store, '"three four"') == set()

    async def test_parts_of_a_name_stand_in_a_row(self, store: Store) -> None:
        made = await make(store, user("see src/segue/model.py"))
        assert await found(store, "segue/model") == {made.id}
        assert await found(store, "segue.mod") == {made.id}
        assert await found(store, "model/segue") == set()

    async def test_words_may_be_in_different_events_of_a_session(self, store: Store) -> None:
        both = await make(store, user("alpha"), agent("beta"))
        await make(store, user("alpha"))
        await make(store, user("beta"))
        assert await found(store, "alpha beta") == {both.id}
        assert await found(store, "beta alpha") == {both.id}

    async def test_scripts_without_spaces_are_found_by_any_part(self, store: Store) -> None:
        made = await make(store, user("東京都に住んでいます"), user("한국어 문장"))
        for text in ("東京", "京都", "住んで", "국어", "東京 한국"):
            assert await found(store, text) == {made.id}
        assert await found(store, "京東") == set()

    async def test_forms_of_a_letter_are_one(self, store: Store) -> None:
        made = await make(store, user("Cafe\u0301 STRASSE ＷＩＤＥ ﬁne ΣΊΣΥΦΟΣ"))
        for text in ("café", "CAFÉ", "straße", "wide", "fine", "σίσυφος"):
            assert await found(store, text) == {made.id}
        assert await found(store, "cafes") == set()

    async def test_words_end_at_whatever_is_no_letter_or_digit(self, store: Store) -> None:
        made = await make(store, user("one\0two_three\x7ffour\ud83dfive\u2028six\xadseven"))
        for text in ("one", "two", "three", "four", "five", "six", "seven", "one\0two"):
            assert await found(store, f'"{text}"') == {made.id}

    async def test_codes_that_drive_terminals_are_no_words(self, store: Store) -> None:
        shown = "2 \x1b[1;31mfail\x1b[Ked\x1b[0m, \x1b]8;;https://e.org\x07here\x1b]8;;\x07 é"
        made = await make(store, user("alpha"), user(shown), user(shown[:-2]))
        _, _, first, second = (event.seq for event in await store.events(HERE, made.id))
        for text in ("failed", "fail", '"2 failed here"', "here"):
            assert await found(store, text) == {made.id}
            assert await store.occurrences(HERE, made.id, terms(text), None, 9) == [second, first]
        for text in ("1", "31mfail", "ked", "https", "0m"):
            assert await found(store, text) == set()
        await store.purge(HERE, made.id, lambda _: None)
        assert await found(store, "failed") == set()

    async def test_nothing_is_found_by_punctuation_alone(self, store: Store) -> None:
        await make(store, user("what?! -- * \" ' ( ) AND OR NOT NEAR"))
        for text in ("", " ", "?!", '"', '""', "*", "-", "'", "()"):
            assert await listed(store, text=text) == []
            assert await store.ranked(HERE, Query(text=text)) == []
            assert (
                await store.sweep(HERE, Query(text=text), await store.change_point(HERE), "") == []
            )

    async def test_words_of_a_query_language_are_words(self, store: Store) -> None:
        made = await make(store, user("either OR neither AND not NEAR it; tokens:x"))
        for text in (
            "or",
            "AND",
            "not near",
            "NEAR(it",
            "tokens:x",
            "it*",
            "(or",
            "^either",
            "-it",
        ):
            assert await found(store, text) == {made.id}

    async def test_a_session_is_found_by_every_title_it_had(self, store: Store) -> None:
        made = await make(store, titled("apple pie"))
        await add(store, made, titled("cherry cake"), tagged("dessert"))
        for text in ("apple", "cherry", "dessert"):
            assert await found(store, text) == {made.id}

    async def test_everything_that_is_said_can_be_found(self, store: Store) -> None:
        bodies: list[AnyBody] = [
            AgentThought(content=(Text(text="thought"),)),
            SystemMessage(content=(Text(text="system"),)),
            ToolCall(call_id="c", name="callname", title="calltitle", input={"cmd": "hidden"}),
            ToolResult(call_id="c", content=(Text(text="result"),)),
            PlanChanged(entries=(PlanEntry(content="plan"),)),
            Compacted(summary=(Text(text="summary"),)),
            Failed(message="failure"),
            InfoChanged(tag="taglabel"),
            ToolResult(call_id="d", content=(Diff(path="/changed.py", new="x"),)),
            ToolResult(call_id="e", content=(ResourceLink(uri="file:///linked", name="n"),)),
        ]
        made = await make(store, *bodies)
        words = (
            "thought system callname calltitle result plan summary failure taglabel changed linked"
        )
        for text in words.split():
            assert await found(store, text) == {made.id}
        assert await found(store, "hidden") == set()

    async def test_a_search_can_be_filtered(self, store: Store) -> None:
        one = await make(store, user("word"), tagged("t"), cwd="/a")
        two = await make(store, user("word"), InfoChanged(archived=True), cwd="/b")
        await make(store, user("other"), tagged("t"), cwd="/a")
        assert await found(store, "word") == {one.id}
        assert await found(store, "word", archived="include") == {one.id, two.id}
        assert await found(store, "word", archived="include", directories=("/b",)) == {two.id}
        assert await found(store, "word", tag="t") == {one.id}

    async def test_a_search_is_paged_like_any_list(self, store: Store) -> None:
        says = ("common", "common rare", "common rare")
        rows = [await make(store, draft(user(says[i % 3]), i)) for i in range(12)]
        rare = [row for i, row in enumerate(rows) if i % 3]
        for text, wanted in (("common", rows), ("rare common", rare)):
            query = Query(text=text, limit=5)
            first = await store.page(HERE, query)
            second = await store.page(HERE, query, position(first[-1], "active"))
            assert first + second == wanted[::-1][:10]
            assert (
                await store.page(HERE, query, position(second[0], "active"), backward=True) == first
            )
            assert await store.page(HERE, replace(query, descending=False)) == wanted[:5]

    async def test_long_words_and_long_texts_are_found(self, store: Store) -> None:
        long = "x" * 300
        made = await make(store, user(f"{long} " + "filler " * 20_000 + " last"))
        assert await found(store, long) == {made.id}
        assert await found(store, "last") == {made.id}

    async def test_a_search_may_have_very_many_words(self, store: Store) -> None:
        words = [f"word{i}" for i in range(300)]
        made = await make(store, user(" ".join(words)))
        asked = " ".join(words)
        assert await found(store, asked) == {made.id}
        assert [hit.session.id for hit in await store.ranked(HERE, Query(text=asked))] == [made.id]
        assert await found(store, asked + " absent") == set()

    # ranked

    async def test_ranked_sessions_come_best_first(self, store: Store) -> None:
        passing = await make(store, user("zebra " + "among many other words " * 40), seconds=9)
        about = await make(store, user("zebra zebra zebra"), seconds=1)
        hits = await store.ranked(HERE, Query(text="zebra"))
        assert [hit.session for hit in hits] == [about, passing]
        assert hits[0].score > hits[1].score

    async def test_a_ranked_hit_shows_an_event_with_a_term_in_it(self, store: Store) -> None:
        made = await make(store, user("alpha"), user("nothing"), user("beta"))
        (hit,) = await store.ranked(HERE, Query(text="alpha beta"))
        assert hit.session == made
        assert hit.event in await history(store, made)
        assert hit.event is not None
        words = tokens(searchable_text(hit.event.body))
        assert any(words_have_term(term, words) for term in terms("alpha beta"))

    async def test_ranking_finds_what_the_list_finds(self, store: Store) -> None:
        one = await make(store, user("alpha"), agent("beta"), tagged("t"))
        await make(store, user("alpha alpha alpha"), tagged("t"))
        await make(store, user("alpha beta"), InfoChanged(archived=True), tagged("t"))
        await make(store, user("alpha beta"))
        await make(store, user("alpha beta"), tagged("t"), workspace=THERE)
        hits = await store.ranked(HERE, Query(text="alpha beta", tag="t"))
        assert [hit.session for hit in hits] == [one]
        assert await store.ranked(HERE, Query()) == []

    async def test_ranking_is_cut_at_the_limit(self, store: Store) -> None:
        for i in range(4):
            await make(store, user("word " * (i + 1)))
        assert len(await store.ranked(HERE, Query(text="word", limit=3))) == 3

    async def test_a_crowd_elsewhere_does_not_hide_a_ranked_session(self, store: Store) -> None:
        await make(store, *(user("zebra") for _ in range(2_500)), workspace=THERE)
        made = await make(store, user("zebra " + "among many other words " * 40))
        assert [hit.session for hit in await store.ranked(HERE, Query(text="zebra"))] == [made]

    # witnesses

    async def test_a_witness_is_the_newest_event_with_any_of_the_terms(self, store: Store) -> None:
        one = await make(store, user("alpha 1"), user("beta 2"), user("gamma 3"))
        two = await make(store, user("alpha 4"))
        three = await make(store, user("delta 5"))
        rows = [two, three, one, two]
        events = await store.newest_matches(HERE, rows, terms("alpha beta"))
        shown = [texts([event]) if event else None for event in events]
        assert shown == [["alpha 4"], None, ["beta 2"], ["alpha 4"]]

    async def test_a_witness_knows_phrases_and_beginnings(self, store: Store) -> None:
        made = await make(store, user("red green"), user("green red"), user("reddish"))
        for text, shown in (
            ('"red green"', "red green"),
            ("redd", "reddish"),
            ("red ", "green red"),
        ):
            (event,) = await store.newest_matches(HERE, [made], terms(text))
            assert event is not None
            assert texts([event]) == [shown]

    async def test_there_is_no_witness_for_nothing(self, store: Store) -> None:
        made = await make(store, user("word"))
        assert await store.newest_matches(HERE, [], terms("word")) == []
        assert await store.newest_matches(HERE, [made], []) == [None]

    async def test_a_session_that_went_meanwhile_has_no_witness(self, store: Store) -> None:
        gone = await make(store, user("word"))
        made = await make(store, user("word"))
        await store.purge(HERE, gone.id, lambda _: None)
        first, second = await store.newest_matches(HERE, [gone, made], terms("word"))
        assert first is None
        assert second is not None

    # within a session

    async def test_words_are_found_within_a_session_newest_first(self, store: Store) -> None:
        made = await make(
            store, user("red one"), user("red two"), user("two reds"), user("alphabet red two")
        )
        other = await make(store, user("red two"))
        _, one, two, reds, last = (event.seq for event in await store.events(HERE, made.id))

        async def found(text: str, before: int | None = None, limit: int = 9) -> list[int]:
            return await store.occurrences(HERE, made.id, terms(text), before, limit)

        assert await found("red ") == [last, two, one]
        assert await found("two red") == [last, reds, two]  # in one event, in any order
        assert await found('"red two"') == [last, two]
        assert await found("alphab") == [last]
        assert await found("red", limit=2) == [last, reds]
        assert await found("red", before=reds) == [two, one]
        assert await found("absent") == await found("red absent") == []
        assert await store.occurrences(HERE, made.id, [], None, 9) == []
        await store.purge(HERE, other.id, lambda _: None)
        assert await store.occurrences(HERE, other.id, terms("red"), None, 9) == []

    async def test_an_unknown_word_sweeps_nothing(self, store: Store) -> None:
        made = await make(store, user("word"))
        mark = await store.change_point(HERE)
        await add(store, made, user("another"))
        for text, wanted in (("word another", [made.id]), ("absent", [])):
            assert ids_of(await store.sweep(HERE, Query(text=text), mark, "")) == wanted
        assert await store.sweep(HERE, Query(text="word"), mark, ids.new_id()) == []
