"""Sign-in, host checks and protection against requests from other sites."""

import threading
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pytest

from segue.hub.access.logins import LINK_LIFETIME, LOGIN_LIFETIME
from segue.interfaces.web import request
from segue.interfaces.web.routes import ROUTES
from segue.model import clock
from segue.model.content import Text
from segue.model.event import Event, UserMessage
from segue.model.principal import LOCAL, Principal
from tests.interfaces.web.site import BASE, open_site


async def test_signing_in_redirects_to_the_requested_page(
    tmp_path: Path,
) -> None:
    async with open_site(tmp_path, signed_in=False) as site:
        session = await site.hub.editor.create(LOCAL, title="Secret plan")
        page = await site.get(f"/s/{session.id}?at=1", 401)
        assert "segue open" in page and "Secret plan" not in page
        _, key = await site.hub.keys.create("local")
        assert f'value="/s/{session.id}?at=1"' in page
        response = await site.client.post(
            "/login", data={"key": key, "next": f"/s/{session.id}?at=1"}
        )
        assert response.headers["location"] == f"/s/{session.id}?at=1"
        assert "Secret plan" in await site.get(response.headers["location"])


async def test_a_login_link_works_once(tmp_path: Path) -> None:
    async with open_site(tmp_path, signed_in=False) as site:
        token = await site.hub.logins.create_link(LOCAL)
        assert (await site.client.head("/login", params={"token": token})).status_code == 200
        first = await site.client.get("/login", params={"token": token})
        assert first.status_code == 303 and first.headers["location"] == "/"
        cookie = first.headers["set-cookie"].lower()
        assert (
            "httponly" in cookie and "samesite=lax" in cookie and cookie.startswith("segue-8787=")
        )
        assert token not in cookie
        again = await site.client.get("/login", params={"token": token, "next": "/dashboard"})
        assert (
            again.status_code == 303 and again.headers["location"] == "/dashboard"
        )  # signed in already
        assert "set-cookie" not in again.headers
        site.client.cookies.clear()
        page = await site.get(f"/login?token={token}", 401)
        assert "was already used" in page and "run <code>segue open</code> to sign in" in page
        assert "`" not in page
        await site.get("/", 401)


@pytest.mark.parametrize("token", ["", "x", "local~", "local~.", "local~abc.def", "~.", "%00", "é"])
async def test_a_forged_token_does_not_sign_in(tmp_path: Path, token: str) -> None:
    async with open_site(tmp_path, signed_in=False) as site:
        await site.get("/login", 200 if not token else 401, params={"token": token})
        response = await site.client.get("/", headers={"cookie": f"segue-8787={token!a}"})
        assert response.status_code == 401


async def test_login_links_and_sign_ins_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_site(tmp_path) as site:
        token = await site.hub.logins.create_link(LOCAL)
        now = clock.now()
        monkeypatch.setattr(clock, "now", lambda: now + LINK_LIFETIME + clock.SECOND)
        await site.get("/")
        cookies = dict(site.client.cookies)
        site.client.cookies.clear()
        assert "expired" in await site.get(f"/login?token={token}", 401)
        site.client.cookies.update(cookies)
        monkeypatch.setattr(clock, "now", lambda: now + LOGIN_LIFETIME + clock.SECOND)
        assert "expired" in await site.get("/", 401)


async def test_revoking_a_key_signs_its_browsers_out(tmp_path: Path) -> None:
    async with open_site(tmp_path, signed_in=False) as site:
        key, secret = await site.hub.keys.create("local")
        await site.client.post("/login", data={"key": secret})
        await site.get("/")
        await site.hub.keys.revoke("local", key.id)
        assert "no longer valid" in await site.get("/", 401)
        response = await site.client.post("/login", data={"key": secret})
        assert response.status_code == 401 and "This key is not valid" in response.text


