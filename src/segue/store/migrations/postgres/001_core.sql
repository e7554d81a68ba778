-- The core: sessions with their events, what turns need, and what stands beside them.
-- compat: 1

-- Ids and names compare byte by byte (COLLATE "C"), as they do in every other store. What may hold
-- any string at all (a directory, a tag, a body) is bytea: text in PostgreSQL has no NULs.

-- `row` is the whole session as JSON; the other columns exist to be indexed. `state` is 0 active,
-- 1 archived, 2 trashed, and leads every index so that the usual list never walks past hidden rows.
-- `change` and `born` are the ids of the transactions that last wrote the row and that made it.
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
  row bytea NOT NULL
);
CREATE UNIQUE INDEX sessions_id ON sessions (workspace, id);
CREATE INDEX sessions_change ON sessions (change);
CREATE INDEX sessions_inactive ON sessions (workspace, state, inactive_since, id) WHERE inactive_since IS NOT NULL;

-- The planner takes an index with a condition only where the statement repeats the condition. So
-- each of these has one that always holds, for a list to name the index that it walks: left to
-- its guesses, the planner would now and then walk another and throw most rows away.
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

-- A session may have several memory stores; the order columns are repeated so that this filter,
-- too, is one walk along an index.
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

-- Tokens come from Python, with their positions. A long text is several rows: a tsvector counts
-- only so far. New words go straight into the index, since a list of words that are still to be
-- sorted in would be read through by every search.
CREATE TABLE search (
  session bigint NOT NULL,
  seq integer NOT NULL,
  part integer NOT NULL,
  words tsvector NOT NULL,
  PRIMARY KEY (session, seq, part)
);
CREATE INDEX search_words ON search USING gin (words) WITH (fastupdate = off);

-- About how many rows of `search` match, as the planner guesses; NULL while it has no statistics. A
-- search for a common word goes another way than one for a rare word, and counting costs too much.
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
  expires_at bigint NOT NULL
);
CREATE INDEX leases_holder ON leases (holder) WHERE holder <> '';
CREATE INDEX leases_expires ON leases (expires_at) WHERE holder <> '';

CREATE TABLE inbox (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  session bigint NOT NULL,
  kind text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  at bigint NOT NULL,
  body bytea NOT NULL
);
CREATE INDEX inbox_session ON inbox (session, number);

-- Ephemeral: pieces of messages that are still being written, gone when the message is stored.
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

-- What a source's own files cannot hold about its sessions.
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

-- Sessions removed for good, so that a process that was cut off for a while hears of it.
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
