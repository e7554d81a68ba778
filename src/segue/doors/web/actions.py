"""What people do to sessions: each a form's target, which leads back to a page."""

from __future__ import annotations

from starlette.responses import Response

from ...model.errors import InvalidInput
from .call import Call


async def new(call: Call) -> Response:
    """A new session. Only the local user chooses its directory: tools may read what is in there."""
    cwd = (await call.form()).get("cwd", "").strip() if call.principal.local else ""
    session = await call.hub.create(call.principal, cwd=_directory(cwd), origin="web")
    return call.went(f"/s/{session.id}")


async def prompt(call: Call) -> Response:
    session = await call.session()
    text = (await call.form()).get("text", "").replace("\r\n", "\n")
    if not text.strip():
        raise InvalidInput("write something first")
    await call.hub.prompt(call.principal, session.id, text)
    return call.went(f"/s/{session.id}")


async def cancel(call: Call) -> Response:
    session = await call.session()
    await call.hub.cancel(call.principal, session.id)
    return call.went(f"/s/{session.id}")


async def answer(call: Call) -> Response:
    """An answer to the agent's question: `choice` is the question's id and the option's."""
    session = await call.session()
    ask_id, _, option = (await call.form()).get("choice", "").partition(" ")
    await call.hub.answer(call.principal, session.id, ask_id, option or None)
    return call.went(f"/s/{session.id}")


async def rename(call: Call) -> Response:
    session = await call.session()
    title = (await call.form()).get("title", "").strip()
    await call.hub.set_title(call.principal, session.id, title or None)
    return call.went(f"/s/{session.id}")


async def tag(call: Call) -> Response:
    session = await call.session()
    given = (await call.form()).get("tag", "").strip()
    await call.hub.set_tag(call.principal, session.id, given or None)
    return call.went(f"/s/{session.id}")


async def archive(call: Call) -> Response:
    session = await call.session()
    await call.hub.archive(call.principal, session.id)
    return call.went(f"/s/{session.id}")


async def unarchive(call: Call) -> Response:
    session = await call.session()
    await call.hub.unarchive(call.principal, session.id)
    return call.went(f"/s/{session.id}")


async def delete(call: Call) -> Response:
    session = await call.session()
    await call.hub.trash(call.principal, session.id)
    return call.went(f"/?deleted={session.id}")


async def restore(call: Call) -> Response:
    session = await call.session()
    await call.hub.restore(call.principal, session.id)
    return call.went(f"/s/{session.id}")


async def fork(call: Call) -> Response:
    """A session that goes on from a message of this one, or from its end."""
    session = await call.session()
    at = (await call.form()).get("at", "")
    if at and not (at.isascii() and at.isdecimal() and len(at) < 10):
        raise InvalidInput(f"{at!r} is no message of this session")
    made = await call.hub.fork(
        call.principal, session.id, at=int(at) if at else None, origin="web", here=True
    )
    return call.went(f"/s/{made.id}")


def _directory(given: str) -> str | None:
    import os

    if not given:
        return None
    path = os.path.expanduser(given)
    if not os.path.isabs(path):
        raise InvalidInput(f"{given!r} is no absolute path of a directory")
    return path
