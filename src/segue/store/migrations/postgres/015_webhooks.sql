-- Webhooks: which types each one announces, and the queue of deliveries, which is their log as well.
-- An older segue would write changes without announcing them, so it must not write any more.
-- compat: 15

-- Written with the record of the webhook, so that a change finds its webhooks with one lookup.
CREATE TABLE subscriptions (
  workspace text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL,
  webhook text COLLATE "C" NOT NULL,
  PRIMARY KEY (workspace, type, webhook)
);

-- `due_at` is when a delivery is attempted next; a finished one has none. `row` has the rest as JSON.
CREATE TABLE deliveries (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workspace text COLLATE "C" NOT NULL,
  webhook text COLLATE "C" NOT NULL,
  due_at bigint,
  row bytea NOT NULL
);
CREATE INDEX deliveries_due ON deliveries (due_at, number) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_log ON deliveries (workspace, webhook, number);
