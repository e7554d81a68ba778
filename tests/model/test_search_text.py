"""Split text into search tokens, match terms and cut snippets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.model.content import Diff, Image, Resource, ResourceLink, Text, as_content
from segue.model.event import AgentMessage, Created, InfoChanged, ToolCall, ToolResult, UserMessage
from segue.model.search_text import (
    MAX_TOKEN_CHARS,
    MAX_TOOL_RESULT_CHARS,
    Term,
    query_of,
    searchable_text,
    snippet,
    terms,
    text_has_term,
    tokens,
    words_have_term,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World!", ["hello", "world"]),
        ("src/segue/model.py", ["src", "segue", "model", "py"]),
        ("snake_case camelCase 3.14", ["snake", "case", "camelcase", "3", "14"]),
        ("don't", ["don", "t"]),
        ("東京タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("한국어 text", ["한", "국", "어", "text"]),
        ("mixed東京mixed", ["mixed", "東", "京", "mixed"]),
        ("Cafe\u0301 CAFÉ", ["café", "café"]),
        ("ﬁne ＷＩＤＥ Straße x²", ["fine", "wide", "strasse", "x2"]),
        ("ΣΊΣΥΦΟΣ Σίσυφος", ["σίσυφοσ", "σίσυφοσ"]),
        ("Привет МИР", ["привет", "мир"]),
        ("a\0b \ud83d c", ["a", "b", "c"]),
        ("!? -- _ ", []),
        ("", []),
    ],
)
def test_text_is_case_folded_and_split_into_tokens(text: str, words: list[str]) -> None:
    assert tokens(text) == words


@given(st.text(st.characters(codec=None)))
def test_tokens_are_short_and_contain_no_special_characters(text: str) -> None:
    for word in tokens(text):
        assert 0 < len(word) <= MAX_TOKEN_CHARS
        word.encode()  # no surrogates
        assert not set(word) & set(" \"'*:^()-\0")


@given(st.text())
def test_case_folding_is_idempotent(text: str) -> None:
    assert tokens(text.upper()) == tokens(text.upper().casefold())


@given(st.text("ab é_-東", max_size=30))
def test_ascii_words_split_alike_with_and_without_other_letters(text: str) -> None:
    assert tokens(text) == [word for word in tokens(text + " é") if word][: len(tokens(text))]


def test_ascii_fast_path_gives_the_same_tokens() -> None:
    text = "".join(map(chr, range(128)))
    assert tokens(text) == tokens(text + " é")[:-1]


@pytest.mark.parametrize(
    ("query", "expected_terms"),
    [
        ("one two", [Term(("one",)), Term(("two",), prefix=True)]),
        ("one two ", [Term(("one",)), Term(("two",))]),
        ('"one two"', [Term(("one", "two"))]),
        ('"one two', [Term(("one", "two"))]),
        ('"one two" three', [Term(("one", "two")), Term(("three",), prefix=True)]),
        ("one.two", [Term(("one", "two"), prefix=True)]),
        ("x", [Term(("x",))]),
        ("東京", [Term(("東", "京"))]),
        ("two!", [Term(("two",), prefix=True)]),
        ('"" !? "', []),
        ("", []),
    ],
)
def test_query_has_words_phrases_and_a_last_prefix(query: str, expected_terms: list[Term]) -> None:
    assert terms(query) == expected_terms


@pytest.mark.parametrize(
    ("query", "occurs"),
    [
        ("two", True),
        ("thr", True),
        ('"thr"', False),
        ('"two three"', True),
        ('"three two"', False),
        ('"one three"', False),
        ("two.thr", True),
        ("three.four", False),
        ("one.two.three.four", False),
    ],
)
def test_term_matches_consecutive_words(query: str, occurs: bool) -> None:
    (term,) = terms(query)
    assert words_have_term(term, tokens("one two three")) is occurs


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), min_size=1))
def test_phrase_matches_a_slice_of_the_words(words: list[str], phrase: list[str]) -> None:
    slices = [words[i : i + len(phrase)] for i in range(len(words))]
    assert words_have_term(Term(tuple(phrase)), words) == (phrase in slices)


WORDS = st.lists(st.sampled_from(["a", "ab", "aba", "b1", "A", "é", "東", "ﬁ", "x" * 63, "x" * 70]))


@given(WORDS, st.sampled_from([" ", "-", "_", ", "]), WORDS, st.booleans(), st.booleans())
def test_text_and_its_words_match_the_same_terms(
    text_words: list[str], separator: str, term_words: list[str], prefix: bool, ascii_only: bool
) -> None:
    text = separator.join(word for word in text_words if word.isascii() or not ascii_only)
    if term_tokens := tuple(tokens(" ".join(term_words[:3]))):
        term = Term(term_tokens, prefix)
        assert text_has_term(term, text) == words_have_term(term, tokens(text))


def test_searchable_text_of_each_kind_of_event() -> None:
    blocks = (
        Text(text="text"),
        Resource(uri="file:///r", text="resource"),
        ResourceLink(uri="file:///linked", name="name"),
        Diff(path="/path", old="before", new="after"),
        Image(data="aW1hZ2U="),
    )
    words = tokens(searchable_text(UserMessage(content=blocks)))
    assert words == ["text", "resource", "name", "file", "linked", "path"]
    assert searchable_text(InfoChanged(title="A", tag="b")) == "A b"
    assert searchable_text(InfoChanged(title=None, archived=True)) == ""
    assert searchable_text(ToolCall(call_id="c", name="run", title="Run it")) == "Run it run"
    assert searchable_text(Created(cwd="/work")) == ""


def test_tool_output_is_searchable_up_to_a_limit() -> None:
    body = ToolResult(call_id="c", content=as_content("x " * MAX_TOOL_RESULT_CHARS))
    assert len(searchable_text(body)) == MAX_TOOL_RESULT_CHARS
    message = AgentMessage(content=as_content("x " * MAX_TOOL_RESULT_CHARS))
    assert len(searchable_text(message)) == 2 * MAX_TOOL_RESULT_CHARS


# Snippets.

vocabulary = st.sampled_from(["alpha", "Alphabet", "beta", "東京", "été", "x", "\n", "\t", "…"])
texts = st.lists(vocabulary, max_size=120).map(" ".join)


@given(texts, st.sampled_from(["alph", "beta", "東", "été alpha", '"alpha beta"', "absent"]))
def test_snippet_marks_the_searched_words(text: str, query: str) -> None:
    query_terms = terms(query)
    shown_text, marks = snippet(text, query_terms, width=60)
    assert len(shown_text) <= 62
    words = {(word, term.prefix) for term in query_terms for word in term.tokens}
    for mark in marks:
        (word,) = tokens(shown_text[mark.start : mark.stop])
        assert any(word == w or (is_prefix and word.startswith(w)) for w, is_prefix in words)
    starts = [mark.start for mark in marks]
    assert starts == sorted(set(starts))


@given(texts, st.sampled_from(["alph", "beta", "東", "été"]))
def test_snippet_contains_a_matching_term(text: str, query: str) -> None:
    (term,) = terms(query)
    shown_text, marks = snippet(text, [term])
    assert bool(marks) == words_have_term(term, tokens(text))
    assert "\n" not in shown_text
    assert "\t" not in shown_text


def test_snippet_has_an_ellipsis_where_it_was_cut() -> None:
    text = "start " * 40 + "needle " + "end " * 60
    shown_text, (mark,) = snippet(text, terms("needle"))
    assert shown_text.startswith("…start ")
    assert shown_text.endswith("…")
    assert shown_text[mark.start : mark.stop] == "needle"
    assert snippet("the needle", terms("needle")) == ("the needle", [range(4, 10)])
    assert snippet("nothing", terms("needle")) == ("nothing", [])


@given(st.text(st.sampled_from('ab "-東')))
def test_query_of_terms_has_these_terms(query: str) -> None:
    before, after = terms(query), terms(query_of(terms(query)))
    assert [term.tokens for term in after] == [term.tokens for term in before]
    assert all(
        a.prefix == b.prefix for a, b in zip(after, before, strict=True) if len(b.tokens) == 1
    )


def test_query_of_words_quotes_only_phrases_and_an_exact_last_word() -> None:
    assert query_of(terms("vat by country")) == "vat by country"
    assert query_of(terms('vat "by country" "now"')) == 'vat "by country" "now"'
