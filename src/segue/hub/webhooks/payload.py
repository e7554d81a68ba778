"""The body of a delivery. It names what changed and has no text of users, so none can leak."""

from __future__ import annotations

from segue.hub.resources.record_ids import PREFIXES
from segue.model import clock, codec, ids
from segue.model.webhooks.delivery import Delivery
from segue.model.webhooks.notices import kind_of_type

# Clients require the field, and segue has no organizations.
ORGANIZATION = "segue"
_FIELD_PREFIXES = {"vault_id": PREFIXES["vault"], "session_thread_id": "sthr"}


def event_id(delivery: Delivery) -> str:
    """Return the id of a delivery's event. It is the same for all webhooks and attempts."""
    return ids.format_id("event", delivery.event)


def encode_payload(delivery: Delivery) -> bytes:
    """Return the JSON that is sent."""
    prefix = {"id": "sesn" if _is_session(delivery) else PREFIXES[kind_of_type(delivery.type)]}
    data = {
        "type": delivery.type,
        "organization_id": ORGANIZATION,
        "workspace_id": delivery.workspace,
        **{
            field: ids.format_id((prefix | _FIELD_PREFIXES)[field], id)
            for field, id in delivery.object_ids.items()
        },
    }
    event = {
        "type": "event",
        "id": event_id(delivery),
        "created_at": clock.to_rfc3339(delivery.at),
        "data": data,
    }
    return codec.encode(event)


def _is_session(delivery: Delivery) -> bool:
    return kind_of_type(delivery.type) == "session"
