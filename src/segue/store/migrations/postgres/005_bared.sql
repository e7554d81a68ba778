-- Words are found without the codes by which programs colour a terminal. `bared` is how far the
-- index has been gone over for that: a session and a seq, or nothing when it is done. An older
-- program may go on: what it adds is found, only not by a word right behind such a code.
-- compat: 1
CREATE TABLE bared (session bigint NOT NULL, seq integer NOT NULL);
INSERT INTO bared SELECT 0, 0 WHERE EXISTS (SELECT FROM events);
