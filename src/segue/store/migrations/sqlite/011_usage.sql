-- Count what each workspace stores. A quota must be checked at every creation, and counting the rows
-- would read all of them.
-- compat: 11

-- `bytes` are the bytes of the session's events. `in_turn` is 1 while the session has a turn, also
-- one that waits for an answer.
ALTER TABLE sessions ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN in_turn INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET
  in_turn = status IN ('running', 'rescheduling'),
  bytes = (SELECT coalesce(sum(length(body)), 0) FROM events
           WHERE key BETWEEN sessions.pk << 24 AND sessions.pk << 24 | 16777215);
CREATE INDEX sessions_in_turn ON sessions (workspace) WHERE in_turn = 1;

ALTER TABLE inbox ADD COLUMN workspace TEXT NOT NULL DEFAULT '';
UPDATE inbox SET workspace = (SELECT workspace FROM sessions WHERE pk = inbox.session);
CREATE INDEX inbox_prompts ON inbox (workspace) WHERE kind = 'prompt';

-- `files` are the records of files, archives of skills and memories. `bytes` are those of events,
-- records and parts of files. `schedules` are the records of this kind. Triggers keep the counts in
-- the transaction that changes a row.
CREATE TABLE usage (
  workspace TEXT PRIMARY KEY,
  sessions INTEGER NOT NULL DEFAULT 0,
  files INTEGER NOT NULL DEFAULT 0,
  bytes INTEGER NOT NULL DEFAULT 0,
  schedules INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

INSERT INTO usage (workspace, sessions, files, bytes, schedules)
SELECT workspace, sum(session), sum(file), sum(bytes), sum(schedule) FROM (
  SELECT workspace, 1 AS session, 0 AS file, bytes, 0 AS schedule FROM sessions
  UNION ALL
  SELECT workspace, 0, newest AND (kind IN ('file', 'archive') OR kind LIKE 'memory:%'),
    length(row), newest AND kind = 'schedule' FROM records
  UNION ALL
  SELECT workspace, 0, 0, length(data), 0 FROM parts
) GROUP BY workspace;

CREATE TRIGGER usage_session_added AFTER INSERT ON sessions BEGIN
  INSERT INTO usage (workspace, sessions, bytes) VALUES (NEW.workspace, 1, NEW.bytes)
  ON CONFLICT (workspace) DO UPDATE SET sessions = sessions + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER usage_session_changed AFTER UPDATE OF bytes ON sessions
WHEN NEW.bytes <> OLD.bytes BEGIN
  UPDATE usage SET bytes = bytes + NEW.bytes - OLD.bytes WHERE workspace = NEW.workspace;
END;
CREATE TRIGGER usage_session_deleted AFTER DELETE ON sessions BEGIN
  UPDATE usage SET sessions = sessions - 1, bytes = bytes - OLD.bytes
  WHERE workspace = OLD.workspace;
END;

CREATE TRIGGER usage_record_added AFTER INSERT ON records BEGIN
  INSERT INTO usage (workspace, files, bytes, schedules) VALUES (
    NEW.workspace,
    NEW.newest AND (NEW.kind IN ('file', 'archive') OR NEW.kind LIKE 'memory:%'),
    length(NEW.row),
    NEW.newest AND NEW.kind = 'schedule'
  )
  ON CONFLICT (workspace) DO UPDATE SET
    files = files + excluded.files,
    bytes = bytes + excluded.bytes,
    schedules = schedules + excluded.schedules;
END;
CREATE TRIGGER usage_record_changed AFTER UPDATE OF newest, row ON records BEGIN
  UPDATE usage SET
    files = files + (NEW.newest - OLD.newest)
      * (NEW.kind IN ('file', 'archive') OR NEW.kind LIKE 'memory:%'),
    bytes = bytes + length(NEW.row) - length(OLD.row),
    schedules = schedules + (NEW.newest - OLD.newest) * (NEW.kind = 'schedule')
  WHERE workspace = NEW.workspace;
END;
CREATE TRIGGER usage_record_deleted AFTER DELETE ON records BEGIN
  UPDATE usage SET
    files = files
      - (OLD.newest AND (OLD.kind IN ('file', 'archive') OR OLD.kind LIKE 'memory:%')),
    bytes = bytes - length(OLD.row),
    schedules = schedules - (OLD.newest AND OLD.kind = 'schedule')
  WHERE workspace = OLD.workspace;
END;

CREATE TRIGGER usage_part_added AFTER INSERT ON parts BEGIN
  INSERT INTO usage (workspace, bytes) VALUES (NEW.workspace, length(NEW.data))
  ON CONFLICT (workspace) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER usage_part_changed AFTER UPDATE OF data ON parts BEGIN
  UPDATE usage SET bytes = bytes + length(NEW.data) - length(OLD.data)
  WHERE workspace = NEW.workspace;
END;
CREATE TRIGGER usage_part_deleted AFTER DELETE ON parts BEGIN
  UPDATE usage SET bytes = bytes - length(OLD.data) WHERE workspace = OLD.workspace;
END;
