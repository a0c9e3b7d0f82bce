-- +goose Up

-- The table of messages that call workers to jobs was named rings. It is a
-- transactional outbox, so it gets that name.
ALTER TABLE rings RENAME TO outbox_messages;
ALTER TABLE outbox_messages RENAME COLUMN number TO delivery;              -- the number of the delivery of these jobs; see outbox.Message
ALTER TABLE outbox_messages RENAME CONSTRAINT rings_pkey TO outbox_messages_pkey;
ALTER INDEX rings_seen RENAME TO outbox_messages_seen;

-- During an upgrade, processes of the previous release still use the old name. They
-- can write to this view, because it selects from one table.
CREATE VIEW rings AS SELECT id, kind, delivery AS number, jobs, seen_at FROM outbox_messages;

-- +goose Down
DROP VIEW rings;
ALTER INDEX outbox_messages_seen RENAME TO rings_seen;
ALTER TABLE outbox_messages RENAME CONSTRAINT outbox_messages_pkey TO rings_pkey;
ALTER TABLE outbox_messages RENAME COLUMN delivery TO number;
ALTER TABLE outbox_messages RENAME TO rings;
