-- Words are found without the codes by which programs colour a terminal. `bared` is how far the
-- index has been gone over for that: a session and a seq, or nothing when it is done. A program
-- that knows nothing of budgets, which came with it, would leave them out of what it writes and
-- stumble over sessions that reached theirs, so none may write here any more.
-- compat: 5
CREATE TABLE bared (session bigint NOT NULL, seq integer NOT NULL);
INSERT INTO bared SELECT 0, 0 WHERE EXISTS (SELECT FROM events);
