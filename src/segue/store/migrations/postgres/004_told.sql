-- How far into a session's history somebody has been told, so that no worker tells the end of a turn
-- a second time as if it were news.
-- compat: 1
ALTER TABLE sessions ADD COLUMN acked_seq bigint NOT NULL DEFAULT 0;
