"""A model summarises a long session, so that another tool continues with less of it."""

from pathlib import Path
from typing import Any

import pytest

from segue.hub.sync.continuing import Handoff
from segue.model.content import as_content, plain_text
from segue.model.errors import AgentFailed, InvalidInput, NoAgent
from segue.model.event import AgentMessage, AnyBody, Compacted, UserMessage
from segue.model.principal import LOCAL
from tests.sources.writing.tool_sessions import use_homes, writable_tools

from .conftest import ModelSetup
from .provider import Fail, Say


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every tool an empty home."""
    use_homes(monkeypatch, tmp_path / "homes")


async def long_session(setup: ModelSetup) -> str:
    session = await setup.session(title="Long")
    bodies: list[AnyBody] = []
    for number in range(5):
        bodies.append(UserMessage(content=as_content(f"prompt {number}")))
        bodies.append(AgentMessage(content=as_content(f"answer {number}")))
    await setup.hub.editor.append(LOCAL, session.id, *bodies)
    return session.id


async def texts(setup: ModelSetup, id: str) -> list[str]:
    bodies: list[Any] = [e.body async for e in setup.hub.history.conversation(LOCAL, id)]
    kinds = UserMessage | AgentMessage | Compacted
    return [
        plain_text(body.summary if isinstance(body, Compacted) else body.content)
        for body in bodies
        if isinstance(body, kinds)
    ]


@pytest.mark.parametrize("tool", writable_tools())
async def test_summary_and_the_last_turns_replace_the_conversation(
    tool: str, setup: ModelSetup
) -> None:
    async with setup:
        id = await long_session(setup)
        setup.add_scripts([Say("They counted to two.")])
        new, report, _ = await setup.hub.continuing.continue_in(
            LOCAL, id, tool, handoff=Handoff(turns=2)
        )
        assert [(loss.what, loss.count) for loss in report.losses][:1] == [("earlier messages", 6)]
        asked = str(setup.provider.requests[0])
        assert "prompt 2" in asked and "answer 2" in asked and "prompt 3" not in asked
        written = "\n".join(await texts(setup, new.id))
        assert "They counted to two." in written and "prompt 2" not in written
        for number in (3, 4):
            assert f"prompt {number}" in written and f"answer {number}" in written
        assert new.fork is not None and new.fork.session == id


async def test_short_session_needs_no_summary(setup: ModelSetup) -> None:
    async with setup:
        id = await long_session(setup)
        report = await setup.hub.continuing.report(LOCAL, id, "codex", handoff=Handoff(turns=5))
        assert report.losses == () and report.prompts == 5
        assert setup.provider.requests == []


async def test_dry_run_asks_no_model_but_needs_one(setup: ModelSetup) -> None:
    async with setup:
        id = await long_session(setup)
        report = await setup.hub.continuing.report(LOCAL, id, "codex", handoff=Handoff(turns=1))
        assert [(loss.what, loss.becomes) for loss in report.losses] == [
            ("earlier messages", "summary")
        ]
        assert setup.provider.requests == []
        with pytest.raises(InvalidInput, match="compacts a session itself"):
            await setup.hub.continuing.report(LOCAL, id, "segue", handoff=Handoff())
        await setup.hub.config.unset("local", "model")
        with pytest.raises(NoAgent, match="no model is configured"):
            await setup.hub.continuing.report(LOCAL, id, "codex", handoff=Handoff())
        with pytest.raises(NoAgent, match="the demo agent writes no summaries"):
            await setup.hub.continuing.continue_in(
                LOCAL, id, "codex", handoff=Handoff(model="demo")
            )


async def test_failure_of_the_model_writes_no_session(setup: ModelSetup, tmp_path: Path) -> None:
    async with setup:
        id = await long_session(setup)
        setup.add_scripts([Fail(400, "invalid_request_error")])
        with pytest.raises(AgentFailed, match="could not write a summary"):
            await setup.hub.continuing.continue_in(LOCAL, id, "codex", handoff=Handoff(turns=1))
        assert not list((tmp_path / "homes").rglob("rollout-*"))


async def test_conversation_larger_than_the_context_is_summarised_in_parts(
    setup: ModelSetup,
) -> None:
    async with setup:
        id = await long_session(setup)
        await setup.hub.config.set("local", "model.context", "40")
        setup.add_scripts(*([Say(f"Part {number}.")] for number in range(3)))
        await setup.hub.continuing.continue_in(LOCAL, id, "codex", handoff=Handoff(turns=1))
        first, second, *_ = (str(request) for request in setup.provider.requests)
        assert "summary-so-far" not in first and "Part 0." in second
