"""Ids of records as interfaces show them."""

from __future__ import annotations

from segue.model import ids
from segue.model.errors import InvalidInput
from segue.model.record import Record

# The prefix of each kind's ids. A kind can be followed by `:` and the id of the record's parent.
PREFIXES = {
    "agent": "agent",
    "environment": "env",
    "memory_store": "memstore",
    "vault": "vlt",
    "deployment": "depl",
    "deployment_run": "drun",
    "file": "file",
    "credential": "vcrd",
    "memory": "mem",
    "memory_version": "memver",
    "skill": "skill",
    "skill_version": "skver",
    "work": "work",
    "webhook": "whk",
}


def base_kind(kind: str) -> str:
    """Return a kind without the id of the parent."""
    return kind.partition(":")[0]


def parent_id(record: Record) -> str:
    """Return the id of the record that a record belongs to, or an empty string."""
    return record.kind.partition(":")[2]


def format_record_id(record: Record) -> str:
    """Return a record's id with the prefix of its kind."""
    return ids.format_id(PREFIXES[base_kind(record.kind)], record.id)


def parse_record_id(name: str, kind: str) -> str | None:
    """Return the id that a name of a record of this kind has, or None if it is not valid."""
    return ids.parse(name, PREFIXES[base_kind(kind)])


def check_active(record: Record, field: str) -> Record:
    """Return a record, or raise InvalidInput for `field` if it is archived."""
    if record.archived_at is not None:
        raise InvalidInput(
            f"{field}: {record.kind} {format_record_id(record)} is archived", archived=record.kind
        )
    return record
