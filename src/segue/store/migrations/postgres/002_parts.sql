-- Files that clients upload: the bytes in parts, so that no statement holds a whole file. What a
-- file is called and how long it is stands in its record, which is written last.
-- compat: 1
CREATE TABLE parts (
  workspace text COLLATE "C" NOT NULL,
  file text COLLATE "C" NOT NULL,
  number integer NOT NULL,
  at bigint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (workspace, file, number)
);
-- They are as good as random to a compressor, more often than not.
ALTER TABLE parts ALTER COLUMN data SET STORAGE EXTERNAL;
-- For finding what an upload left behind that never ended.
CREATE INDEX parts_begun ON parts (at, workspace, file) WHERE number = 0;
