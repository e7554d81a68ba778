-- The tables of a store that commit 778b382 made, as far as these tests need them.
CREATE SCHEMA segue;
CREATE TABLE segue.migrations (
  number integer PRIMARY KEY,
  name text NOT NULL,
  compat integer NOT NULL,
  at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO segue.migrations (number, name, compat) VALUES
  (1, 'core', 1), (2, 'parts', 1), (3, 'guard', 1), (4, 'told', 1), (5, 'bared', 5);
CREATE TABLE segue.sessions (
  pk bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workspace text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  shelf smallint NOT NULL,
  row bytea NOT NULL
);
INSERT INTO segue.sessions (workspace, id, shelf, row)
  VALUES ('local', '0198c2a4-77b1-7000-8000-000000000001', 0, '{}');