async def test_signing_out_invalidates_the_cookie(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        cookies = dict(site.client.cookies)
        await site.post("/logout")
        site.client.cookies.update(cookies)
        await site.get("/", 401)


async def test_a_browser_sees_only_its_own_workspace(tmp_path: Path) -> None:
    async with open_site(tmp_path, signed_in=False) as site:
        own = await site.hub.editor.create(Principal(workspace="team"), title="Ours", cwd="/team")
        other = await site.hub.editor.create(LOCAL, title="Theirs")
        await site.hub.turns.run(LOCAL, other.id, "/say wombat")
        await site.sign_in(Principal(workspace="team"))
        home = await site.get("/")
        assert "Ours" in home and "Theirs" not in home
        assert "Theirs" not in await site.get("/?q=wombat")
        for path in (
            "",
            "/chunks?first=0",
            "/turns",
            "/export.md",
            "/continue-in?tool=codex",
            "/share",
            "/whole/2",
            "/blob/2/0",
        ):
            assert "Theirs" not in await site.get(f"/s/{other.id}{path}", 404)
        fields = {"prompt": {"text": "x"}, "rename": {"title": "x"}}
        for verb in ("prompt", "rename", "delete", "fork", "share", "archive", "cancel"):
            await site.post(f"/s/{other.id}/{verb}", 404, **fields.get(verb, {}))
        assert (await site.client.get(f"/live?session={other.id}")).status_code == 404
        await site.get(f"/s/{own.id}")


@pytest.mark.parametrize("offset", ["", "x", "9" * 400, "-999", "999", "+5", "1e3", "٣"])
async def test_an_invalid_utc_offset_cookie_is_ignored(tmp_path: Path, offset: str) -> None:
    async with open_site(tmp_path) as site:
        await site.hub.editor.create(LOCAL, title="Mine")
        cookies = "; ".join(f"{name}={value}" for name, value in site.client.cookies.items())
        cookie_header = f"{cookies}; segue-utc-offset={offset}".encode()
        page = await site.client.get("/", headers={b"cookie": cookie_header})
        assert page.status_code == 200 and "Mine" in page.text


async def test_only_the_local_user_can_choose_a_working_directory(tmp_path: Path) -> None:
    async with open_site(tmp_path, signed_in=False) as site:
        await site.sign_in(Principal(workspace="team"))
        await site.post("/new", project="/etc", text="/say hello")
        (session,) = (await site.hub.sessions.list(Principal(workspace="team"))).sessions
        assert session.cwd.startswith(str(tmp_path))


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "localhost.evil.example:8787"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
async def test_a_page_of_another_site_cannot_change_a_session(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL, title="Mine")
        data = {"csrf": site.csrf, "title": "Taken"}
        response = await site.client.post(f"/s/{session.id}/rename", data=data, headers=headers)
        assert response.status_code == 403
        assert (await site.hub.sessions.get(LOCAL, session.id)).title == "Mine"


@pytest.mark.parametrize("token", ["", "0" * 32])
async def test_a_form_without_its_csrf_token_is_refused(tmp_path: Path, token: str) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL, title="Mine")
        site.csrf = token
        response = await site.post(f"/s/{session.id}/rename", 403, title="Taken")
        assert "reload" in response.text
        assert (await site.hub.sessions.get(LOCAL, session.id)).title == "Mine"


@pytest.mark.parametrize(
    "next_url", ["//evil.example", "https://evil.example", "/\\evil.example", "/login?token=x", "x"]
)
async def test_signing_in_never_redirects_to_another_site(tmp_path: Path, next_url: str) -> None:
    async with open_site(tmp_path, signed_in=False) as site:
        token = await site.hub.logins.create_link(LOCAL)
        response = await site.client.get("/login", params={"token": token, "next": next_url})
        assert response.headers["location"] == "/"


