-- A search for a word of medium frequency scans sessions in order and skips most of them. With their
-- number in the index, it reads no rows of those.

DROP INDEX sessions_active;
CREATE INDEX sessions_active ON sessions (workspace, state, active_at, id) INCLUDE (pk)
  WHERE status <> 'by time';
DROP INDEX sessions_created;
CREATE INDEX sessions_created ON sessions (workspace, state, created_at, id) INCLUDE (pk)
  WHERE status <> 'by time';
