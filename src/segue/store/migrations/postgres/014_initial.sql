-- All tables of a PostgreSQL store. Numbers below 14 were formats of unreleased versions.
-- compat: 14

-- Ids and names compare byte by byte (COLLATE "C"), as in every other store. Columns that may hold
-- any string (a directory, a tag) are bytea, because text in PostgreSQL has no NULs. JSON is bytea
-- too: it is returned byte by byte as it was written, and jsonb refuses NULs and lone surrogates.
-- Times are microseconds since 1970, in UTC. The views show JSON as text and times as RFC 3339.

-- `row` is the whole session as JSON; the other columns exist to be indexed. `state` is 0 active,
-- 1 archived, 2 trashed, and leads every index, so that the usual list skips no hidden rows.
-- `inactive_since` is when a session was archived or trashed. `change` and `born` are the ids of
-- the transactions that last wrote the row and that created it. `acked_seq` is the last event that a
-- client has received: no worker streams the end of a turn twice. `bytes` are the bytes of the
-- session's events. `in_turn` is 1 while the session has a turn, also one that waits for an answer.
CREATE TABLE sessions (
  pk bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workspace text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  state smallint NOT NULL,
  status text COLLATE "C" NOT NULL,
  cwd bytea NOT NULL,
  agent text COLLATE "C",
  version bigint,
  deployment text COLLATE "C",
  tag bytea,
  source text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  active_at bigint NOT NULL,
  inactive_since bigint,
  change bigint NOT NULL,
  born bigint NOT NULL,
  row bytea NOT NULL,
  acked_seq bigint NOT NULL DEFAULT 0,
  bytes bigint NOT NULL DEFAULT 0,
  in_turn smallint NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX sessions_id ON sessions (workspace, id);
CREATE INDEX sessions_change ON sessions (change);
CREATE INDEX sessions_in_turn ON sessions (workspace) WHERE in_turn = 1;
CREATE INDEX sessions_inactive ON sessions (workspace, state, inactive_since, id) WHERE inactive_since IS NOT NULL;

-- The planner uses a partial index only if the statement repeats the index's condition. So each of
-- these indexes has a condition that is always true, and a list names the index it scans by
-- repeating it. Otherwise the planner would sometimes scan another index and discard most rows.
CREATE INDEX sessions_active ON sessions (workspace, state, active_at, id)
  WHERE status <> 'by time';
CREATE INDEX sessions_created ON sessions (workspace, state, created_at, id)
  WHERE status <> 'by time';
CREATE INDEX sessions_cwd_active ON sessions (workspace, state, cwd, active_at, id)
  WHERE status <> 'by cwd';
CREATE INDEX sessions_cwd_created ON sessions (workspace, state, cwd, created_at, id)
  WHERE status <> 'by cwd';
CREATE INDEX sessions_status_active ON sessions (workspace, state, status, active_at, id)
  WHERE status <> 'by status';
CREATE INDEX sessions_status_created ON sessions (workspace, state, status, created_at, id)
  WHERE status <> 'by status';
CREATE INDEX sessions_source_active ON sessions (workspace, state, source, active_at, id)
  WHERE status <> 'by source';
CREATE INDEX sessions_source_created ON sessions (workspace, state, source, created_at, id)
  WHERE status <> 'by source';
CREATE INDEX sessions_version_active ON sessions (workspace, state, agent, version, active_at, id)
  WHERE agent IS NOT NULL AND status <> 'by version';
CREATE INDEX sessions_version_created ON sessions (workspace, state, agent, version, created_at, id)
  WHERE agent IS NOT NULL AND status <> 'by version';
CREATE INDEX sessions_agent_active ON sessions (workspace, state, agent, active_at, id)
  WHERE agent IS NOT NULL AND status <> 'by agent';
CREATE INDEX sessions_agent_created ON sessions (workspace, state, agent, created_at, id)
  WHERE agent IS NOT NULL AND status <> 'by agent';
CREATE INDEX sessions_deployment_active ON sessions (workspace, state, deployment, active_at, id)
  WHERE deployment IS NOT NULL AND status <> 'by deployment';
CREATE INDEX sessions_deployment_created ON sessions (workspace, state, deployment, created_at, id)
  WHERE deployment IS NOT NULL AND status <> 'by deployment';
CREATE INDEX sessions_tag_active ON sessions (workspace, state, tag, active_at, id)
  WHERE tag IS NOT NULL AND status <> 'by tag';
CREATE INDEX sessions_tag_created ON sessions (workspace, state, tag, created_at, id)
  WHERE tag IS NOT NULL AND status <> 'by tag';

-- The memory stores of sessions. The columns that lists sort by are repeated, so that filtering by
-- memory store is also one index scan.
CREATE TABLE links (
  session bigint NOT NULL,
  store text COLLATE "C" NOT NULL,
  workspace text COLLATE "C" NOT NULL,
  state smallint NOT NULL,
  created_at bigint NOT NULL,
  active_at bigint NOT NULL,
  id text COLLATE "C" NOT NULL,
  PRIMARY KEY (session, store)
);
CREATE INDEX links_active ON links (workspace, state, store, active_at, id);
CREATE INDEX links_created ON links (workspace, state, store, created_at, id);

CREATE TABLE events (
  session bigint NOT NULL,
  seq integer NOT NULL,
  id text COLLATE "C" NOT NULL,
  at bigint NOT NULL,
  type text COLLATE "C" NOT NULL,
  version integer NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (session, seq),
  UNIQUE (session, id)
);

-- For people and other programs; segue itself does not read the views.
CREATE FUNCTION rfc3339(at bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT to_char(to_timestamp(at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
    || '.' || lpad((at % 1000000)::text, 6, '0') || 'Z'
$$;
CREATE VIEW sessions_readable AS SELECT
  workspace, id, status, rfc3339(created_at) AS created_at, rfc3339(active_at) AS active_at,
  convert_from(row, 'UTF8') AS row
FROM sessions;
CREATE VIEW events_readable AS SELECT
  s.workspace, s.id AS session_id, e.seq, e.id, rfc3339(e.at) AS at, e.type, e.version,
  convert_from(e.body, 'UTF8') AS body
FROM sessions s JOIN events e ON e.session = s.pk;

-- The full-text index. Python makes the tokens and their positions. A long text is several rows,
-- because a tsvector limits positions. New words go straight into the index (fastupdate = off),
-- because every search would read the whole list of pending words.
CREATE TABLE search (
  session bigint NOT NULL,
  seq integer NOT NULL,
  part integer NOT NULL,
  words tsvector NOT NULL,
  PRIMARY KEY (session, seq, part)
);
CREATE INDEX search_words ON search USING gin (words) WITH (fastupdate = off);

-- Return the planner's estimate of how many rows of `search` match, NULL without statistics. A search
-- for a common word runs differently from one for a rare word, and counting would cost too much.
CREATE FUNCTION estimate(query tsquery) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  plan json;
BEGIN
  IF (SELECT reltuples < 0 FROM pg_class WHERE oid = 'search'::regclass) THEN
    RETURN NULL;
  END IF;
  EXECUTE format('EXPLAIN (FORMAT JSON) SELECT 1 FROM search WHERE words @@ %L::tsquery', query)
    INTO plan;
  RETURN (plan -> 0 -> 'Plan' ->> 'Plan Rows')::bigint;
END
$$;

-- A released lease stays as a row without a holder, so that epochs only ever rise.
CREATE TABLE leases (
  session bigint PRIMARY KEY,
  holder text COLLATE "C" NOT NULL,
  epoch bigint NOT NULL,
  renewals bigint NOT NULL
);
CREATE INDEX leases_holder ON leases (holder) WHERE holder <> '';

CREATE TABLE inbox (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  session bigint NOT NULL,
  workspace text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  at bigint NOT NULL,
  body bytea NOT NULL,
  holder text COLLATE "C" NOT NULL
);
CREATE INDEX inbox_session ON inbox (session, number);
CREATE INDEX inbox_prompts ON inbox (workspace) WHERE kind = 'prompt';
CREATE INDEX inbox_holder ON inbox (holder) WHERE holder <> '';
CREATE INDEX inbox_waiting ON inbox (session) WHERE kind <> 'turn' OR holder <> '';

-- Pieces of messages that are still being written; deleted when the message is stored.
CREATE UNLOGGED TABLE deltas (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  session bigint NOT NULL,
  message text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  "offset" bigint NOT NULL,
  text bytea NOT NULL
);
CREATE INDEX deltas_session ON deltas (session, number);

CREATE TABLE keys (
  id text COLLATE "C" PRIMARY KEY,
  workspace text COLLATE "C" NOT NULL,
  digest bytea NOT NULL UNIQUE,
  row bytea NOT NULL
);

-- Every version is kept: sessions refer to one, and it must not change under them.
CREATE TABLE records (
  workspace text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  newest boolean NOT NULL,
  archived boolean NOT NULL,
  created_at bigint NOT NULL,
  row bytea NOT NULL,
  PRIMARY KEY (workspace, kind, id, version)
);
CREATE UNIQUE INDEX records_one_newest ON records (workspace, kind, id) WHERE newest;
CREATE INDEX records_newest ON records (workspace, kind, archived, created_at, id) WHERE newest;

-- The bytes of uploaded files, in parts, so that no statement holds a whole file. A file's name and
-- size are in its record, which is written last.
CREATE TABLE parts (
  workspace text COLLATE "C" NOT NULL,
  file text COLLATE "C" NOT NULL,
  number integer NOT NULL,
  at bigint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (workspace, file, number)
);
-- Most uploads are compressed already.
ALTER TABLE parts ALTER COLUMN data SET STORAGE EXTERNAL;
-- To find the parts of uploads that never finished.
CREATE INDEX parts_begun ON parts (at, workspace, file) WHERE number = 0;

-- What each workspace stores. A quota is checked at every creation, and counting the rows would read
-- all of them. `files` are the records of files, archives of skills and memories. `bytes` are those of
-- events, records and parts of files. `schedules` are the records of this kind. Triggers keep the
-- counts in the transaction that changes a row. A workspace has a row for each of 64 shards, and a
-- connection always changes the same one, so that transactions seldom wait for each other.
CREATE TABLE usage (
  workspace text COLLATE "C" NOT NULL,
  shard integer NOT NULL,
  sessions bigint NOT NULL,
  files bigint NOT NULL,
  bytes bigint NOT NULL,
  schedules bigint NOT NULL,
  PRIMARY KEY (workspace, shard)
) WITH (fillfactor = 50);

CREATE FUNCTION is_counted_file(kind text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT kind IN ('file', 'archive') OR kind LIKE 'memory:%'
$$;

CREATE FUNCTION add_usage(
  owner text, more_sessions bigint, more_files bigint, more_bytes bigint, more_schedules bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO segue.usage AS u (workspace, shard, sessions, files, bytes, schedules)
  VALUES (owner, pg_backend_pid() % 64, more_sessions, more_files, more_bytes, more_schedules)
  ON CONFLICT (workspace, shard) DO UPDATE SET
    sessions = u.sessions + more_sessions,
    files = u.files + more_files,
    bytes = u.bytes + more_bytes,
    schedules = u.schedules + more_schedules;
END
$$;

CREATE FUNCTION count_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    PERFORM segue.add_usage(NEW.workspace, 1, 0, NEW.bytes, 0);
  ELSIF TG_OP = 'DELETE' THEN
    PERFORM segue.add_usage(OLD.workspace, -1, 0, -OLD.bytes, 0);
  ELSIF NEW.bytes <> OLD.bytes THEN
    PERFORM segue.add_usage(NEW.workspace, 0, 0, NEW.bytes - OLD.bytes, 0);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER count_session AFTER INSERT OR DELETE OR UPDATE OF bytes ON sessions
  FOR EACH ROW EXECUTE FUNCTION count_session();

CREATE FUNCTION count_record() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  changed text := coalesce(NEW.kind, OLD.kind);
  more_records integer := coalesce(NEW.newest, false)::int - coalesce(OLD.newest, false)::int;
  more_bytes integer := coalesce(octet_length(NEW.row), 0) - coalesce(octet_length(OLD.row), 0);
  more_files integer := more_records * segue.is_counted_file(changed)::int;
  more_schedules integer := more_records * (changed = 'schedule')::int;
BEGIN
  IF more_files <> 0 OR more_bytes <> 0 OR more_schedules <> 0 THEN
    PERFORM segue.add_usage(
      coalesce(NEW.workspace, OLD.workspace), 0, more_files, more_bytes, more_schedules
    );
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER count_record AFTER INSERT OR DELETE OR UPDATE OF newest, row ON records
  FOR EACH ROW EXECUTE FUNCTION count_record();

CREATE FUNCTION count_part() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM segue.add_usage(
    coalesce(NEW.workspace, OLD.workspace),
    0,
    0,
    coalesce(octet_length(NEW.data), 0) - coalesce(octet_length(OLD.data), 0),
    0
  );
  RETURN NULL;
END
$$;
CREATE TRIGGER count_part AFTER INSERT OR DELETE OR UPDATE OF data ON parts
  FOR EACH ROW EXECUTE FUNCTION count_part();

-- How far a source's transcript has been imported into a session. The inode is text, because it may
-- exceed a signed 64-bit integer.
CREATE TABLE imports (
  session bigint PRIMARY KEY,
  workspace text COLLATE "C" NOT NULL,
  source text COLLATE "C" NOT NULL,
  path bytea NOT NULL,
  inode text NOT NULL,
  "offset" bigint NOT NULL,
  tail_hash text NOT NULL,
  extra bytea NOT NULL
);

-- Session fields that a source's own files cannot hold.
CREATE TABLE overlays (
  workspace text COLLATE "C" NOT NULL,
  source text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  patch bytea NOT NULL,
  PRIMARY KEY (workspace, source, id)
);

CREATE TABLE settings (
  workspace text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  value bytea NOT NULL,
  PRIMARY KEY (workspace, name)
);

-- Purged sessions, so that a process that was disconnected for a while notices.
CREATE TABLE purged (
  change bigint NOT NULL,
  at timestamptz NOT NULL DEFAULT now(),
  workspace text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL
);
CREATE INDEX purged_change ON purged (change);
CREATE INDEX purged_at ON purged (at);

-- `cursor_key`: the secret that signs cursors.
CREATE TABLE meta (
  name text COLLATE "C" PRIMARY KEY,
  value bytea NOT NULL
);
INSERT INTO meta VALUES
  ('cursor_key', uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- A process may run for days after others were upgraded. Every connection sets the newest format
-- that its program knows, and the database rejects its writes if a newer program requires more.
CREATE FUNCTION refuse_outdated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF coalesce(nullif(current_setting('segue.format', true), ''), '0')::integer
     < (SELECT max(compat) FROM segue.migrations) THEN
    RAISE EXCEPTION USING ERRCODE = 'SG001', MESSAGE = 'a newer segue has migrated this store';
  END IF;
  RETURN NULL;
END
$$;

CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON sessions
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON inbox
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON records
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON keys
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON overlays
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON settings
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON leases
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON parts
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON imports
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
