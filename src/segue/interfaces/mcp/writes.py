"""The tools that change a session: its title, tag and note. Only `--allow-write` offers them."""

from __future__ import annotations

from .arguments import AddNote, SetTag, SetTitle
from .caller import Call
from .history_tools import NOTE


async def set_title(call: Call, arguments: SetTitle) -> str:
    """Change a session's title."""
    session = await call.session(arguments.session)
    await call.hub.editor.set_title(call.principal, session.id, arguments.title)
    return f"The title of {session.id} is now {arguments.title!r}."


async def set_tag(call: Call, arguments: SetTag) -> str:
    """Set or remove a session's tag."""
    session = await call.session(arguments.session)
    await call.hub.editor.set_tag(call.principal, session.id, arguments.tag or None)
    return f"The tag of {session.id} is now {arguments.tag!r}."


async def add_note(call: Call, arguments: AddNote) -> str:
    """Set or remove a session's note."""
    session = await call.session(arguments.session)
    await call.hub.editor.set_metadata(call.principal, session.id, {NOTE: arguments.note or None})
    return f"The note of {session.id} is stored."
