"""SQL fragments that several parts of the PostgreSQL store use."""

from __future__ import annotations

PK = "SELECT pk FROM sessions WHERE workspace = $1 AND id = $2"

# Microseconds by the server's clock, which all machines share.
NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

# Of a lease `l`: held by $3 with epoch $4, and not expired.
HAS_LEASE = f"l.holder = $3 AND l.epoch = $4 AND l.expires_at > {NOW}"
