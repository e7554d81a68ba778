"""Change sessions: each handler is the target of a form, and redirects to a page."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing

from starlette.responses import Response

from segue.hub import Hub
from segue.interfaces.web.request import Handler, WebRequest, parse_number
from segue.model.content import Block, Image, Text
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import Event, StatusChanged
from segue.model.principal import Principal
from segue.model.session import Session
from segue.render.templates import PICTURES

# Takes the hub, the caller and the id of a session.
EditSession = Callable[[Hub, Principal, str], Awaitable[object]]

MAX_PICTURE_BYTES = 5 * 2**20  # models accept no more
ANSWER_WAIT_SECONDS = 2.0  # how long a page without a script waits for the agent


async def prompt(request: WebRequest) -> Response:
    """POST /s/{id}/prompt: send a text, and pictures as `data:` URLs."""
    session = await request.session()
    content = prompt_content(await request.fields())
    turn = await request.hub.turns.submit(request.principal, session.id, content)
    return request.redirect(await page_after_turn(request, session, turn), turn)


def prompt_content(fields: Mapping[str, Sequence[str]]) -> list[Block]:
    """Return the message in a form: its `text`, and each `picture` as a `data:` URL.

    Raises InvalidInput if it is empty or a picture cannot be sent.
    """
    text = fields.get("text", [""])[-1].replace("\r\n", "\n")
    content: list[Block] = [Text(text=text)] if text.strip() else []
    content += [_parse_picture(data_url) for data_url in fields.get("picture", [])]
    if not content:
        raise InvalidInput("the message is empty; write a text or attach a picture")
    return content


async def cancel(request: WebRequest) -> Response:
    """POST /s/{id}/cancel"""
    session = await request.session()
    event_id = await request.hub.turns.cancel(request.principal, session.id)
    return request.redirect(await page_after_turn(request, session, event_id))


async def answer(request: WebRequest) -> Response:
    """POST /s/{id}/answer: `choice` is the id of a permission request, a space and an option.

    `note` is a reason, which the agent receives.
    """
    session = await request.session()
    form = await request.form()
    ask_id, _, option = form.get("choice", "").partition(" ")
    note = form.get("note", "").strip()
    try:
        event_id = await request.hub.turns.answer(
            request.principal, session.id, ask_id, option or None, note or None
        )
    except NotFound:
        raise NotFound("this request was answered elsewhere, or its turn has ended") from None
    if form.get("from") == "inbox":
        return request.redirect("/activity")
    return request.redirect(await page_after_turn(request, session, event_id))


async def rename(request: WebRequest) -> Response:
    """POST /s/{id}/rename"""
    session = await request.session()
    title = (await request.form()).get("title", "").strip()
    await request.hub.editor.set_title(request.principal, session.id, title or None)
    return request.redirect(f"/s/{session.id}")


async def tag(request: WebRequest) -> Response:
    """POST /s/{id}/tag"""
    session = await request.session()
    tag = (await request.form()).get("tag", "").strip()
    await request.hub.editor.set_tag(request.principal, session.id, tag or None)
    return request.redirect(f"/s/{session.id}")


def edit_handler(edit: EditSession, page: str = "/s/{id}") -> Handler:
    """Return a handler that edits the session in the path, and redirects to a page."""

    async def handle(request: WebRequest) -> Response:
        session = await request.session()
        edited = await edit(request.hub, request.principal, session.id)
        # A session that was restored may have a new id.
        id = edited.id if isinstance(edited, Session) else session.id
        return request.redirect(page.format(id=id))

    return handle


archive = edit_handler(lambda hub, *session: hub.editor.archive(*session))
unarchive = edit_handler(lambda hub, *session: hub.editor.unarchive(*session))
delete = edit_handler(lambda hub, *session: hub.editor.trash(*session), "/?deleted={id}")
restore = edit_handler(lambda hub, *session: hub.editor.restore(*session))
continue_here = edit_handler(lambda hub, *session: hub.turns.prepare_for_prompt(*session))
pin = edit_handler(lambda hub, *session: hub.pins.pin(*session))
unpin = edit_handler(lambda hub, *session: hub.pins.unpin(*session))
unshare = edit_handler(lambda hub, *session: hub.shares.revoke(*session), "/s/{id}/share")


async def fork(request: WebRequest) -> Response:
    """POST /s/{id}/fork: fork the session after the event `at`, or at its end."""
    session = await request.session()
    text = (await request.form()).get("at", "")
    seq = parse_number(text, f"{text!r} is not a message of this session") if text else None
    forked = await request.hub.editor.fork(
        request.principal, session.id, at=seq, origin="web", in_store=True
    )
    return request.redirect(f"/s/{forked.id}")


async def page_after_turn(request: WebRequest, session: Session, event_id: str | None) -> str:
    """Return the page to show after a change that starts or continues a turn.

    `event_id` is the event that the change causes. Without our script a page does not update, so
    this waits up to ANSWER_WAIT_SECONDS until the turn ends or asks a question.
    """
    url = f"/s/{session.id}"
    if request.from_script or event_id is None:
        return url
    started = False
    try:
        async with (
            asyncio.timeout(ANSWER_WAIT_SECONDS),
            aclosing(
                request.hub.history.follow(request.principal, session.id, session.last_seq)
            ) as events,
        ):
            async for event in events:
                assert isinstance(event, Event), "deltas were not requested"
                started |= event.id == event_id
                if started and isinstance(event.body, StatusChanged) and event.body.stop_reason:
                    break
    except TimeoutError:
        url += "?sent=1"
    return f"{url}#writing"


def _parse_picture(data_url: str) -> Image:
    """Return the picture in a `data:` URL. Raises InvalidInput if it cannot be sent."""
    head, _, data = data_url.partition(";base64,")
    mime = head.removeprefix("data:")
    if mime not in PICTURES:
        raise InvalidInput(f"a picture must be PNG, JPEG, GIF or WebP, not {mime[:40]!r}")
    try:
        size = len(base64.b64decode(data, validate=True))
    except ValueError:
        raise InvalidInput("a picture was damaged during the upload; attach it again") from None
    if not size:
        raise InvalidInput("a picture is empty; attach another one")
    if size > MAX_PICTURE_BYTES:
        raise InvalidInput(f"a picture may have at most {MAX_PICTURE_BYTES // 2**20} MB")
    return Image(mime=mime, data=data)


def check_directory(directory: str) -> str | None:
    """Return the path of an existing directory, or None if the field is empty."""
    import os

    if not directory:
        return None
    path = os.path.expanduser(directory)
    if not os.path.isabs(path):
        raise InvalidInput(
            f"{directory!r} is not a full path; enter one, such as /home/you/project"
        )
    if "\0" in path or not os.path.isdir(path):
        raise InvalidInput(f"there is no directory {directory!r} on this computer")
    return path
