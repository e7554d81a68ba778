-- The source of an imported session is the tool that it is from, so that a list of one source also
-- has the copies of its sessions. Older versions wrote 'segue'. They would write it again, so they
-- may no longer write.
-- compat: 14
UPDATE sessions SET source = json_extract(CAST(row AS TEXT), '$.origin')
WHERE source = 'segue'
  AND json_extract(CAST(row AS TEXT), '$.origin') NOT IN ('acp', 'cli', 'demo', 'python', 'rest', 'web');
