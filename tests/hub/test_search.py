"""The hub's search: corrections of misspelt words, ranking, and titles, projects and branches."""

import pytest
from msgspec.structs import replace

from segue.hub import Hub
from segue.hub.sessions.spelling import similar_words
from segue.hub.sync.memory_source import MemorySource
from segue.model import clock, ids
from segue.model.content import as_content
from segue.model.event import Created, Draft, UserMessage
from segue.model.principal import LOCAL, Principal
from segue.model.query import Query

from .conftest import MakeHub

OTHER = Principal(workspace="other", local=False)


async def add(hub: Hub, text: str, *, cwd: str = "/p", days_ago: int = 0) -> str:
    id = ids.new_id()
    at = clock.now() - days_ago * clock.DAY
    message = UserMessage(content=as_content(text))
    await hub.store.create(
        LOCAL.workspace, id, [Draft(body=Created(cwd=cwd), at=at), Draft(body=message, at=at)]
    )
    return id


async def search(hub: Hub, text: str, *, ranked: bool = False) -> tuple[list[str], str | None]:
    page = await hub.sessions.search(LOCAL, Query(text=text), ranked=ranked)
    return [match.session.id for match in page.matches], page.corrected


@pytest.mark.parametrize(
    "misspelt", ["conection", "connectino", "connnection", "connexion", "Conection", "conectio"]
)
async def test_misspelt_word_matches_what_was_meant(make_hub: MakeHub, misspelt: str) -> None:
    async with make_hub() as hub:
        id = await add(hub, "the connection was refused")
        await add(hub, "an unrelated text")
        matches, corrected = await search(hub, f"refused {misspelt}")
        expected = [] if misspelt in ("connexion", "conectio") else [id]
        assert matches == expected  # those two need two corrections
        assert corrected == ("refused connection" if expected else None)


async def test_word_that_matches_is_not_corrected(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = await add(hub, "form")
        await add(hub, "from")
        assert await search(hub, "form") == ([id], None)
        assert await search(hub, "form from") == ([], None)


async def test_pages_of_a_corrected_search_continue(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        added = [await add(hub, "the connection") for _ in range(3)]
        query = Query(text="conection", limit=2)
        first = await hub.sessions.search(LOCAL, query)
        assert first.corrected == "connection"
        second = await hub.sessions.search(LOCAL, replace(query, text=first.corrected), first.next)
        assert {match.session.id for match in [*first.matches, *second.matches]} == set(added)


async def test_words_of_other_workspaces_correct_nothing(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        await add(hub, "the connection was refused")
        page = await hub.sessions.search(OTHER, Query(text="conection"))
        assert (page.matches, page.corrected) == ([], None)


async def test_words_of_a_source_correct_a_search(make_hub: MakeHub) -> None:
    source = MemorySource()
    async with make_hub(sources=[source]) as hub:
        id = ids.new_id()
        message = UserMessage(content=as_content("exponential backoff"))
        await source.create(id, [Created(cwd="/home/person/payments"), message])
        assert await search(hub, "exponentail payments") == ([id], "exponential payments")


async def test_recent_session_ranks_before_an_old_one_that_matches_as_well(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        recent = await add(hub, "retry with backoff", days_ago=2)
        old = await add(hub, "retry with backoff", days_ago=400)
        assert (await search(hub, "backoff", ranked=True))[0] == [recent, old]


async def test_title_and_project_match_together_with_text(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = await add(hub, "retry with backoff", cwd="/home/person/payments-api")
        await add(hub, "retry with backoff", cwd="/home/person/website")
        await hub.editor.set_title(LOCAL, id, "Fix the flaky upload")
        for text in ("payments retry", "flaky payments", "upload backoff"):
            assert (await search(hub, text))[0] == [id]
            assert (await search(hub, text, ranked=True))[0] == [id]


def test_similar_words_differ_by_one_typing_error() -> None:
    words = similar_words("retry")
    assert {"rerty", "rety", "retrry", "retri", "rtry"} <= set(words)
    assert "retry" not in words
    assert len(words) == len(set(words))
    assert similar_words("fix") == []
