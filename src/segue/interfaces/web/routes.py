"""The paths of the session browser, and their handlers."""

from __future__ import annotations

from . import live, static
from .pages import (
    actions,
    agents,
    bulk,
    compare,
    continuing,
    dashboard,
    exports,
    home,
    inspector,
    listing,
    login,
    search,
    shares,
    starting,
    transcript,
)
from .request import MAX_PROMPT_FORM_BYTES, Endpoint

SHARE_LINK = "/shared/{workspace}/{id}/{secret}"

# What both the user of a session and the readers of its share link get, by the path below either.
SESSION_PARTS = {
    "/chunks": transcript.chunks,
    "/turns": transcript.turns,
    "/markdown/{seq}": transcript.markdown_text,
    "/outline": inspector.outline,
    "/changes": inspector.changes,
    "/info": inspector.info,
    "/errors": inspector.errors,
    "/next": inspector.next_target,
    "/preview": search.preview,
    "/agents": agents.matches,
    "/agent/{thread}/whole/{seq}": agents.full_text,
    "/agent/{thread}/blob/{seq}/{index}": agents.blob,
    "/whole/{seq}": transcript.full_text,
    "/blob/{seq}/{index}": transcript.blob,
}

ROUTES = [
    Endpoint("GET", "/static/{version}/{name}", static.file, public=True),
    Endpoint("GET", "/favicon.ico", static.icon, public=True),
    Endpoint("GET", "/login", login.login, public=True),
    Endpoint("POST", "/login", login.sign_in, form="next key", public=True),
    Endpoint("POST", "/logout", login.sign_out),
    Endpoint("GET", "/", home.home),
    Endpoint("GET", "/activity", home.home),
    Endpoint("POST", "/bulk", bulk.change, form="action id tag was undo"),
    Endpoint("GET", "/rows", listing.page),
    Endpoint("GET", "/facets", listing.facets),
    Endpoint("GET", "/live", live.stream),
    Endpoint("GET", "/search", search.page),
    Endpoint("GET", "/compare", compare.page),
    Endpoint("GET", "/dashboard", dashboard.page),
    Endpoint("GET", "/dashboard.csv", dashboard.csv_file),
    Endpoint("GET", "/new", starting.page),
    Endpoint(
        "POST",
        "/new",
        starting.start,
        form="text picture project mode agent model",
        max_form_bytes=MAX_PROMPT_FORM_BYTES,
    ),
    Endpoint("GET", "/model", starting.model_page),
    Endpoint("POST", "/model", starting.set_model, form="model"),
    Endpoint("GET", "/s/{id}", transcript.page),
    Endpoint("GET", "/s/{id}/export.{format}", exports.export),
    Endpoint("GET", "/s/{id}/continue-in", continuing.page),
    Endpoint("GET", "/s/{id}/share", shares.page),
    Endpoint("POST", "/s/{id}/share", shares.share, form="days tools secrets"),
    Endpoint("POST", "/s/{id}/unshare", actions.unshare),
    Endpoint(
        "POST",
        "/s/{id}/prompt",
        actions.prompt,
        form="text picture",
        max_form_bytes=MAX_PROMPT_FORM_BYTES,
    ),
    Endpoint("POST", "/s/{id}/continue", actions.continue_here),
    Endpoint("POST", "/s/{id}/cancel", actions.cancel),
    Endpoint("POST", "/s/{id}/answer", actions.answer, form="choice note from"),
    Endpoint("POST", "/s/{id}/rename", actions.rename, form="title"),
    Endpoint("POST", "/s/{id}/tag", actions.tag, form="tag"),
    Endpoint("POST", "/s/{id}/archive", actions.archive),
    Endpoint("POST", "/s/{id}/unarchive", actions.unarchive),
    Endpoint("POST", "/s/{id}/pin", actions.pin),
    Endpoint("POST", "/s/{id}/unpin", actions.unpin),
    Endpoint("POST", "/s/{id}/delete", actions.delete),
    Endpoint("POST", "/s/{id}/restore", actions.restore),
    Endpoint("POST", "/s/{id}/fork", actions.fork, form="at"),
    Endpoint("GET", "/s/{id}/agent/{thread}", transcript.for_user(agents.page)),
    Endpoint("GET", SHARE_LINK, shares.for_readers(shares.shared), public=True),
    Endpoint("GET", f"{SHARE_LINK}/live", shares.for_readers(shares.stream), public=True),
    Endpoint(
        "GET",
        f"{SHARE_LINK}/agent/{{thread}}",
        shares.for_readers(agents.shared_page),
        public=True,
    ),
    *(
        Endpoint("GET", f"/s/{{id}}{path}", transcript.for_user(handler))
        for path, handler in SESSION_PARTS.items()
    ),
    *(
        Endpoint("GET", f"{SHARE_LINK}{path}", shares.for_readers(handler), public=True)
        for path, handler in SESSION_PARTS.items()
    ),
]
