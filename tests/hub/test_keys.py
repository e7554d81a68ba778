"""Create, check and revoke API keys."""

from collections.abc import Callable

import pytest

from segue.hub import Hub
from segue.model import clock
from segue.model.errors import NotFound, Unauthorized

MakeHub = Callable[..., Hub]


async def test_key_is_valid_for_its_workspace_until_it_expires(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_hub() as hub:
        now = clock.now()
        _, secret = await hub.keys.create("team", expires_at=now + clock.SECOND)
        assert (await hub.keys.authenticate(secret)).workspace == "team"
        monkeypatch.setattr(clock, "now", lambda: now + clock.SECOND)
        with pytest.raises(Unauthorized):
            await hub.keys.authenticate(secret)


async def test_key_is_valid_for_its_workspace_until_it_is_revoked(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        key, secret = await hub.keys.create("team", "ci")
        principal = await hub.keys.authenticate(secret)
        assert (principal.workspace, principal.local, principal.key_id) == ("team", False, key.id)
        assert secret.encode() not in repr(await hub.keys.list()).encode()
        with pytest.raises(NotFound):
            await hub.keys.revoke("local", key.id)
        await hub.keys.revoke("team", key.id)
        for invalid in (secret, secret[:-1], "", "\ud800"):
            with pytest.raises(Unauthorized):
                await hub.keys.authenticate(invalid)
        assert [key.revoked_at is None for key in await hub.keys.list("team")] == [False]
        assert await hub.keys.list("local") == ()
