"""Every address, and what answers there."""

from __future__ import annotations

from . import actions, dashboard, exports, home, listing, live, login, shares, static, transcript
from .call import MAX_PROMPT, Endpoint

ROUTES = [
    Endpoint("GET", "/static/{version}/{name}", static.file, open=True),
    Endpoint("GET", "/favicon.ico", static.icon, open=True),
    Endpoint("GET", "/login", login.login, open=True),
    Endpoint("POST", "/login", login.sign_in, open=True),
    Endpoint("POST", "/logout", login.sign_out),
    Endpoint("GET", "/", home.home),
    Endpoint("GET", "/rows", listing.page),
    Endpoint("GET", "/facets", listing.facets),
    Endpoint("GET", "/live", live.stream),
    Endpoint("GET", "/dashboard", dashboard.page),
    Endpoint("POST", "/new", actions.new),
    Endpoint("GET", "/s/{id}", transcript.page),
    Endpoint("GET", "/s/{id}/part", transcript.part),
    Endpoint("GET", "/s/{id}/turns", transcript.turns),
    Endpoint("GET", "/s/{id}/whole/{seq:int}", transcript.whole),
    Endpoint("GET", "/s/{id}/blob/{seq:int}/{index:int}", transcript.blob),
    Endpoint("GET", "/s/{id}/export.{format}", exports.export),
    Endpoint("GET", "/s/{id}/share", shares.page),
    Endpoint("POST", "/s/{id}/share", shares.share),
    Endpoint("POST", "/s/{id}/unshare", shares.unshare),
    Endpoint("POST", "/s/{id}/prompt", actions.prompt, most=MAX_PROMPT),
    Endpoint("POST", "/s/{id}/take", actions.take),
    Endpoint("POST", "/s/{id}/cancel", actions.cancel),
    Endpoint("POST", "/s/{id}/answer", actions.answer),
    Endpoint("POST", "/s/{id}/rename", actions.rename),
    Endpoint("POST", "/s/{id}/tag", actions.tag),
    Endpoint("POST", "/s/{id}/archive", actions.archive),
    Endpoint("POST", "/s/{id}/unarchive", actions.unarchive),
    Endpoint("POST", "/s/{id}/delete", actions.delete),
    Endpoint("POST", "/s/{id}/restore", actions.restore),
    Endpoint("POST", "/s/{id}/fork", actions.fork),
    Endpoint("GET", "/shared/{workspace}/{id}/{secret}", shares.shared, open=True),
    Endpoint("GET", "/shared/{workspace}/{id}/{secret}/part", shares.part, open=True),
    Endpoint("GET", "/shared/{workspace}/{id}/{secret}/turns", shares.turns, open=True),
    Endpoint("GET", "/shared/{workspace}/{id}/{secret}/whole/{seq:int}", shares.whole, open=True),
    Endpoint(
        "GET",
        "/shared/{workspace}/{id}/{secret}/blob/{seq:int}/{index:int}",
        shares.blob,
        open=True,
    ),
]
