-- Webhooks: which types each one announces, and the queue of deliveries, which is their log as well.
-- An older segue would write changes without announcing them, so it must not write any more.
-- compat: 15

-- Written with the record of the webhook, so that a change finds its webhooks with one lookup.
CREATE TABLE subscriptions (
  workspace TEXT NOT NULL,
  type TEXT NOT NULL,
  webhook TEXT NOT NULL,
  PRIMARY KEY (workspace, type, webhook)
) WITHOUT ROWID;

-- `due_at` is when a delivery is attempted next; a finished one has none. `row` has the rest as JSON.
CREATE TABLE deliveries (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  workspace TEXT NOT NULL,
  webhook TEXT NOT NULL,
  due_at INTEGER, -- microseconds since 1970, UTC
  row TEXT NOT NULL
);
CREATE INDEX deliveries_due ON deliveries (due_at, number) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_log ON deliveries (workspace, webhook, number);
