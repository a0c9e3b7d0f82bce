-- +goose Up

-- What called workers to jobs was named a ring; it is a message of an outbox.
ALTER TABLE rings RENAME TO outbox_messages;
ALTER TABLE outbox_messages RENAME COLUMN number TO delivery;              -- which delivery of these jobs; see outbox.Message
ALTER TABLE outbox_messages RENAME CONSTRAINT rings_pkey TO outbox_messages_pkey;
ALTER INDEX rings_seen RENAME TO outbox_messages_seen;

-- Processes of the release before know the old name, and may run until all are
-- replaced. The view can be written to: it is one table with other names.
CREATE VIEW rings AS SELECT id, kind, delivery AS number, jobs, seen_at FROM outbox_messages;

-- Commands are named by a noun and a verb, all of them.
UPDATE jobs SET kind = k.after
FROM (VALUES ('create-hold', 'hold-create'), ('extend-hold', 'hold-extend'),
             ('open-wallet', 'wallet-open'), ('credit-wallet', 'wallet-credit'), ('debit-wallet', 'wallet-debit'),
             ('transfer', 'transfer-create'), ('authorize', 'authorization-create'),
             ('capture-authorization', 'authorization-capture'), ('void-authorization', 'authorization-void')) AS k (before, after)
WHERE kind = k.before;

-- +goose Down
UPDATE jobs SET kind = k.before
FROM (VALUES ('create-hold', 'hold-create'), ('extend-hold', 'hold-extend'),
             ('open-wallet', 'wallet-open'), ('credit-wallet', 'wallet-credit'), ('debit-wallet', 'wallet-debit'),
             ('transfer', 'transfer-create'), ('authorize', 'authorization-create'),
             ('capture-authorization', 'authorization-capture'), ('void-authorization', 'authorization-void')) AS k (before, after)
WHERE kind = k.after;

DROP VIEW rings;
ALTER INDEX outbox_messages_seen RENAME TO rings_seen;
ALTER TABLE outbox_messages RENAME CONSTRAINT outbox_messages_pkey TO rings_pkey;
ALTER TABLE outbox_messages RENAME COLUMN delivery TO number;
ALTER TABLE outbox_messages RENAME TO rings;
