-- Words are found without the codes by which programs colour a terminal. `bared` is the key up to
-- which the full-text index has been gone over for that. A program that knows nothing of it would
-- take out of the index what is not in it, so none may write here any more.
-- compat: 4
INSERT INTO meta SELECT 'bared', iif(EXISTS (SELECT 1 FROM events), 0, 9223372036854775807);
