-- +goose Up

-- What called workers to jobs was named a ring; it is a message of an outbox.
ALTER TABLE rings RENAME TO outbox_messages;
ALTER TABLE outbox_messages RENAME COLUMN number TO delivery;              -- which delivery of these jobs; see outbox.Message
ALTER TABLE outbox_messages RENAME CONSTRAINT rings_pkey TO outbox_messages_pkey;
ALTER INDEX rings_seen RENAME TO outbox_messages_seen;

-- Processes of the release before know the old name, and may run until all are
-- replaced. The view can be written to: it is one table with other names.
CREATE VIEW rings AS SELECT id, kind, delivery AS number, jobs, seen_at FROM outbox_messages;

-- +goose Down
DROP VIEW rings;
ALTER INDEX outbox_messages_seen RENAME TO rings_seen;
ALTER TABLE outbox_messages RENAME CONSTRAINT outbox_messages_pkey TO rings_pkey;
ALTER TABLE outbox_messages RENAME COLUMN delivery TO number;
ALTER TABLE outbox_messages RENAME TO rings;
