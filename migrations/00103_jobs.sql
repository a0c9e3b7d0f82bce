-- loses: refused_jobs, outbox_messages, jobs
-- +goose Up

-- A job is the record of an accepted request (202), and its idempotency record. No index has a
-- column that changes, and each page has room for a second, longer version of its rows: so
-- completing a job is a HOT update.
CREATE TABLE jobs (
    id              uuid        PRIMARY KEY,
    client          text        NOT NULL,
    idempotency_key text        NOT NULL,
    request_hash    bytea       NOT NULL CHECK (octet_length(request_hash) = 32),
    kind            text        NOT NULL,
    campaign_id     uuid,                                                  -- no foreign key: see campaigns
    user_id         text,
    payload         json,
    state           text        NOT NULL DEFAULT 'queued'
                                CHECK (state IN ('queued', 'awaiting_action', 'succeeded', 'failed')),
    purchase_id     uuid,        -- the card purchase that it has reserved: the job is not retried or discarded, its payment continues
    progress        json,                                                  -- of a job that is not final: {next_action, waiting, refunds}
    result          json,                                                  -- json, not jsonb: a replay is the same bytes
    problem         json,                                                  -- {code, detail, fields}
    http_status     smallint,                                              -- of a command, which completes in its request
    attempts        smallint    NOT NULL DEFAULT 0,                        -- deliveries started; the first is counted when it ends
    request_id      text,                                                  -- of its request, for the log; null: none
    traceparent     text,                                                  -- W3C Trace Context of that request; null: none
    accepted_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at     timestamptz,
    expires_at      timestamptz NOT NULL,
    UNIQUE (client, idempotency_key),

    CHECK ((state IN ('succeeded', 'failed')) = (finished_at IS NOT NULL)),
    CHECK ((state = 'failed') = (problem IS NOT NULL)),
    CHECK (state = 'succeeded' OR result IS NULL)
-- Deleted rows are a small share of a large table. The default vacuums only after a fifth has
-- changed: searches by time would skip millions of deleted rows.
) WITH (fillfactor = 35, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);

CREATE INDEX jobs_expiry ON jobs (expires_at);
-- Lists, newest first.
CREATE INDEX jobs_of_client ON jobs (client, id);
CREATE INDEX jobs_of_campaign ON jobs (campaign_id, id) WHERE campaign_id IS NOT NULL;
CREATE INDEX jobs_of_user ON jobs (user_id, id) WHERE user_id IS NOT NULL;
-- The infrequent kinds: must match frequent in package job.
CREATE INDEX jobs_of_kind ON jobs (kind, id)
    WHERE kind NOT IN ('purchase', 'cancellation', 'hold-create', 'hold-extend', 'wallet-open', 'wallet-credit', 'wallet-debit', 'transfer-create',
                       'authorization-create', 'authorization-capture', 'authorization-void');
-- The job that cancels a campaign, for streams of the campaign.
CREATE INDEX jobs_campaign_cancellations ON jobs (campaign_id) WHERE kind = 'campaign-cancellation';
CREATE INDEX jobs_erasures ON jobs (user_id) WHERE kind = 'erasure';
CREATE INDEX jobs_erasures_of_client ON jobs (client) WHERE kind = 'erasure';
CREATE INDEX jobs_draws ON jobs (campaign_id) WHERE kind = 'draw';

-- The outbox. A message is one task in the queue, for a batch of jobs. It is written in the
-- transaction that accepts them and deleted when all of them are final; the sweep lost-jobs
-- recovers the rest. A message that waits for a locked campaign has no task: the sweep enqueues
-- its jobs again when the campaign is unlocked.
CREATE TABLE outbox_messages (
    id        uuid        PRIMARY KEY,                                     -- the task's id in the queue
    kind      text        NOT NULL,
    jobs      uuid[]      NOT NULL,
    delivery  smallint    NOT NULL DEFAULT 1,                              -- number of the delivery of these jobs
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp(),              -- when enqueued, or last seen waiting in the queue
    waits_for uuid                                                         -- the campaign of the jobs, while it or a wallet is locked
);

CREATE INDEX outbox_messages_seen ON outbox_messages (seen_at) WHERE waits_for IS NULL;
CREATE INDEX outbox_messages_waiting ON outbox_messages (waits_for, (jobs[1])) WHERE waits_for IS NOT NULL;
CREATE INDEX outbox_messages_oldest ON outbox_messages (kind, (jobs[1])); -- ids of jobs are ordered by time

-- Rejected jobs (those that did not fail through a defect), a row per transaction. The sweep
-- old-records deletes them sooner than succeeded jobs. A table instead of an index on jobs,
-- so that completing a job stays a HOT update.
CREATE TABLE refused_jobs (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    refused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    jobs       uuid[]      NOT NULL
);

CREATE INDEX refused_jobs_due ON refused_jobs (refused_at);

-- +goose Down
DROP TABLE refused_jobs, outbox_messages, jobs;
