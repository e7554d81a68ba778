"""Contract: a search matches what `segue.model.search_text` defines."""

from __future__ import annotations

from msgspec.structs import replace

from segue.model import ids
from segue.model.content import Diff, ResourceLink, Text
from segue.model.event import (
    AgentThought,
    AnyBody,
    Compacted,
    ConfigChanged,
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
from segue.testing.helpers import ids_of, message_texts

from .harness import (
    OTHER_WORKSPACE,
    WORKSPACE,
    Contract,
    agent_message,
    append_events,
    create_session,
    draft,
    list_ids,
    read_history,
    search_ids,
    tag_change,
    title_change,
    user_message,
)


class TextContract(Contract):
    async def test_whole_word_matches_in_any_case(self, store: Store) -> None:
        session = await create_session(store, user_message("The Quick brown foxes, jumping"))
        for text in ("quick", "QUICK", "Quick.", "foxes"):
            assert await search_ids(store, text) == {session.id}
        assert await search_ids(store, '"fox"') == set()
        assert await search_ids(store, "slow") == set()

    async def test_last_word_may_be_incomplete(self, store: Store) -> None:
        session = await create_session(store, user_message("refactoring the parser"))
        assert await search_ids(store, "refac") == {session.id}
        assert await search_ids(store, "the refac") == {session.id}
        assert await search_ids(store, "refac the") == set()
        assert await search_ids(store, "refac ") == set()
        assert await search_ids(store, '"refac"') == set()
        assert await search_ids(store, "r") == set()

    async def test_phrase_matches_consecutive_words_of_one_event(self, store: Store) -> None:
        session = await create_session(store, user_message("one two three"), user_message("four"))
        assert await search_ids(store, '"two three"') == {session.id}
        assert await search_ids(store, '"three two"') == set()
        assert await search_ids(store, '"one three"') == set()
        assert await search_ids(store, '"three four"') == set()

    async def test_parts_of_a_file_name_match_in_their_order(self, store: Store) -> None:
        session = await create_session(store, user_message("see src/segue/model.py"))
        assert await search_ids(store, "segue/model") == {session.id}
        assert await search_ids(store, "segue.mod") == {session.id}
        assert await search_ids(store, "model/segue") == set()

    async def test_words_may_be_in_different_events_of_a_session(self, store: Store) -> None:
        session = await create_session(store, user_message("alpha"), agent_message("beta"))
        await create_session(store, user_message("alpha"))
        await create_session(store, user_message("beta"))
        assert await search_ids(store, "alpha beta") == {session.id}
        assert await search_ids(store, "beta alpha") == {session.id}

    async def test_text_without_spaces_matches_by_any_part(self, store: Store) -> None:
        session = await create_session(
            store, user_message("東京都に住んでいます"), user_message("한국어 문장")
        )
        for text in ("東京", "京都", "住んで", "국어", "東京 한국"):
            assert await search_ids(store, text) == {session.id}
        assert await search_ids(store, "京東") == set()

    async def test_forms_of_a_letter_are_equal(self, store: Store) -> None:
        session = await create_session(
            store, user_message("Cafe\u0301 STRASSE ＷＩＤＥ ﬁne ΣΊΣΥΦΟΣ")
        )
        for text in ("café", "CAFÉ", "straße", "wide", "fine", "σίσυφος"):
            assert await search_ids(store, text) == {session.id}
        assert await search_ids(store, "cafes") == set()

    async def test_words_end_at_characters_other_than_letters_and_digits(
        self, store: Store
    ) -> None:
        session = await create_session(
            store, user_message("one\0two_three\x7ffour\ud83dfive\u2028six\xadseven")
        )
        for text in ("one", "two", "three", "four", "five", "six", "seven", "one\0two"):
            assert await search_ids(store, f'"{text}"') == {session.id}

    async def test_terminal_control_codes_are_not_searchable(self, store: Store) -> None:
        colored_text = (
            "2 \x1b[1;31mfail\x1b[Ked\x1b[0m, \x1b]8;;https://e.org\x07here\x1b]8;;\x07 é"
        )
        session = await create_session(
            store,
            user_message("alpha"),
            user_message(colored_text),
            user_message(colored_text[:-2]),
        )
        _, _, first, second = (event.seq for event in await store.events(WORKSPACE, session.id))
        for text in ("failed", "fail", '"2 failed here"', "here"):
            assert await search_ids(store, text) == {session.id}
            assert await store.occurrences(WORKSPACE, session.id, terms(text), None, 9) == [
                second,
                first,
            ]
        for text in ("1", "31mfail", "ked", "https", "0m"):
            assert await search_ids(store, text) == set()
        await store.purge(WORKSPACE, session.id, lambda _: None)
        assert await search_ids(store, "failed") == set()

    async def test_punctuation_alone_matches_nothing(self, store: Store) -> None:
        await create_session(store, user_message("what?! -- * \" ' ( ) AND OR NOT NEAR"))
        for text in ("", " ", "?!", '"', '""', "*", "-", "'", "()"):
            assert await list_ids(store, text=text) == []
            assert await store.ranked(WORKSPACE, Query(text=text)) == []
            assert (
                await store.sweep(
                    WORKSPACE, Query(text=text), await store.change_point(WORKSPACE), ""
                )
                == []
            )

    async def test_operators_of_query_languages_are_ordinary_words(self, store: Store) -> None:
        session = await create_session(
            store, user_message("either OR neither AND not NEAR it; tokens:x")
        )
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
            assert await search_ids(store, text) == {session.id}

    async def test_session_matches_every_title_it_had(self, store: Store) -> None:
        session = await create_session(store, title_change("apple pie"))
        await append_events(store, session, title_change("cherry cake"), tag_change("dessert"))
        for text in ("apple", "cherry", "dessert"):
            assert await search_ids(store, text) == {session.id}

    async def test_session_matches_by_project_tag_branch_and_source(self, store: Store) -> None:
        session = await create_session(
            store,
            user_message("retry the request"),
            tag_change("urgent"),
            ConfigChanged(git_branch="fix/timeouts"),
            cwd="/home/person/payments-api",
        )
        await create_session(store, user_message("retry"), cwd="/home/person/website")
        for text in ("payments", "payments-api", "timeouts retry", "urgent", "payments retry"):
            assert await search_ids(store, text) == {session.id}
            (hit,) = await store.ranked(WORKSPACE, Query(text=text))
            assert hit.session.id == session.id
        assert await search_ids(store, "person") == set()  # the home directory
        assert len(await search_ids(store, "segue")) == 2
        (event,) = await store.newest_matches(WORKSPACE, [session], terms("payments"))
        assert event is None
        assert await store.occurrences(WORKSPACE, session.id, terms("payments"), None, 9) == []

    async def test_search_uses_the_current_branch_and_directory(self, store: Store) -> None:
        session = await create_session(store, ConfigChanged(git_branch="old"), cwd="/projects/one")
        await append_events(store, session, ConfigChanged(git_branch="new"))
        assert await search_ids(store, "new") == {session.id}
        assert await search_ids(store, '"old"') == set()
        await store.purge(WORKSPACE, session.id, lambda _: None)
        assert await search_ids(store, "projects") == set()

    async def test_known_words_are_those_of_the_workspace(self, store: Store) -> None:
        await create_session(store, user_message("alpha"), cwd="/projects/website")
        await create_session(store, user_message("beta"), workspace=OTHER_WORKSPACE)
        words = ["alpha", "beta", "gamma", "website", "alph"]
        assert await store.known_words(WORKSPACE, words) == {"alpha", "website"}
        assert await store.known_words(OTHER_WORKSPACE, words) == {"beta"}
        assert await store.known_words(WORKSPACE, []) == set()

    async def test_all_text_of_a_session_is_searchable(self, store: Store) -> None:
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
        session = await create_session(store, *bodies)
        words = (
            "thought system callname calltitle result plan summary failure taglabel changed linked"
        )
        for text in words.split():
            assert await search_ids(store, text) == {session.id}
        assert await search_ids(store, "hidden") == set()

    async def test_search_applies_the_filters(self, store: Store) -> None:
        one = await create_session(store, user_message("word"), tag_change("t"), cwd="/a")
        two = await create_session(
            store, user_message("word"), InfoChanged(archived=True), cwd="/b"
        )
        await create_session(store, user_message("other"), tag_change("t"), cwd="/a")
        assert await search_ids(store, "word") == {one.id}
        assert await search_ids(store, "word", archived="include") == {one.id, two.id}
        assert await search_ids(store, "word", archived="include", directories=("/b",)) == {two.id}
        assert await search_ids(store, "word", tag="t") == {one.id}

    async def test_search_is_paged_like_a_list(self, store: Store) -> None:
        contents = ("common", "common rare", "common rare")
        rows = [
            await create_session(store, draft(user_message(contents[i % 3]), i)) for i in range(12)
        ]
        rare = [row for i, row in enumerate(rows) if i % 3]
        for text, expected in (("common", rows), ("rare common", rare)):
            query = Query(text=text, limit=5)
            first = await store.page(WORKSPACE, query)
            second = await store.page(WORKSPACE, query, position(first[-1], "active"))
            assert first + second == expected[::-1][:10]
            assert (
                await store.page(WORKSPACE, query, position(second[0], "active"), backward=True)
                == first
            )
            assert await store.page(WORKSPACE, replace(query, descending=False)) == expected[:5]

    async def test_long_words_and_long_texts_are_searchable(self, store: Store) -> None:
        long = "x" * 300
        session = await create_session(
            store, user_message(f"{long} " + "filler " * 20_000 + " last")
        )
        assert await search_ids(store, long) == {session.id}
        assert await search_ids(store, "last") == {session.id}

    async def test_search_can_have_very_many_words(self, store: Store) -> None:
        words = [f"word{i}" for i in range(300)]
        session = await create_session(store, user_message(" ".join(words)))
        text = " ".join(words)
        assert await search_ids(store, text) == {session.id}
        assert [hit.session.id for hit in await store.ranked(WORKSPACE, Query(text=text))] == [
            session.id
        ]
        assert await search_ids(store, text + " absent") == set()

    # ranked

    async def test_ranked_search_returns_the_best_session_first(self, store: Store) -> None:
        passing = await create_session(
            store, user_message("zebra " + "among many other words " * 40), seconds=9
        )
        about = await create_session(store, user_message("zebra zebra zebra"), seconds=1)
        hits = await store.ranked(WORKSPACE, Query(text="zebra"))
        assert [hit.session for hit in hits] == [about, passing]
        assert hits[0].score > hits[1].score

    async def test_a_ranked_hit_shows_an_event_with_a_term_in_it(self, store: Store) -> None:
        session = await create_session(
            store, user_message("alpha"), user_message("nothing"), user_message("beta")
        )
        (hit,) = await store.ranked(WORKSPACE, Query(text="alpha beta"))
        assert hit.session == session
        assert hit.event in await read_history(store, session)
        assert hit.event is not None
        words = tokens(searchable_text(hit.event.body))
        assert any(words_have_term(term, words) for term in terms("alpha beta"))

    async def test_ranked_search_matches_the_same_sessions_as_the_list(self, store: Store) -> None:
        one = await create_session(
            store, user_message("alpha"), agent_message("beta"), tag_change("t")
        )
        await create_session(store, user_message("alpha alpha alpha"), tag_change("t"))
        await create_session(
            store, user_message("alpha beta"), InfoChanged(archived=True), tag_change("t")
        )
        await create_session(store, user_message("alpha beta"))
        await create_session(
            store, user_message("alpha beta"), tag_change("t"), workspace=OTHER_WORKSPACE
        )
        hits = await store.ranked(WORKSPACE, Query(text="alpha beta", tag="t"))
        assert [hit.session for hit in hits] == [one]
        assert await store.ranked(WORKSPACE, Query()) == []

    async def test_ranked_search_returns_at_most_the_limit(self, store: Store) -> None:
        for i in range(4):
            await create_session(store, user_message("word " * (i + 1)))
        assert len(await store.ranked(WORKSPACE, Query(text="word", limit=3))) == 3

    async def test_matches_in_another_workspace_do_not_hide_a_ranked_session(
        self, store: Store
    ) -> None:
        await create_session(
            store, *(user_message("zebra") for _ in range(2_500)), workspace=OTHER_WORKSPACE
        )
        session = await create_session(
            store, user_message("zebra " + "among many other words " * 40)
        )
        assert [hit.session for hit in await store.ranked(WORKSPACE, Query(text="zebra"))] == [
            session
        ]

    # newest matches

    async def test_newest_match_is_the_newest_event_with_any_of_the_terms(
        self, store: Store
    ) -> None:
        one = await create_session(
            store, user_message("alpha 1"), user_message("beta 2"), user_message("gamma 3")
        )
        two = await create_session(store, user_message("alpha 4"))
        three = await create_session(store, user_message("delta 5"))
        rows = [two, three, one, two]
        events = await store.newest_matches(WORKSPACE, rows, terms("alpha beta"))
        texts = [message_texts([event]) if event else None for event in events]
        assert texts == [["alpha 4"], None, ["beta 2"], ["alpha 4"]]

    async def test_newest_match_understands_phrases_and_prefixes(self, store: Store) -> None:
        session = await create_session(
            store, user_message("red green"), user_message("green red"), user_message("reddish")
        )
        for text, expected in (
            ('"red green"', "red green"),
            ("redd", "reddish"),
            ("red ", "green red"),
        ):
            (event,) = await store.newest_matches(WORKSPACE, [session], terms(text))
            assert event is not None
            assert message_texts([event]) == [expected]

    async def test_no_session_or_no_term_has_no_newest_match(self, store: Store) -> None:
        session = await create_session(store, user_message("word"))
        assert await store.newest_matches(WORKSPACE, [], terms("word")) == []
        assert await store.newest_matches(WORKSPACE, [session], []) == [None]

    async def test_session_that_was_purged_has_no_newest_match(self, store: Store) -> None:
        purged = await create_session(store, user_message("word"))
        session = await create_session(store, user_message("word"))
        await store.purge(WORKSPACE, purged.id, lambda _: None)
        first, second = await store.newest_matches(WORKSPACE, [purged, session], terms("word"))
        assert first is None
        assert second is not None

    # within a session

    async def test_occurrences_in_a_session_are_returned_newest_first(self, store: Store) -> None:
        session = await create_session(
            store,
            user_message("red one"),
            user_message("red two"),
            user_message("two reds"),
            user_message("alphabet red two"),
        )
        other = await create_session(store, user_message("red two"))
        _, one, two, reds, last = (event.seq for event in await store.events(WORKSPACE, session.id))

        async def search_ids(text: str, before: int | None = None, limit: int = 9) -> list[int]:
            return await store.occurrences(WORKSPACE, session.id, terms(text), before, limit)

        assert await search_ids("red ") == [last, two, one]
        assert await search_ids("two red") == [last, reds, two]  # in one event, in any order
        assert await search_ids('"red two"') == [last, two]
        assert await search_ids("alphab") == [last]
        assert await search_ids("red", limit=2) == [last, reds]
        assert await search_ids("red", before=reds) == [two, one]
        assert await search_ids("absent") == await search_ids("red absent") == []
        assert await store.occurrences(WORKSPACE, session.id, [], None, 9) == []
        await store.purge(WORKSPACE, other.id, lambda _: None)
        assert await store.occurrences(WORKSPACE, other.id, terms("red"), None, 9) == []

    async def test_sweep_for_an_unknown_word_returns_nothing(self, store: Store) -> None:
        session = await create_session(store, user_message("word"))
        point = await store.change_point(WORKSPACE)
        await append_events(store, session, user_message("another"))
        for text, expected in (("word another", [session.id]), ("absent", [])):
            assert ids_of(await store.sweep(WORKSPACE, Query(text=text), point, "")) == expected
        assert await store.sweep(WORKSPACE, Query(text="word"), point, ids.new_id()) == []
