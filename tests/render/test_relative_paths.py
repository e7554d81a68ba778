"""Documents do not reveal where a session's working directory is."""

from pathlib import Path

from segue.hub import Hub
from segue.model.content import Diff, ResourceLink, as_content
from segue.model.event import Location, Option, PermissionAsked, ToolCall, ToolResult, UserMessage
from segue.model.principal import LOCAL
from segue.render import documents
from segue.render.relative_paths import with_relative_paths
from segue.store.memory import MemoryStore


async def test_documents_show_paths_relative_to_the_working_directory(tmp_path: Path) -> None:
    async with Hub(MemoryStore(), tmp_path) as hub:
        session = await hub.editor.create(LOCAL)
        file = f"{session.cwd}/src/f.txt"
        link = ResourceLink(uri=f"file://{file}", name="f.txt")
        await hub.editor.append(
            LOCAL,
            session.id,
            UserMessage(content=(*as_content("look"), link)),
            ToolCall(
                call_id="c",
                name="write",
                title=f"Write `{file}`",
                input={"path": file, "more": [file], "old_string": "a", "new_string": "b"},
                content=(Diff(path=file, new="b"),),
                locations=(Location(path=file, line=3),),
            ),
            PermissionAsked(
                ask_id="a",
                title=f"Write {file}",
                options=(Option(id="y", name="Yes", kind="allow_once"),),
            ),
            ToolResult(call_id="c", content=(Diff(path=file, old="b", new="c"),)),
            ToolCall(call_id="d", name="edit", input={"file_path": file}),
        )
        session = await hub.sessions.get(LOCAL, session.id)
        texts = [
            "".join([piece async for piece in document(hub.history, LOCAL, session)])
            for document in (documents.markdown, documents.html)
        ]
    for text in texts:
        assert "src/f.txt" in text and str(tmp_path) not in text
    assert '<figcaption><span class="path">src/f.txt</span> ' in texts[1]


async def test_paths_elsewhere_and_message_texts_stay_unchanged(tmp_path: Path) -> None:
    async with Hub(MemoryStore(), tmp_path) as hub:
        session = await hub.editor.create(LOCAL, cwd="/p/app")
        message = UserMessage(content=as_content("/p/app/x is broken"))
        call = ToolCall(
            call_id="c",
            name="bash",
            title="Look at /p/app, /q/p/app/x and /p/apple/x",
            input={"command": "cat /p/app/x", "path": "/p/apple/x", "cwd": "/p/app"},
            locations=(Location(path="/p/apple/x"),),
        )
        result = ToolResult(call_id="c", content=as_content("/p/app/x: no such file"))
        await hub.editor.append(LOCAL, session.id, message, call, result)
        events = [event async for event in hub.history.read(LOCAL, session.id)]
        assert [with_relative_paths(event, session) for event in events] == events

        root = await hub.editor.create(LOCAL, cwd="/")
        assert [with_relative_paths(event, root) for event in events] == events
