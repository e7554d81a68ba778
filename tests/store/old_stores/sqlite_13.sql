-- The tables of a store that commit bd86d0b made, as far as these tests need them.
CREATE TABLE sessions (
  pk INTEGER PRIMARY KEY,
  workspace TEXT NOT NULL,
  id TEXT NOT NULL,
  state INTEGER NOT NULL,
  row TEXT NOT NULL
);
CREATE TABLE usage (
  workspace TEXT PRIMARY KEY,
  sessions INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE meta (
  name TEXT PRIMARY KEY,
  value NOT NULL
) WITHOUT ROWID;
INSERT INTO sessions VALUES (1, 'local', '0198c2a4-77b1-7000-8000-000000000001', 0, '{}');
INSERT INTO meta VALUES ('change', 1), ('compat', 13), ('cursor_key', randomblob(32));
PRAGMA user_version = 13;
