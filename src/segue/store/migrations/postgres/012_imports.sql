-- Create the checkpoints of imports again. Stores made before their seq was deleted still have its
-- column, which no program writes any more. Without a checkpoint, the next pull of a session compares
-- its whole transcript.
-- compat: 12

DROP TABLE imports;

-- How far a source's transcript has been imported into a session. The inode is text, because it may
-- exceed a signed 64-bit integer.
CREATE TABLE imports (
  session bigint PRIMARY KEY,
  workspace text COLLATE "C" NOT NULL,
  source text COLLATE "C" NOT NULL,
  path bytea NOT NULL,
  inode text NOT NULL,
  "offset" bigint NOT NULL,
  tail_hash text NOT NULL,
  extra bytea NOT NULL
);
