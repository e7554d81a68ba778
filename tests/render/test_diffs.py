"""Show changes of files: whole texts, and the patches that results of tools have."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.hub import Hub
from segue.model.content import Diff, as_content
from segue.model.event import ToolCall, ToolResult, UserMessage
from segue.model.principal import LOCAL
from segue.model.tools.patches import MAX_PATCHED_CHARACTERS, file_change
from segue.render import documents
from segue.render.text.diffs import compare_texts, file_diff
from segue.store.memory import MemoryStore

# Of lines: only a patch has them.
NUMBERS = re.compile(r' data-(old|new)="\d*"')
TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", "-x", " y"]), max_size=40).map(
    lambda lines: "".join(f"{line}\n" for line in lines)
)


@given(TEXTS, TEXTS)
def test_patch_is_shown_as_the_difference_of_both_texts(old: str, new: str) -> None:
    change = file_change("/a", old.encode(), new.encode())
    assert file_diff(change) == compare_texts(old, new, first_line=1)


def test_change_without_a_patch_is_not_complete() -> None:
    change = file_change("/a", b"old", b"x" * MAX_PATCHED_CHARACTERS)
    assert file_diff(change) == ([], 0, 0, False)


def test_all_new_lines_of_a_long_text_are_in_its_diff() -> None:
    new = "".join(f"line {number}\n" for number in range(20_000))
    created = compare_texts(None, new, first_line=1)
    assert created.complete and created.lines[-1] == ("+", "line 19999", None, 20_000, ())
    changed = compare_texts(new.replace("line", "old"), new)
    assert not changed.complete and (changed.added, changed.removed) == (20_000, 20_000)
    assert changed.lines[-1].text == "line 19999"


@pytest.mark.parametrize("render", [documents.markdown, documents.html])
@pytest.mark.parametrize("before", [None, "".join(f"{number}\n" for number in range(30))])
async def test_document_shows_a_stored_patch_as_it_shows_both_texts(
    tmp_path: Path, render: Any, before: str | None
) -> None:
    after = (before or "0\n29\n").replace("0\n", "zero\n", 1).replace("29\n", "last\n")
    old = None if before is None else before.encode()
    stored = file_change("/w/a", old, after.encode(), after)
    texts = []
    async with Hub(MemoryStore(), tmp_path) as hub:
        for change in (stored, Diff(path="/w/a", old=before, new=after)):
            id = (await hub.editor.create(LOCAL, cwd="/w")).id
            call = ToolCall(
                call_id="c", name="write", input={"file_path": "/w/a", "content": after}
            )
            result = ToolResult(call_id="c", content=(*as_content("Wrote it."), change))
            await hub.editor.append(LOCAL, id, UserMessage(content=as_content("go")), call, result)
            session = await hub.sessions.get(LOCAL, id)
            pieces = [piece async for piece in render(hub.history, LOCAL, session)]
            texts.append(NUMBERS.sub("", "".join(pieces).partition("Wrote it.")[2]))
    assert "zero" in texts[0] and texts[0] == texts[1]
