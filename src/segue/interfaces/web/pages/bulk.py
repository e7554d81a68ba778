"""Change several sessions at once: archive, tag, delete, restore, and empty the trash."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import quote

from starlette.responses import Response

from segue.interfaces.web.request import WebRequest
from segue.model import ids
from segue.model.errors import InvalidInput, NotFound, SegueError
from segue.model.query import Query

SESSIONS_PER_PURGE = 200  # sessions that are deleted for good at a time
ACTIONS = (
    "archive",
    "unarchive",
    "pin",
    "unpin",
    "tag",
    "retag",
    "delete",
    "restore",
    "purge",
    "compare",
)


async def change(request: WebRequest) -> Response:
    """POST /bulk: apply `action` to the sessions `id`. A session that is gone is left out.

    Raises the error of the last session that could not be changed, after all others were.
    """
    fields = await request.fields()
    action = fields.get("action", [""])[-1]
    if action == "empty":
        return await _empty_trash(request)
    if action not in ACTIONS:
        raise InvalidInput(f"action must be one of {', '.join(ACTIONS)}, not {action!r}")
    session_ids = [id for text in fields.get("id", []) if (id := ids.parse(text))]
    if not session_ids:
        raise InvalidInput("no session is selected; select at least one")
    if action == "compare":
        if len(session_ids) != 2:
            raise InvalidInput(f"{len(session_ids)} sessions are selected; select two to compare")
        return request.redirect(f"/compare?a={session_ids[1]}&b={session_ids[0]}")
    tags = [fields.get("tag", [""])[-1].strip()] * len(session_ids)
    if action == "retag":
        tags = fields.get("was", [])
        if len(tags) != len(session_ids):
            raise InvalidInput(
                f"the form has {len(session_ids)} sessions and {len(tags)} tags; send one for each"
            )
    old_tags = await _tags(request, session_ids) if action == "tag" else {}
    failure: SegueError | None = None
    changed = []
    for session_id, tag in zip(session_ids, tags, strict=True):
        try:
            changed.append(await _change(request, action, session_id, tag or None))
        except NotFound:
            continue
        except SegueError as error:
            failure = error
    if failure is not None:
        raise failure
    state = "&state=trash" if action in ("restore", "purge") else ""
    state = "&state=only" if action == "unarchive" else state
    if fields.get("undo"):
        state = ""  # back to the list in which the change was made
    was = "".join(f"&was={quote(old_tags.get(id, ''))}" for id in changed if old_tags)
    ids_text = quote(" ".join(changed))
    return request.redirect(f"/activity?did={action}&ids={ids_text}{was}{state}")


async def _tags(request: WebRequest, session_ids: list[str]) -> dict[str, str]:
    """Return the tags of sessions, so that they can get them back."""
    tags = {}
    for session_id in session_ids:
        with suppress(NotFound):
            session = await request.hub.sessions.get(request.principal, session_id)
            tags[session_id] = session.tag or ""
    return tags


async def _change(request: WebRequest, action: str, session_id: str, tag: str | None) -> str:
    """Change one session and return its id; a session that was restored may have a new one."""
    editor, principal = request.hub.editor, request.principal
    match action:
        case "archive":
            return (await editor.archive(principal, session_id)).id
        case "unarchive":
            return (await editor.unarchive(principal, session_id)).id
        case "delete":
            return (await editor.trash(principal, session_id)).id
        case "restore":
            return (await editor.restore(principal, session_id)).id
        case "tag" | "retag":
            return (await editor.set_tag(principal, session_id, tag)).id
    session = await request.hub.sessions.get(principal, session_id)
    if action in ("pin", "unpin"):
        pins = request.hub.pins
        await (pins.pin if action == "pin" else pins.unpin)(principal, session.id)
        return session.id
    if session.state != "trashed":
        raise InvalidInput("only sessions in the trash can be deleted for good")
    await editor.purge(principal, session_id)
    return session_id


async def _empty_trash(request: WebRequest) -> Response:
    """Delete all sessions in the trash for good."""
    while True:
        query = Query(trash=True, limit=SESSIONS_PER_PURGE)
        page = await request.hub.sessions.list(request.principal, query, bind_filters=False)
        for session in page.sessions:
            await request.hub.editor.purge(request.principal, session.id)
        if len(page.sessions) < SESSIONS_PER_PURGE:
            return request.redirect("/activity?state=trash")
