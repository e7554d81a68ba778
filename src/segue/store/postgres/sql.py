"""SQL fragments that several parts of the PostgreSQL store use."""

from __future__ import annotations

PK = "SELECT pk FROM sessions WHERE workspace = $1 AND id = $2"

# Of a lease `l`: held by $3 with epoch $4.
HAS_LEASE = "l.holder = $3 AND l.epoch = $4"