async def test_every_response_has_the_security_headers(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        for path in ("/", "/login", "/nowhere", "/rows"):
            headers = (await site.client.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
        assert "<script" in await site.get("/")
        assert "onclick" not in await site.get("/") and "style=" not in await site.get("/")


@pytest.mark.parametrize("path", ["/static/x/..%2f..%2fapp.py", "/static/x/app.py", "/static/x/"])
async def test_only_static_files_are_served(tmp_path: Path, path: str) -> None:
    async with open_site(tmp_path, signed_in=False) as site:
        await site.get(f"{BASE}{path}", 404)


async def test_an_oversized_form_is_not_read_to_its_end(tmp_path: Path) -> None:
    sent_bytes = 0

    async def send_chunks() -> AsyncIterator[bytes]:
        nonlocal sent_bytes
        while sent_bytes < 2**22:
            sent_bytes += 4096
            yield b"x" * 4096

    async with open_site(tmp_path, signed_in=False) as site:
        response = await site.client.post("/login", content=send_chunks())
        assert response.status_code == 400 and "The form exceeds" in response.text
        assert sent_bytes <= request.MAX_FORM_BYTES + 4096


async def test_a_large_form_is_parsed_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, text = request._parse_form, "%" * 200_000
    threads = []

    def parse_in_thread(data: bytes) -> dict[str, list[str]]:
        threads.append(threading.current_thread())
        return parse(data)

    monkeypatch.setattr(request, "_parse_form", parse_in_thread)
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL)
        await site.post(f"/s/{session.id}/prompt", text=text)
        assert [thread is threading.main_thread() for thread in threads] == [False]
        async for event in site.hub.history.follow(LOCAL, session.id):
            if isinstance(event, Event) and isinstance(event.body, UserMessage):
                assert event.body.content == (Text(text=text),)
                break
        await site.post(f"/s/{session.id}/rename", 400, title=text)


async def test_malformed_paths_and_forms_are_client_errors(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL, title="Mine")
        await site.say(session, "/say hi")
        long_number = "9" * 5000
        for path in (
            f"blob/{long_number}/0",
            f"blob/1/{long_number}",
            f"whole/{'9' * 18}",
            "blob/x/0",
        ):
            await site.get(f"/s/{session.id}/{path}", 404)
        assert await site.get(f"/s/{session.id}/chunks?first={'9' * 18}") == ""
        await site.get(f"/s/{session.id}?at={long_number}", 400)
        await site.get(f"/live?as-of={long_number}", 400)
        headers = {"last-event-id": long_number}
        await site.get(f"/live?session={session.id}", 400, headers=headers)
        await site.get(f"/static/x/{'a' * 3000}.js", 404)
        response = await site.client.post(f"/s/{session.id}/rename", data={"csrf": "é"})
        assert response.status_code == 403
        for cwd in ("relative", str(tmp_path / "nowhere"), "/\0"):
            await site.post("/new", 400, text="hello", project=cwd)
        await site.post(f"/s/{session.id}/prompt", 400, picture="data:image/png;base64,")


async def test_fields_that_a_form_does_not_have_are_refused_by_name(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL, title="Kept")
        for endpoint in ROUTES:
            if endpoint.method == "POST":
                path = endpoint.path.replace("{id}", session.id)
                response = await site.post(path, 400, titel="x")
                assert "nknown field 'titel' in the form; use " in unescape(response.text), path
        parts = {"title": (None, "x")}  # as multipart/form-data, which no form of the pages is
        headers = {"x-csrf": site.csrf}
        path = f"/s/{session.id}/rename"
        response = await site.client.post(path, files=parts, headers=headers)
        assert (response.status_code, "title, csrf" in response.text) == (400, True)
        assert await site.hub.sessions.get(LOCAL, session.id) == session


async def test_share_pages_are_not_indexed(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL, title="Shared")
        secret = await site.hub.shares.share(LOCAL, session.id)
        site.client.cookies.clear()
        for path in (f"/shared/local/{session.id}/{secret}", "/shared/local/x/y", "/login"):
            answer = await site.client.get(path)
            assert "noindex" in answer.headers["x-robots-tag"]
            assert '<meta name="robots" content="noindex, nofollow">' in answer.text


async def test_live_streams_count_for_the_quota_of_their_workspace(tmp_path: Path) -> None:
    async with open_site(tmp_path, signed_in=False, quotas={"streams": 0}) as site:
        session = await site.hub.editor.create(LOCAL, title="Shared")
        secret = await site.hub.shares.share(LOCAL, session.id)
        shared = await site.client.get(f"/shared/local/{session.id}/{secret}/live")
        assert (shared.status_code, shared.headers["retry-after"]) == (429, "5")
        _, key = await site.hub.keys.create("local")
        await site.client.post("/login", data={"key": key})
        live = await site.client.get("/live")
        assert live.status_code == 429 and "of this workspace is used up" in live.text
