-- A process may be at work for days after others were upgraded. Every connection says which format
-- its program knows, and the database refuses what it writes once a newer program closed the store.
-- compat: 1

CREATE FUNCTION refuse_outdated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- Programs from before this migration say nothing.
  IF coalesce(nullif(current_setting('segue.format', true), ''), '2')::integer
     < (SELECT max(compat) FROM segue.migrations) THEN
    RAISE EXCEPTION USING ERRCODE = 'SG001', MESSAGE = 'a newer segue closed this store';
  END IF;
  RETURN NULL;
END
$$;

CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON sessions
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON inbox
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON records
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON keys
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON overlays
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON settings
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON leases
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
CREATE TRIGGER refuse_outdated BEFORE INSERT OR UPDATE OR DELETE ON parts
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_outdated();
