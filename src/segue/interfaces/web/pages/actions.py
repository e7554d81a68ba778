"""What people do to sessions: each a form's target, which leads back to a page."""

from __future__ import annotations

import asyncio
import base64
from contextlib import aclosing

from starlette.responses import Response

from segue.interfaces.web.request import Call, natural
from segue.model.content import Block, Image, Text
from segue.model.errors import InvalidInput
from segue.model.event import Event, StatusChanged
from segue.model.session import Session
from segue.render.templates import PICTURES

MAX_PICTURE = 5 * 2**20  # what models take
MOMENT_SECONDS = 2.0  # that a page without a script waits for an answer


async def new(call: Call) -> Response:
    """A new session. Only the local user chooses its directory: tools may read what is in there."""
    cwd = (await call.form()).get("cwd", "").strip() if call.principal.local else ""
    session = await call.hub.create(call.principal, cwd=_directory(cwd), origin="web")
    return call.went(f"/s/{session.id}")


async def prompt(call: Call) -> Response:
    """A message: its text, and pictures as `data:` addresses."""
    session = await call.session()
    fields = await call.fields()
    text = fields.get("text", [""])[-1].replace("\r\n", "\n")
    content: list[Block] = [Text(text=text)] if text.strip() else []
    content += [_picture(each) for each in fields.get("picture", [])]
    if not content:
        raise InvalidInput("write something first")
    turn = await call.hub.prompt(call.principal, session.id, content)
    return call.went(await _then(call, session, turn), turn)


async def take(call: Call) -> Response:
    """Go on here with a session that another tool keeps: a copy of it, under its own id."""
    session = await call.session()
    await call.hub.promptable(call.principal, session.id)
    return call.went(f"/s/{session.id}")


async def cancel(call: Call) -> Response:
    session = await call.session()
    cancelled = await call.hub.cancel(call.principal, session.id)
    return call.went(await _then(call, session, cancelled))


async def answer(call: Call) -> Response:
    """An answer to the agent's question: `choice` is the question's id and the option's."""
    session = await call.session()
    ask_id, _, option = (await call.form()).get("choice", "").partition(" ")
    answered = await call.hub.answer(call.principal, session.id, ask_id, option or None)
    return call.went(await _then(call, session, answered))


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
    given = (await call.form()).get("at", "")
    at = natural(given, f"{given!r} is no message of this session") if given else None
    made = await call.hub.fork(call.principal, session.id, at=at, origin="web", here=True)
    return call.went(f"/s/{made.id}")


async def _then(call: Call, session: Session, event: str | None) -> str:
    """Where to go after something that a turn follows from, as the event of this id says.

    A page without a script shows nothing that comes later: it waits a moment until the agent
    rests or asks, and leads to the end of the session.
    """
    here = f"/s/{session.id}"
    if call.scripted or event is None:
        return here
    begun = False
    try:
        async with (
            asyncio.timeout(MOMENT_SECONDS),
            aclosing(call.hub.follow(call.principal, session.id, session.last_seq)) as events,
        ):
            async for each in events:
                assert isinstance(each, Event), "no deltas were asked for"
                begun |= each.id == event
                if begun and isinstance(each.body, StatusChanged) and each.body.stop_reason:
                    break
    except TimeoutError:
        here += "?sent=1"
    return f"{here}#writing"


def _picture(address: str) -> Image:
    head, _, data = address.partition(";base64,")
    mime = head.removeprefix("data:")
    if mime not in PICTURES:
        raise InvalidInput(f"a picture must be PNG, JPEG, GIF or WebP, not {mime[:40]!r}")
    try:
        size = len(base64.b64decode(data, validate=True))
    except ValueError:
        raise InvalidInput("a picture was damaged on its way; attach it again") from None
    if not size:
        raise InvalidInput("that picture is empty")
    if size > MAX_PICTURE:
        raise InvalidInput(f"a picture may have {MAX_PICTURE // 2**20} MB at most")
    return Image(mime=mime, data=data)


def _directory(given: str) -> str | None:
    import os

    if not given:
        return None
    path = os.path.expanduser(given)
    if not os.path.isabs(path):
        raise InvalidInput(f"{given!r} is no absolute path of a directory")
    if "\0" in path or not os.path.isdir(path):
        raise InvalidInput(f"there is no directory {given!r} on this computer")
    return path
