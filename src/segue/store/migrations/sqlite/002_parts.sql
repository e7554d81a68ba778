-- Files that clients upload: the bytes in parts, so that no statement holds a whole file. What a
-- file is called and how long it is stands in its record, which is written last.
-- compat: 1
CREATE TABLE parts (
  workspace TEXT NOT NULL,
  file TEXT NOT NULL,
  number INTEGER NOT NULL,
  at INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (workspace, file, number)
);
-- For finding what an upload left behind that never ended.
CREATE INDEX parts_begun ON parts (at, workspace, file) WHERE number = 0;
