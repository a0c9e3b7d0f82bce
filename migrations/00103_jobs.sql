-- loses: refused_jobs, outbox_messages, jobs
-- +goose Up

-- A job is the promise behind a 202, and the idempotency record of its request.
-- No index names a column that changes, and each page keeps room for a second version of its
-- rows, which is longer by the result. So finalizing a job is a HOT update.
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
    purchase_id     uuid,        -- that it has reserved by card: it is not tried again and not given up, its payment goes on
    progress        json,                                                  -- of a job that is not final: {next_action, waiting, refunds}
    result          json,                                                  -- json, not jsonb: a replay is the same bytes
    problem         json,                                                  -- {code, detail, fields}
    http_status     smallint,                                              -- of a command that answered at once
    attempts        smallint    NOT NULL DEFAULT 0,                        -- deliveries begun; the first is counted when it ends
    request_id      text,                                                  -- of the request that it comes from, for the log; null: none
    traceparent     text,                                                  -- W3C Trace Context of that request; null: none
    accepted_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at     timestamptz,
    expires_at      timestamptz NOT NULL,
    UNIQUE (client, idempotency_key),

    CHECK ((state IN ('succeeded', 'failed')) = (finished_at IS NOT NULL)),
    CHECK ((state = 'failed') = (problem IS NOT NULL)),
    CHECK (state = 'succeeded' OR result IS NULL)
-- Deleted rows are a small share of a large table. By default it would be vacuumed only after a
-- fifth has changed: searches by time would pass over millions of deleted rows.
) WITH (fillfactor = 35, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);

CREATE INDEX jobs_expiry ON jobs (expires_at);
-- Lists, newest first.
CREATE INDEX jobs_of_client ON jobs (client, id);
CREATE INDEX jobs_of_campaign ON jobs (campaign_id, id) WHERE campaign_id IS NOT NULL;
CREATE INDEX jobs_of_user ON jobs (user_id, id) WHERE user_id IS NOT NULL;
-- The kinds that no crowd makes: see frequent in package job, which must say the same.
CREATE INDEX jobs_of_kind ON jobs (kind, id)
    WHERE kind NOT IN ('purchase', 'cancellation', 'hold-create', 'hold-extend', 'wallet-open', 'wallet-credit', 'wallet-debit', 'transfer-create',
                       'authorization-create', 'authorization-capture', 'authorization-void');
-- The job that cancels a campaign, for those who follow the campaign until it is done.
CREATE INDEX jobs_campaign_cancellations ON jobs (campaign_id) WHERE kind = 'campaign-cancellation';

-- The outbox. A message is one task in the queue that calls workers to a bundle of
-- jobs. It is written in the commit that accepts them and deleted once all of
-- them are final; the sweep lost-jobs looks for the rest. One that waits for a locked campaign has no task:
-- the sweep issues its jobs again when the campaign is free.
CREATE TABLE outbox_messages (
    id        uuid        PRIMARY KEY,                                     -- the task's id in the queue
    kind      text        NOT NULL,
    jobs      uuid[]      NOT NULL,
    delivery  smallint    NOT NULL DEFAULT 1,                              -- which delivery of these jobs
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp(),              -- when enqueued, or last seen waiting in the queue
    waits_for uuid                                                         -- the campaign of the jobs, while it or a wallet is locked
);

CREATE INDEX outbox_messages_seen ON outbox_messages (seen_at) WHERE waits_for IS NULL;
CREATE INDEX outbox_messages_waiting ON outbox_messages (waits_for, (jobs[1])) WHERE waits_for IS NOT NULL;
CREATE INDEX outbox_messages_oldest ON outbox_messages (kind, (jobs[1])); -- ids of jobs follow the time

-- Jobs that workers have refused, a row for each transaction that finalized some. The
-- sweep old-records deletes them sooner than jobs that have succeeded. A list, and not
-- an index on jobs: see there.
CREATE TABLE refused_jobs (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    refused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    jobs       uuid[]      NOT NULL
);

CREATE INDEX refused_jobs_due ON refused_jobs (refused_at);

-- +goose Down
DROP TABLE refused_jobs, outbox_messages, jobs;
