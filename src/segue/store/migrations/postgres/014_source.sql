-- The source of an imported session is the tool that it is from, so that a list of one source also
-- has the copies of its sessions. Older versions wrote 'segue'. They would write it again, so they
-- may no longer write. PostgreSQL cannot read JSON with the escapes of a NUL or a lone surrogate; the
-- source of such a row is the one of its checkpoint.
-- compat: 14
UPDATE sessions SET source = origins.origin
FROM (
  SELECT s.pk, CASE
    WHEN convert_from(s.row, 'UTF8') ~* '\\u(0000|d[89a-f])' THEN i.source
    ELSE convert_from(s.row, 'UTF8')::json ->> 'origin'
  END AS origin
  FROM sessions s LEFT JOIN imports i ON i.session = s.pk
  WHERE s.source = 'segue'
) AS origins
WHERE sessions.pk = origins.pk
  AND origins.origin NOT IN ('acp', 'cli', 'demo', 'python', 'rest', 'web');
