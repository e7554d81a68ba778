-- The tables of a store that commit b72ed9a made, as far as these tests need them.
CREATE TABLE sessions (
  pk INTEGER PRIMARY KEY,
  workspace TEXT NOT NULL,
  id TEXT NOT NULL,
  state INTEGER NOT NULL,
  row BLOB NOT NULL,
  bytes INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE usage (
  workspace TEXT PRIMARY KEY,
  sessions INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TRIGGER usage_session_added AFTER INSERT ON sessions BEGIN
  INSERT INTO usage (workspace, sessions) VALUES (NEW.workspace, 1)
  ON CONFLICT (workspace) DO UPDATE SET sessions = sessions + 1;
END;
CREATE TABLE meta (
  name TEXT PRIMARY KEY,
  value NOT NULL
) WITHOUT ROWID;
INSERT INTO sessions VALUES (1, 'local', '0198c2a4-77b1-7000-8000-000000000001', 0, x'7b7d', 0);
INSERT INTO meta VALUES ('change', 1), ('compat', 12), ('cursor_key', randomblob(32));
PRAGMA user_version = 12;
