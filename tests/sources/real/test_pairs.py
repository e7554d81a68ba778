"""A session that one program wrote is continued by each of the others, with every call."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from segue.factory import open_hub
from segue.model.content import plain_text
from segue.model.event import AgentMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources import registry

from .codex import VERSIONS, Codex
from .following import ANSWERS, LONG_TURN, PROMPT
from .programs import Home
from .scripted_model import ScriptedModel, running_model
from .sent_messages import Sent, sent_messages
from .tools import TOOLS, ClaudeCode, Tool

pytestmark = pytest.mark.full

NAMES = ["claude", "codex", *(tool.name for tool in TOOLS)]
COMMANDS = ["77000000 + 1", "77000000 + 2", "77000000 + 3; exit 3", "77000000 + 4"]


def install(home: Home, model: ScriptedModel) -> dict[str, Tool | Codex]:
    """Install the newest version of each program in one home."""
    tools: dict[str, Tool | Codex] = {}
    paths: list[str] = []
    for type in (ClaudeCode, *TOOLS):
        tools[type.name] = type(type.versions[0], home, model)
        paths.append(home.environment["PATH"])
    tools["codex"] = Codex(VERSIONS[0], home, model)
    home.environment["PATH"] = os.pathsep.join([home.environment["PATH"], *paths])
    return tools


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[dict[str, Tool | Codex]]:
    home = Home(tmp_path)
    with running_model() as model:
        tools = install(home, model)
        with home.as_environment():
            yield tools


def sent_with(model: ScriptedModel, text: str) -> list[Sent]:
    """Return the messages of the first request that has a text."""
    requests = map(sent_messages, model.bodies)
    return next(sent for sent in requests if any(text in message.text for message in sent))


def check_sent(sent: list[Sent], expected_texts: list[str]) -> None:
    """Check that a request has texts in this order, and each call once with its result."""
    position = 0
    for text in expected_texts:
        matches = (n for n in range(position, len(sent)) if text in sent[n].text)
        found = next(matches, None)
        assert found is not None, text
        position = found
    calls = {message.id: message.text for message in sent if message.kind == "call"}
    results = {message.id: message.text for message in sent if message.kind == "result"}
    assert len(calls) == len(COMMANDS) and calls.keys() == results.keys()
    for number, command in enumerate(COMMANDS, 1):
        (id,) = [id for id, text in calls.items() if command in text]
        assert f"7700000{number}" in results[id]


@pytest.mark.parametrize("source", NAMES)
async def test_all_other_programs_continue_a_session(
    tools: dict[str, Tool | Codex], source: str, tmp_path: Path
) -> None:
    tools[source].prompt(PROMPT, *LONG_TURN)
    for target in NAMES:
        if target == source:
            continue
        async with await open_hub(tmp_path / "data") as hub:
            (original,) = (await hub.sessions.list(LOCAL, Query(source=source))).sessions
            new, _, _ = await hub.continuing.continue_in(LOCAL, original.id, target)
        native_id, tool = new.native_id or new.id, tools[target]
        tool.resume(native_id, f"Continue in {target}", {"say": f"Continued in {target}."})
        sent = sent_with(tool.model, f"Continue in {target}")
        check_sent(sent, [PROMPT, *ANSWERS, f"Continue in {target}"])
        copy = registry.get(target).transcripts().read(native_id)
        answers = [e.body for e in copy.events(None) if isinstance(e.body, AgentMessage)]
        assert plain_text(answers[-1].content) == f"Continued in {target}."
