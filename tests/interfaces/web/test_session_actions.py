"""The actions of a session's page: rename, tag, archive, delete, fork, export, share."""

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from segue.hub import Hub
from segue.interfaces.web import live
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore
from tests.interfaces.web import examples
from tests.interfaces.web.harness import BrowserHarness, accessibility_problems


async def click_action(page: Page, name: str) -> None:
    """Click an action in the session's menu."""
    await page.locator("#actions > summary").click()
    await page.locator("#actions").get_by_role("button", name=name, exact=True).click()


async def test_a_session_can_be_renamed_and_tagged(harness: BrowserHarness) -> None:
    session = await harness.session("Old name", "/say hi")
    page = await harness.window(f"/s/{session.id}")
    await page.locator("#actions > summary").click()
    await page.get_by_label("Name").fill("New name")
    await page.get_by_role("button", name="Rename").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("New name")
    await page.locator("#actions > summary").click()
    await page.locator("#a-tag").fill("done")
    await page.get_by_role("button", name="Set").click()
    await expect(page.locator("#head .badge.tag")).to_have_text("done")
    stored = await harness.hub.sessions.get(LOCAL, session.id)
    assert (stored.title, stored.tag) == ("New name", "done")


async def test_a_session_can_be_archived_and_unarchived(harness: BrowserHarness) -> None:
    session = await harness.session("Finished")
    page = await harness.window(f"/s/{session.id}")
    await click_action(page, "Archive")
    await expect(page.locator("#notices")).to_contain_text("Archived")
    assert (await harness.hub.sessions.get(LOCAL, session.id)).state == "archived"
    await page.locator("#notices").get_by_role("button", name="Unarchive").click()
    await expect(page.locator("#notices")).to_be_empty()
    assert (await harness.hub.sessions.get(LOCAL, session.id)).state == "active"


async def test_deleting_a_session_can_be_undone(harness: BrowserHarness) -> None:
    session = await harness.session("Oops", "/say precious")
    page = await harness.window(f"/s/{session.id}")
    await click_action(page, "Delete")
    await expect(page.locator("#toast")).to_contain_text("Moved to the trash")
    assert (await harness.hub.sessions.get(LOCAL, session.id)).state == "trashed"
    await expect(page.locator(".row")).to_have_count(0)
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".item.agent")).to_contain_text("precious")
    await expect(page.locator("#text")).to_be_visible()
    assert (await harness.hub.sessions.get(LOCAL, session.id)).state == "active"


async def test_a_session_can_be_forked_at_a_message(harness: BrowserHarness) -> None:
    session = await harness.session("Crossroads", "/say left", "/say right")
    page = await harness.window(f"/s/{session.id}")
    first = page.locator(".item.agent", has_text="left")
    await first.hover()
    await first.get_by_role("button", name="Fork here").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Crossroads (fork)")
    await expect(page.locator(".item.agent")).to_have_count(1)
    assert session.id not in page.url
    assert len((await harness.hub.sessions.list(LOCAL)).sessions) == 2
    badges = page.locator(".row .badge", has_text="fork")
    await expect(badges).to_have_count(1)
    await expect(badges).to_have_attribute("title", "fork of Crossroads")
    sessions = (await harness.hub.sessions.list(LOCAL)).sessions
    [fork] = [other for other in sessions if other.fork]
    await harness.hub.editor.set_title(LOCAL, fork.id, "Another title")
    await expect(badges).to_have_attribute("title", f"fork of {session.id}")


@pytest.mark.full
async def test_a_session_can_be_exported_in_every_format(
    harness: BrowserHarness, tmp_path: Path
) -> None:
    session = await examples.create_full_session(harness.hub)
    page = await harness.window(f"/s/{session.id}")
    await page.locator("#actions > summary").click()
    files = {}
    for name in ("Markdown", "HTML", "JSONL"):
        async with page.expect_download() as download:
            await page.get_by_role("link", name=name, exact=True).click()
        download_result = await download.value
        files[name] = tmp_path / download_result.suggested_filename
        await download_result.save_as(files[name])
    assert files["Markdown"].name == "Retry-the-upload-when-the-connection-drops.md"
    assert "retries three times" in files["Markdown"].read_text()
    assert "```diff" in files["Markdown"].read_text()
    lines = files["JSONL"].read_bytes().splitlines()
    assert (
        json.loads(lines[0])["session"]["id"] == session.id and len(lines) == session.last_seq + 1
    )
    file_page = await harness.anonymous_page()
    await file_page.set_content(files["HTML"].read_text())
    await expect(file_page.locator(".item.agent").first).to_contain_text("retries three times")
    await expect(file_page.locator(".user img")).to_have_js_property("naturalWidth", 240)
    assert await accessibility_problems(file_page) == []


async def test_a_share_link_shows_one_session_until_it_is_revoked(harness: BrowserHarness) -> None:
    session = await examples.create_full_session(harness.hub)
    other = await harness.session("Private")
    page = await harness.window(f"/s/{session.id}")
    await page.locator("#actions > summary").click()
    await page.get_by_role("link", name="Share…").click()
    await page.get_by_role("button", name="Create link").click()
    link = await page.locator("#link").input_value()
    reader = await harness.anonymous_page()
    await reader.goto(link)
    await expect(reader.locator("#e12")).to_contain_text("retries three times")
    await expect(reader.locator("#composer, #sidebar, #actions, form")).to_have_count(0)
    await reader.locator(".user img").scroll_into_view_if_needed()
    await expect(reader.locator(".user img")).to_have_js_property("naturalWidth", 240)
    assert await accessibility_problems(reader) == []
    harness.expect_problem("401")
    harness.expect_problem("404")
    for path in ("/", f"/s/{session.id}"):
        response = await reader.goto(harness.url + path)
        assert response is not None and response.status == 401
    response = await reader.goto(link.replace(session.id, other.id))
    assert response is not None and response.status == 404
    await page.get_by_role("button", name="Revoke the link").click()
    await expect(page.get_by_role("button", name="Create link")).to_be_visible()
    response = await reader.goto(link)
    assert response is not None and response.status == 404


