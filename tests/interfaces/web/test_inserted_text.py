"""The web shows text that a program inserted into a message apart from what a person typed."""

from pathlib import Path

import pytest
from playwright.async_api import expect

from segue.model import ids
from segue.model.content import Image, Text
from segue.model.event import AgentMessage, Created, InfoChanged, SystemMessage, UserMessage
from segue.model.principal import LOCAL
from segue.sources.claude.format.user_markup import find_inserted
from tests.claude.test_user_markup import CAVEAT, COMMAND, NOTIFICATION, message
from tests.interfaces.web import examples
from tests.interfaces.web.harness import BrowserHarness, accessibility_problems
from tests.interfaces.web.site import open_site

PRINTED = examples.text("<local-command-stdout>Set model to \x1b[1mopus</local-command-stdout>")
MESSAGES = (
    UserMessage(content=examples.text("Count the birds")),
    message(*examples.text(CAVEAT)),
    message(*examples.text(COMMAND)),
    SystemMessage(content=PRINTED, inserted=find_inserted(PRINTED)),
    message(
        Text(text="<system-reminder>Be brief.</system-reminder>"),
        Text(text="And now?\n\n<system-reminder>It is late.</system-reminder>"),
        Image(data=examples.picture()),
    ),
    AgentMessage(content=examples.text("Nine.")),
    message(*examples.text(NOTIFICATION)),
)


async def test_inserted_commands_and_notices_are_folded(harness: BrowserHarness) -> None:
    session = await harness.hub.store.create(
        "local", ids.new_id(), [Created(cwd="/w"), InfoChanged(title="Birds")]
    )
    await harness.hub.editor.append(LOCAL, session.id, *MESSAGES)
    page = await harness.window(f"/s/{session.id}")
    user_messages = page.locator("article.user")
    await expect(user_messages).to_have_count(2)
    await expect(user_messages.last.locator(".prose > p")).to_have_text("And now?")
    await expect(user_messages.last.locator("details.remark")).to_have_count(2)
    command = page.locator("details.item.command")
    await expect(command.locator(".peek")).to_have_text("/model opus")
    await expect(page.locator("details.item.output .peek")).to_have_text("Set model to opus")
    notice = page.locator("details.item.notice")
    await expect(notice.locator(".peek")).to_have_text('Agent "sub job" finished')
    await expect(notice.locator("pre")).to_be_hidden()
    await notice.locator("summary").click()
    await expect(notice.locator("pre")).to_contain_text("sub answer")  # unfolded
    await page.locator("details").evaluate_all("all => all.forEach(details => details.open = true)")
    await expect(page.locator("details.item.note")).to_contain_text("DO NOT respond")
    assert await accessibility_problems(page) == []
    await page.keyboard.press("s")
    turns = page.locator("#jump [data-jump]")
    await expect(turns).to_have_count(4)  # the output of a command does not start a turn
    await expect(turns.nth(1)).to_contain_text("/model opus")
    await page.get_by_role("searchbox", name="Find in this session").fill("opus")
    await expect(turns).to_have_count(
        2
    )  # the command and its output, despite the terminal code in it
    await expect(page.locator("#jump .kind")).to_contain_text(["Output", "Command"])


@pytest.mark.parametrize(
    "text_inside", ["<script>alert(1)</script>", "</details></article><b>", "\0\ud800"]
)
async def test_hostile_inserted_text_is_escaped(tmp_path: Path, text_inside: str) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL, title="Odd")
        for name in ("command-name", "task-notification", "local-command-stdout", "bash-input"):
            text = f"<{name}>{text_inside}</{name}>"
            mixed = f"{text}\nwords{text_inside}\n<system-reminder>{text_inside}</system-reminder>"
            for content in (examples.text(text), examples.text(mixed)):
                await site.hub.editor.append(LOCAL, session.id, message(*content))
        page = await site.get(f"/s/{session.id}")  # checks that it is valid
        assert "<script>alert" not in page and "<b>" not in page
        exported = await site.client.get(f"/s/{session.id}/export.md")
        assert exported.status_code == 200 and "**Command**" in exported.text
