"""Create, change and test webhooks, and read the log of their deliveries."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from segue.agents.egress.addresses import is_public
from segue.encryption import SecretBox
from segue.hub.resources.record_ids import format_record_id
from segue.hub.resources.records import Records, new
from segue.model import clock, ids
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.record import Record, RecordBody
from segue.model.webhooks.delivery import Delivery
from segue.model.webhooks.notices import TYPES
from segue.store.base import WEBHOOK_KIND, Store

from . import signing

KIND = WEBHOOK_KIND
MAX_WEBHOOKS = 50  # of a workspace
MAX_URL_CHARACTERS = 2_048
DEFAULT_OVERLAP_SECONDS = 24 * 3600
MAX_OVERLAP_SECONDS = 30 * 24 * 3600
# Types of the official clients that no change in segue causes, with the reason.
ABSENT_TYPES = {
    "session.pending": "a session can run as soon as it exists",
    "agent.deleted": "agents are archived, not deleted",
    "deployment.deleted": "deployments are archived, not deleted",
    "user_profile.enforcement_action_opened": "segue has no user profiles",
    "user_profile.enforcement_action_resolved": "segue has no user profiles",
    "user_profile.program_status_updated": "segue has no user profiles",
    "external_key.failed": "segue has no external keys",
    "external_key.recovered": "segue has no external keys",
}


class WebhookBody(RecordBody, frozen=True, kw_only=True):
    """The body of a webhook's record; secrets are encrypted.

    Until `previous_until`, requests are signed with the previous secret as well.
    """

    url: str
    event_types: tuple[str, ...]
    secret: str
    description: str | None = None
    enabled: bool = True
    disabled_reason: str | None = None
    previous_secret: str | None = None
    previous_until: int | None = None


class NewSecret(NamedTuple):
    """A webhook with its new secret, which is shown once."""

    record: Record
    secret: str


class Webhooks:
    """The webhooks of workspaces. `attempt` sends a delivery at once and stores the outcome."""

    def __init__(
        self,
        store: Store,
        records: Records,
        secrets: SecretBox,
        attempt: Callable[[Delivery], Any],
        *,
        private: bool,
    ) -> None:
        self._store = store
        self._records = records
        self._secrets = secrets
        self._attempt = attempt
        self._private = private

    async def create(
        self, workspace: str, url: str, event_types: Sequence[str], description: str | None
    ) -> NewSecret:
        """Create a webhook. Raises InvalidInput for a URL or type that cannot be delivered."""
        body = WebhookBody(
            url=self._check_url(url),
            event_types=check_types(event_types),
            description=description,
            secret="",
        )
        if len(await self._records.list(workspace, KIND, limit=MAX_WEBHOOKS)) == MAX_WEBHOOKS:
            raise InvalidInput(f"a workspace has at most {MAX_WEBHOOKS} webhooks; delete one first")
        record, secret = new(workspace, KIND, {}), signing.new_secret()
        body = replace(body, secret=self._seal(record, secret))
        record = replace(record, body=body.encode())
        await self._records.put(record)
        return NewSecret(record, secret)

    async def update(self, record: Record, changes: Mapping[str, Any]) -> Record:
        """Change the URL, types, description or state of a webhook."""
        changes = dict(changes)
        if "url" in changes:
            self._check_url(changes["url"])
        if "event_types" in changes:
            changes["event_types"] = check_types(changes["event_types"])
        if changes.get("enabled"):
            changes["disabled_reason"] = None
        return await self._edit(record, changes)

    async def disable(self, record: Record, reason: str) -> None:
        """Stop deliveries to a webhook that does not work."""
        await self._edit(record, {"enabled": False, "disabled_reason": reason})

    async def delete(self, record: Record) -> None:
        """Delete a webhook with its queue and its log."""
        await self._records.delete(record)

    async def rotate_secret(self, record: Record, overlap_seconds: int) -> NewSecret:
        """Replace the secret of a webhook. The previous one is used as well for some seconds."""
        secret = signing.new_secret()

        def edit(current: Record) -> dict[str, Any]:
            body = WebhookBody.of(current)
            until = clock.now() + overlap_seconds * clock.SECOND if overlap_seconds else None
            return replace(
                body,
                secret=self._seal(record, secret),
                previous_secret=body.secret if until else None,
                previous_until=until,
            ).encode()

        return NewSecret(await self._records.change(record, edit, drop_earlier=True), secret)

    def signing_secrets(self, record: Record) -> list[str]:
        """Return the secrets to sign with, the newest first."""
        body = WebhookBody.of(record)
        secrets = [self._open(record, body.secret)]
        if body.previous_secret is not None and (body.previous_until or 0) > clock.now():
            secrets.append(self._open(record, body.previous_secret))
        return secrets

    async def test(self, record: Record, type: str | None) -> Delivery:
        """Send a notice of a made-up change at once, and return its delivery."""
        body = WebhookBody.of(record)
        type = body.event_types[0] if type is None else check_types([type])[0]
        object_ids = {"id": ids.new_id()}
        if type.startswith("vault_credential."):
            object_ids["vault_id"] = ids.new_id()
        if type.startswith("session.thread_"):
            object_ids["session_thread_id"] = ids.new_id()
        delivery = Delivery(
            event=ids.new_id(), type=type, at=clock.now(), object_ids=object_ids, test=True
        )
        return await self._send_now(record, delivery)

    async def resend(self, record: Record, number: int) -> Delivery:
        """Send the event of an earlier delivery again at once, as a new delivery."""
        earlier = await self.delivery(record, number)
        return await self._send_now(record, replace(earlier, attempts=(), status="pending"))

    async def delivery(self, record: Record, number: int) -> Delivery:
        """Return a delivery of a webhook. Raises NotFound."""
        rows = await self._store.deliveries(record.workspace, record.id, before=number + 1, limit=1)
        if not rows or rows[0].number != number:
            raise NotFound(f"webhook {format_record_id(record)} has no delivery {number}")
        return rows[0]

    async def deliveries(self, record: Record, *, before: int | None, limit: int) -> list[Delivery]:
        """Return deliveries of a webhook, newest first."""
        return await self._store.deliveries(record.workspace, record.id, before=before, limit=limit)

    async def _send_now(self, record: Record, delivery: Delivery) -> Delivery:
        if not WebhookBody.of(record).enabled:
            raise Conflict(f"webhook {format_record_id(record)} is disabled; enable it first")
        delivery = replace(delivery, workspace=record.workspace, webhook=record.id)
        sent: Delivery = await self._attempt(delivery)
        return sent

    async def _edit(self, record: Record, changes: Mapping[str, Any]) -> Record:
        def edit(current: Record) -> dict[str, Any]:
            return replace(WebhookBody.of(current), **changes).encode()

        return await self._records.change(record, edit, drop_earlier=True)

    def _seal(self, record: Record, secret: str) -> str:
        return self._secrets.seal(secret, record.workspace, KIND, record.id)

    def _open(self, record: Record, sealed: str) -> str:
        return self._secrets.open(sealed, record.workspace, KIND, record.id)

    def _check_url(self, url: str) -> str:
        """Return a URL. Raises InvalidInput unless requests can be sent to it."""
        try:
            parts = urlsplit(url)
            port_is_valid = parts.port != 0
        except ValueError:
            raise InvalidInput("url: is not valid; use https://HOST/PATH") from None
        if not (url.isascii() and url.isprintable() and " " not in url):
            raise InvalidInput("url: must have printable ASCII characters only; encode the others")
        if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid:
            raise InvalidInput("url: is not valid; use https://HOST/PATH")
        if "@" in parts.netloc:
            raise InvalidInput("url: must not contain a user or password")
        if "#" in url:
            raise InvalidInput("url: must not contain a fragment")
        if not self._private and _is_private_literal(parts.hostname):
            raise InvalidInput(
                f"url: {parts.hostname} is not on the public internet, and this server delivers to"
                " public addresses only"
            )
        return url


def check_types(event_types: Sequence[str]) -> tuple[str, ...]:
    """Return event types, each once; `*` is all. Raises InvalidInput for one that never occurs."""
    if not event_types:
        raise InvalidInput("event_types: name at least one type, or * for all")
    if "*" in event_types:
        return TYPES
    for type in event_types:
        if type in ABSENT_TYPES:
            raise InvalidInput(f"event_types: {type} never occurs: {ABSENT_TYPES[type]}")
        if type not in TYPES:
            raise InvalidInput(f"event_types: {type[:100]!r} is not one of {', '.join(TYPES)}")
    return tuple(dict.fromkeys(event_types))


def _is_private_literal(host: str) -> bool:
    """Return whether a host is a private address; names are checked when they are resolved."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return not is_public(host)
