-- The tables of a store that commit bd86d0b made, as far as these tests need them.
CREATE SCHEMA segue;
CREATE TABLE segue.migrations (
  number integer PRIMARY KEY,
  name text NOT NULL,
  compat integer NOT NULL,
  at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO segue.migrations (number, name, compat) VALUES
  (13, 'initial', 13);
CREATE TABLE segue.sessions (
  pk bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workspace text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  state smallint NOT NULL,
  row bytea NOT NULL,
  bytes bigint NOT NULL DEFAULT 0
);
INSERT INTO segue.sessions (workspace, id, state, row)
  VALUES ('local', '0198c2a4-77b1-7000-8000-000000000001', 0, '{}');
