import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.model.content import Diff, Image, Resource, ResourceLink, Text, as_content
from segue.model.event import AgentMessage, Created, InfoChanged, ToolCall, ToolResult, UserMessage
from segue.model.search_text import (
    MAX_TOKEN_CHARS,
    MAX_TOOL_RESULT_CHARS,
    Term,
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
def test_words_are_folded_and_split(text: str, words: list[str]) -> None:
    assert tokens(text) == words


@given(st.text(st.characters(codec=None)))
def test_words_can_be_kept_anywhere(text: str) -> None:
    for word in tokens(text):
        assert 0 < len(word) <= MAX_TOKEN_CHARS
        word.encode()  # no surrogates
        assert not set(word) & set(" \"'*:^()-\0")


@given(st.text())
def test_folding_is_done_once(text: str) -> None:
    assert tokens(text.upper()) == tokens(text.upper().casefold())


@given(st.text("ab é_-東", max_size=30))
def test_plain_letters_are_split_the_same_beside_others(text: str) -> None:
    assert tokens(text) == [word for word in tokens(text + " é") if word][: len(tokens(text))]


def test_the_quick_way_for_ascii_is_the_same_way() -> None:
    text = "".join(map(chr, range(128)))
    assert tokens(text) == tokens(text + " é")[:-1]


@pytest.mark.parametrize(
    ("query", "asked"),
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
def test_a_search_is_words_phrases_and_a_beginning(query: str, asked: list[Term]) -> None:
    assert terms(query) == asked


@pytest.mark.parametrize(
    ("query", "found"),
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
def test_a_term_occurs_where_its_words_stand_in_a_row(query: str, found: bool) -> None:
    (term,) = terms(query)
    assert words_have_term(term, tokens("one two three")) is found


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), min_size=1))
def test_a_phrase_occurs_if_it_is_a_slice(words: list[str], phrase: list[str]) -> None:
    slices = [words[i : i + len(phrase)] for i in range(len(words))]
    assert words_have_term(Term(tuple(phrase)), words) == (phrase in slices)


WORDS = st.lists(st.sampled_from(["a", "ab", "aba", "b1", "A", "é", "東", "ﬁ", "x" * 63, "x" * 70]))


@given(WORDS, st.sampled_from([" ", "-", "_", ", "]), WORDS, st.booleans(), st.booleans())
def test_what_stands_in_a_text_is_what_occurs_in_its_words(
    said: list[str], between: str, asked: list[str], prefix: bool, ascii_only: bool
) -> None:
    text = between.join(word for word in said if word.isascii() or not ascii_only)
    if found := tuple(tokens(" ".join(asked[:3]))):
        term = Term(found, prefix)
        assert text_has_term(term, text) == words_have_term(term, tokens(text))


def test_events_are_searched_by_what_they_say() -> None:
    blocks = (
        Text(text="text"),
        Resource(uri="file:///r", text="resource"),
        ResourceLink(uri="file:///linked", name="name"),
        Diff(path="/path", old="before", new="after"),
        Image(data="aW1hZ2U="),
    )
    found = tokens(searchable_text(UserMessage(content=blocks)))
    assert found == ["text", "resource", "name", "file", "linked", "path"]
    assert searchable_text(InfoChanged(title="A", tag="b")) == "A b"
    assert searchable_text(InfoChanged(title=None, archived=True)) == ""
    assert searchable_text(ToolCall(call_id="c", name="run", title="Run it")) == "Run it run"
    assert searchable_text(Created(cwd="/work")) == ""


def test_the_output_of_a_tool_is_searched_to_a_limit() -> None:
    body = ToolResult(call_id="c", content=as_content("x " * MAX_TOOL_RESULT_CHARS))
    assert len(searchable_text(body)) == MAX_TOOL_RESULT_CHARS
    message = AgentMessage(content=as_content("x " * MAX_TOOL_RESULT_CHARS))
    assert len(searchable_text(message)) == 2 * MAX_TOOL_RESULT_CHARS


# Snippets.

vocabulary = st.sampled_from(["alpha", "Alphabet", "beta", "東京", "été", "x", "\n", "\t", "…"])
texts = st.lists(vocabulary, max_size=120).map(" ".join)


@given(texts, st.sampled_from(["alph", "beta", "東", "été alpha", '"alpha beta"', "absent"]))
def test_marks_point_at_the_words(text: str, query: str) -> None:
    wanted = terms(query)
    piece, marks = snippet(text, wanted, width=60)
    assert len(piece) <= 62
    words = {(word, term.prefix) for term in wanted for word in term.tokens}
    for mark in marks:
        (word,) = tokens(piece[mark.start : mark.stop])
        assert any(word == w or (begun and word.startswith(w)) for w, begun in words)
    starts = [mark.start for mark in marks]
    assert starts == sorted(set(starts))


@given(texts, st.sampled_from(["alph", "beta", "東", "été"]))
def test_a_snippet_shows_a_term_that_occurs(text: str, query: str) -> None:
    (term,) = terms(query)
    piece, marks = snippet(text, [term])
    assert bool(marks) == words_have_term(term, tokens(text))
    assert "\n" not in piece
    assert "\t" not in piece


def test_a_snippet_says_where_it_was_cut() -> None:
    text = "start " * 40 + "needle " + "end " * 60
    piece, (mark,) = snippet(text, terms("needle"))
    assert piece.startswith("…start ")
    assert piece.endswith("…")
    assert piece[mark.start : mark.stop] == "needle"
    assert snippet("the needle", terms("needle")) == ("the needle", [range(4, 10)])
    assert snippet("nothing", terms("needle")) == ("nothing", [])
