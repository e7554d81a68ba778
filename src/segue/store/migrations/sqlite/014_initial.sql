-- All tables of a SQLite store. Numbers below 14 were formats of unreleased versions.
-- compat: 14

-- JSON is stored as TEXT, so that other programs can read it; as a BLOB in the one case in which it
-- is not valid UTF-8. Times are INTEGERs: microseconds since 1970, in UTC. The views show them as RFC
-- 3339. The search index is in a file of its own and can be deleted.
PRAGMA application_id = 0x73656775;  -- "segu"

-- `row` is the whole session as JSON; the other columns exist to be indexed. `state` is 0 active,
-- 1 archived, 2 trashed, and leads every index, so that the usual list skips no hidden rows.
-- `inactive_since` is when a session was archived or trashed. `change` and `born` are values of the
-- change counter: of the last write, and of the write that created the row. `acked_seq` is the last
-- event that a client has received: no worker streams the end of a turn twice. `in_turn` is 1 while
-- the session has a turn, also one that waits for an answer.
CREATE TABLE sessions (
  pk INTEGER PRIMARY KEY,
  workspace TEXT NOT NULL,
  id TEXT NOT NULL,
  state INTEGER NOT NULL,
  status TEXT NOT NULL,
  cwd BLOB NOT NULL,
  agent TEXT,
  version INTEGER,
  deployment TEXT,
  tag BLOB,
  source TEXT NOT NULL,
  created_at INTEGER NOT NULL, -- microseconds since 1970, UTC
  active_at INTEGER NOT NULL,
  inactive_since INTEGER,
  change INTEGER NOT NULL,
  born INTEGER NOT NULL,
  row TEXT NOT NULL,
  acked_seq INTEGER NOT NULL DEFAULT 0,
  in_turn INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX sessions_id ON sessions (workspace, id);
CREATE INDEX sessions_change ON sessions (change);
CREATE INDEX sessions_in_turn ON sessions (workspace) WHERE in_turn = 1;
CREATE INDEX sessions_inactive ON sessions (workspace, state, inactive_since) WHERE inactive_since IS NOT NULL;

CREATE INDEX sessions_active ON sessions (workspace, state, active_at, id);
CREATE INDEX sessions_created ON sessions (workspace, state, created_at, id);
CREATE INDEX sessions_cwd_active ON sessions (workspace, state, cwd, active_at, id);
CREATE INDEX sessions_cwd_created ON sessions (workspace, state, cwd, created_at, id);
CREATE INDEX sessions_status_active ON sessions (workspace, state, status, active_at, id);
CREATE INDEX sessions_status_created ON sessions (workspace, state, status, created_at, id);
CREATE INDEX sessions_source_active ON sessions (workspace, state, source, active_at, id);
CREATE INDEX sessions_source_created ON sessions (workspace, state, source, created_at, id);
CREATE INDEX sessions_agent_active ON sessions (workspace, state, agent, active_at, id) WHERE agent IS NOT NULL;
CREATE INDEX sessions_agent_created ON sessions (workspace, state, agent, created_at, id) WHERE agent IS NOT NULL;
CREATE INDEX sessions_version_active ON sessions (workspace, state, agent, version, active_at, id) WHERE agent IS NOT NULL;
CREATE INDEX sessions_version_created ON sessions (workspace, state, agent, version, created_at, id) WHERE agent IS NOT NULL;
CREATE INDEX sessions_deployment_active ON sessions (workspace, state, deployment, active_at, id) WHERE deployment IS NOT NULL;
CREATE INDEX sessions_deployment_created ON sessions (workspace, state, deployment, created_at, id) WHERE deployment IS NOT NULL;
CREATE INDEX sessions_tag_active ON sessions (workspace, state, tag, active_at, id) WHERE tag IS NOT NULL;
CREATE INDEX sessions_tag_created ON sessions (workspace, state, tag, created_at, id) WHERE tag IS NOT NULL;

-- The memory stores of sessions. The columns that lists sort by are repeated, so that filtering by
-- memory store is also one index scan.
CREATE TABLE links (
  session INTEGER NOT NULL,
  store TEXT NOT NULL,
  workspace TEXT NOT NULL,
  state INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  active_at INTEGER NOT NULL,
  id TEXT NOT NULL,
  PRIMARY KEY (session, store)
) WITHOUT ROWID;
CREATE INDEX links_active ON links (workspace, state, store, active_at, id);
CREATE INDEX links_created ON links (workspace, state, store, created_at, id);

-- `key` is session << 24 | seq: the events of one session are adjacent and in order.
CREATE TABLE events (
  key INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  at INTEGER NOT NULL, -- microseconds since 1970, UTC
  type TEXT NOT NULL,
  version INTEGER NOT NULL,
  body TEXT NOT NULL
);
-- By id first: ids rise with time, so events that are added at the same time are adjacent, even if
-- they belong to different sessions.
CREATE UNIQUE INDEX events_id ON events (id, key >> 24);

-- For people and other programs; segue itself does not read the views.
CREATE VIEW sessions_readable AS SELECT
  workspace, id, status,
  strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at,
  strftime('%Y-%m-%dT%H:%M:%S', active_at / 1000000, 'unixepoch') || printf('.%06dZ', active_at % 1000000) AS active_at,
  row
FROM sessions;
CREATE VIEW events_readable AS SELECT
  s.workspace, s.id AS session_id, e.key & 16777215 AS seq, e.id,
  strftime('%Y-%m-%dT%H:%M:%S', e.at / 1000000, 'unixepoch') || printf('.%06dZ', e.at % 1000000) AS at,
  e.type, e.version, e.body
FROM sessions s CROSS JOIN events e ON e.key BETWEEN s.pk << 24 AND s.pk << 24 | 16777215;

-- A released lease stays as a row without a holder, so that epochs only ever rise. `released` is the
-- value of the change counter at its last release, so that other processes notice.
CREATE TABLE leases (
  session INTEGER PRIMARY KEY,
  holder TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  renewals INTEGER NOT NULL,
  released INTEGER NOT NULL
);
CREATE INDEX leases_holder ON leases (holder) WHERE holder <> '';
CREATE INDEX leases_released ON leases (released);

CREATE TABLE inbox (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  session INTEGER NOT NULL,
  workspace TEXT NOT NULL,
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  at INTEGER NOT NULL,
  body BLOB NOT NULL,
  holder TEXT NOT NULL
);
CREATE INDEX inbox_session ON inbox (session, number);
CREATE INDEX inbox_prompts ON inbox (workspace) WHERE kind = 'prompt';
CREATE INDEX inbox_holder ON inbox (holder) WHERE holder <> '';
CREATE INDEX inbox_waiting ON inbox (session) WHERE kind <> 'turn' OR holder <> '';

-- Pieces of messages that are still being written; deleted when the message is stored.
CREATE TABLE deltas (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  session INTEGER NOT NULL,
  message TEXT NOT NULL,
  kind TEXT NOT NULL,
  "offset" INTEGER NOT NULL,
  text BLOB NOT NULL
);
CREATE INDEX deltas_session ON deltas (session, number);

CREATE TABLE keys (
  id TEXT PRIMARY KEY,
  workspace TEXT NOT NULL,
  digest BLOB NOT NULL UNIQUE,
  row TEXT NOT NULL
) WITHOUT ROWID;

-- Every version is kept: sessions refer to one, and it must not change under them.
CREATE TABLE records (
  workspace TEXT NOT NULL,
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  version INTEGER NOT NULL,
  newest INTEGER NOT NULL,
  archived INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  row TEXT NOT NULL,
  PRIMARY KEY (workspace, kind, id, version)
) WITHOUT ROWID;
CREATE INDEX records_newest ON records (workspace, kind, archived, created_at, id) WHERE newest = 1;

-- The bytes of uploaded files, in parts, so that no statement holds a whole file. A file's name and
-- size are in its record, which is written last.
CREATE TABLE parts (
  workspace TEXT NOT NULL,
  file TEXT NOT NULL,
  number INTEGER NOT NULL,
  at INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (workspace, file, number)
);
-- To find the parts of uploads that never finished.
CREATE INDEX parts_begun ON parts (at, workspace, file) WHERE number = 0;

-- What each workspace stores. A quota is checked at every creation, and counting the rows would read
-- all of them. `files` are the records of files, archives of skills and memories. `bytes` are those of
-- events, records and parts of files. `schedules` are the records of this kind. The writer adds to the
-- counts in the transaction that changes the rows.
CREATE TABLE usage (
  workspace TEXT PRIMARY KEY,
  sessions INTEGER NOT NULL,
  files INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  schedules INTEGER NOT NULL
) WITHOUT ROWID;

-- How far a source's transcript has been imported into a session. The inode is text, because it may
-- exceed a signed 64-bit integer.
CREATE TABLE imports (
  session INTEGER PRIMARY KEY,
  workspace TEXT NOT NULL,
  source TEXT NOT NULL,
  path BLOB NOT NULL,
  inode TEXT NOT NULL,
  "offset" INTEGER NOT NULL,
  tail_hash TEXT NOT NULL,
  extra BLOB NOT NULL
);

-- Session fields that a source's own files cannot hold.
CREATE TABLE overlays (
  workspace TEXT NOT NULL,
  source TEXT NOT NULL,
  id TEXT NOT NULL,
  patch TEXT NOT NULL,
  PRIMARY KEY (workspace, source, id)
) WITHOUT ROWID;

CREATE TABLE settings (
  workspace TEXT NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (workspace, name)
) WITHOUT ROWID;

-- Purged sessions, so that other processes notice.
CREATE TABLE purged (
  change INTEGER PRIMARY KEY,
  workspace TEXT NOT NULL,
  id TEXT NOT NULL
);

-- `change`: the store's change counter. `compat`: the oldest format that a program must know to
-- write here. `cursor_key`: the secret that signs cursors.
CREATE TABLE meta (
  name TEXT PRIMARY KEY,
  value NOT NULL
) WITHOUT ROWID;
INSERT INTO meta VALUES ('change', 0), ('compat', 14), ('cursor_key', randomblob(32));
