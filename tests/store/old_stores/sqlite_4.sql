-- The tables of a store that commit 778b382 made, as far as these tests need them.
CREATE TABLE sessions (
  pk INTEGER PRIMARY KEY,
  workspace TEXT NOT NULL,
  id TEXT NOT NULL,
  shelf INTEGER NOT NULL,
  row BLOB NOT NULL,
  told INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE meta (
  name TEXT PRIMARY KEY,
  value NOT NULL
) WITHOUT ROWID;
INSERT INTO sessions VALUES (1, 'local', '0198c2a4-77b1-7000-8000-000000000001', 0, x'7b7d', 0);
INSERT INTO meta VALUES ('change', 1), ('compat', 4), ('cursor_key', randomblob(32)), ('bared', 0);
PRAGMA user_version = 4;
