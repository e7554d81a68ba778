"""What people do to sessions: each a form's target, which leads back to a page."""

from __future__ import annotations

import asyncio
import base64
from contextlib import aclosing

from starlette.responses import Response

from segue.interfaces.web.request import WebRequest, parse_number
from segue.model.content import Block, Image, Text
from segue.model.errors import InvalidInput
from segue.model.event import Event, StatusChanged
from segue.model.session import Session
from segue.render.templates import PICTURES

MAX_PICTURE = 5 * 2**20  # what models take
MOMENT_SECONDS = 2.0  # that a page without a script waits for an answer


async def new(request: WebRequest) -> Response:
    """A new session. Only the local user chooses its directory: tools may read what is in there."""
    cwd = (await request.form()).get("cwd", "").strip() if request.principal.local else ""
    session = await request.hub.editor.create(request.principal, cwd=_directory(cwd), origin="web")
    return request.redirect(f"/s/{session.id}")


async def prompt(request: WebRequest) -> Response:
    """A message: its text, and pictures as `data:` addresses."""
    session = await request.session()
    fields = await request.fields()
    text = fields.get("text", [""])[-1].replace("\r\n", "\n")
    content: list[Block] = [Text(text=text)] if text.strip() else []
    content += [_picture(each) for each in fields.get("picture", [])]
    if not content:
        raise InvalidInput("write something first")
    turn = await request.hub.turns.submit(request.principal, session.id, content)
    return request.redirect(await _then(request, session, turn), turn)


async def continue_here(request: WebRequest) -> Response:
    """Import a session that another tool owns, so that it can be prompted here."""
    session = await request.session()
    await request.hub.turns.prepare_for_prompt(request.principal, session.id)
    return request.redirect(f"/s/{session.id}")


async def cancel(request: WebRequest) -> Response:
    session = await request.session()
    cancelled = await request.hub.turns.cancel(request.principal, session.id)
    return request.redirect(await _then(request, session, cancelled))


async def answer(request: WebRequest) -> Response:
    """An answer to the agent's question: `choice` is the question's id and the option's."""
    session = await request.session()
    ask_id, _, option = (await request.form()).get("choice", "").partition(" ")
    answered = await request.hub.turns.answer(request.principal, session.id, ask_id, option or None)
    return request.redirect(await _then(request, session, answered))


async def rename(request: WebRequest) -> Response:
    session = await request.session()
    title = (await request.form()).get("title", "").strip()
    await request.hub.editor.set_title(request.principal, session.id, title or None)
    return request.redirect(f"/s/{session.id}")


async def tag(request: WebRequest) -> Response:
    session = await request.session()
    given = (await request.form()).get("tag", "").strip()
    await request.hub.editor.set_tag(request.principal, session.id, given or None)
    return request.redirect(f"/s/{session.id}")


async def archive(request: WebRequest) -> Response:
    session = await request.session()
    await request.hub.editor.archive(request.principal, session.id)
    return request.redirect(f"/s/{session.id}")


async def unarchive(request: WebRequest) -> Response:
    session = await request.session()
    await request.hub.editor.unarchive(request.principal, session.id)
    return request.redirect(f"/s/{session.id}")


async def delete(request: WebRequest) -> Response:
    session = await request.session()
    await request.hub.editor.trash(request.principal, session.id)
    return request.redirect(f"/?deleted={session.id}")


async def restore(request: WebRequest) -> Response:
    session = await request.session()
    await request.hub.editor.restore(request.principal, session.id)
    return request.redirect(f"/s/{session.id}")


async def fork(request: WebRequest) -> Response:
    """A session that goes on from a message of this one, or from its end."""
    session = await request.session()
    given = (await request.form()).get("at", "")
    at = parse_number(given, f"{given!r} is no message of this session") if given else None
    made = await request.hub.editor.fork(
        request.principal, session.id, at=at, origin="web", in_store=True
    )
    return request.redirect(f"/s/{made.id}")


async def _then(request: WebRequest, session: Session, event: str | None) -> str:
    """Where to go after something that a turn follows from, as the event of this id says.

    A page without a script shows nothing that comes later: it waits a moment until the agent
    rests or asks, and leads to the end of the session.
    """
    here = f"/s/{session.id}"
    if request.from_script or event is None:
        return here
    begun = False
    try:
        async with (
            asyncio.timeout(MOMENT_SECONDS),
            aclosing(
                request.hub.history.follow(request.principal, session.id, session.last_seq)
            ) as events,
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
