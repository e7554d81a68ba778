-- Count what each workspace stores. A quota must be checked at every creation, and counting the rows
-- would read all of them.
-- compat: 11

-- `bytes` are the bytes of the session's events. `in_turn` is 1 while the session has a turn, also
-- one that waits for an answer.
ALTER TABLE sessions ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN in_turn smallint NOT NULL DEFAULT 0;
UPDATE sessions s SET
  in_turn = (status IN ('running', 'rescheduling'))::int,
  bytes = (SELECT coalesce(sum(octet_length(body)), 0) FROM events e WHERE e.session = s.pk);
CREATE INDEX sessions_in_turn ON sessions (workspace) WHERE in_turn = 1;

ALTER TABLE inbox ADD COLUMN workspace text COLLATE "C" NOT NULL DEFAULT '';
UPDATE inbox i SET workspace = s.workspace FROM sessions s WHERE s.pk = i.session;
CREATE INDEX inbox_prompts ON inbox (workspace) WHERE kind = 'prompt';

-- `files` are the records of files, archives of skills and memories. `bytes` are those of events,
-- records and parts of files. `schedules` are the records of this kind. Triggers keep the counts in
-- the transaction that changes a row. A workspace has a row for each of 64 shards, and a connection
-- always changes the same one, so that transactions seldom wait for each other.
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

INSERT INTO usage (workspace, shard, sessions, files, bytes, schedules)
SELECT workspace, 0, sum(session), sum(file), sum(bytes), sum(schedule) FROM (
  SELECT workspace, 1 AS session, 0 AS file, bytes, 0 AS schedule FROM sessions
  UNION ALL
  SELECT workspace, 0, (newest AND segue.is_counted_file(kind))::int, octet_length(row),
    (newest AND kind = 'schedule')::int FROM records
  UNION ALL
  SELECT workspace, 0, 0, octet_length(data), 0 FROM parts
) counted GROUP BY workspace;

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