@pytest.mark.full
async def test_shared_page_updates_until_the_link_is_revoked(
    harness: BrowserHarness,
) -> None:
    session = await harness.session("Open to all", "/say first")
    secret = await harness.hub.shares.share(LOCAL, session.id)
    page = await harness.anonymous_page()
    await page.goto(f"{harness.url}/shared/local/{session.id}/{secret}")
    await expect(page.locator(".item.agent")).to_have_text(re.compile("first"))
    await expect(page.locator("#head .meta")).to_contain_text("2 messages")
    before = await page.locator("#head time").get_attribute("datetime")
    await harness.hub.turns.run(LOCAL, session.id, "/tool grep found\n/say second")
    await expect(page.locator(".item.agent").last).to_contain_text("second")
    await expect(page.locator("form, [form], [data-copy]")).to_have_count(
        0
    )  # readers can change nothing
    await expect(page.locator("#head .meta")).to_contain_text("4 messages")
    assert await page.locator("#head time").get_attribute("datetime") != before
    await expect(page.locator("#head time")).not_to_contain_text("UTC")
    await harness.hub.editor.set_title(LOCAL, session.id, "Open to many")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Open to many")
    store = SQLiteStore.open(harness.directory / "segue.db")
    async with Hub(store, harness.directory) as other_hub:  # like another process
        await other_hub.shares.revoke(LOCAL, session.id)
    await expect(page.get_by_role("alert")).to_contain_text(
        "This link was revoked", timeout=live.LOGIN_CHECK_SECONDS * 500
    )
    await harness.hub.turns.run(LOCAL, session.id, "/say unheard")
    await page.wait_for_timeout(300)
    await expect(page.locator(".item", has_text="unheard")).to_have_count(0)
    await expect(page.locator(".item.agent").last).to_contain_text("second")
    assert await accessibility_problems(page) == []
    harness.expect_problem("404")
    await page.keyboard.press("s")
    await expect(page.locator("#toast")).to_contain_text("is not valid")


@pytest.mark.full
async def test_a_shared_page_says_that_its_session_was_deleted(
    harness: BrowserHarness,
) -> None:
    session = await harness.session("Not for long", "/say first")
    secret = await harness.hub.shares.share(LOCAL, session.id)
    page = await harness.anonymous_page()
    await page.goto(f"{harness.url}/shared/local/{session.id}/{secret}")
    await harness.hub.turns.run(LOCAL, session.id, "/say second")
    await expect(page.locator(".item.agent")).to_have_count(2)
    await harness.hub.editor.trash(LOCAL, session.id)
    await expect(page.get_by_role("alert")).to_contain_text("or its session was deleted")


@pytest.mark.full
async def test_help_and_sign_out_buttons_work(harness: BrowserHarness) -> None:
    page = await harness.window()
    await page.get_by_role("button", name="Help").click()
    await expect(page.get_by_role("dialog")).to_contain_text("previous session")
    assert await accessibility_problems(page) == []
    await page.get_by_role("button", name="Sign out").click()
    await expect(page).to_have_url(f"{harness.url}/login")
    harness.expect_problem("401")
    response = await page.goto(harness.url)
    assert response is not None and response.status == 401


@pytest.mark.full
async def test_resume_command_and_message_link_are_copied(
    harness: BrowserHarness,
) -> None:
    session = await harness.session("Elsewhere", "/say hi")
    page = await harness.window(f"/s/{session.id}")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.locator("#actions > summary").click()
    await page.get_by_role("button", name="Copy", exact=True).click()
    await expect(page.locator("#toast")).to_contain_text("Copied")
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied == f"segue resume --data-dir {harness.directory} {session.id}"
    await page.keyboard.press("Escape")
    message = page.locator(".item.agent")
    await message.hover()
    await message.get_by_role("button", name="Copy link").click()
    await expect(page.locator("#toast")).to_contain_text("Copied")
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert re.fullmatch(rf"{harness.url}/s/{session.id}\?at=(\d+)#e\1", copied)
    await page.goto(copied)
    await expect(page.locator(".item.agent")).to_be_in_viewport()


@pytest.mark.full
async def test_the_action_menu_updates_after_changes_by_other_interfaces(
    harness: BrowserHarness,
) -> None:
    session = await harness.session("Finished")
    page = await harness.window(f"/s/{session.id}")
    await page.locator("#actions > summary").click()
    menu = page.locator("#actions")
    await expect(menu.get_by_role("button", name="Archive", exact=True)).to_be_visible()
    await harness.hub.editor.archive(LOCAL, session.id)
    await expect(menu.get_by_role("button", name="Unarchive")).to_be_visible()
    await harness.hub.editor.set_tag(LOCAL, session.id, "done")
    await expect(page.locator("#a-tag")).to_have_value("done")
    await harness.hub.editor.trash(LOCAL, session.id)
    await expect(menu.get_by_role("button", name="Restore")).to_be_visible()
    await expect(menu.get_by_role("button", name="Delete")).to_have_count(0)
