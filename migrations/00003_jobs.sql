-- +goose Up

-- A job is the promise behind a 202, and the idempotency record of its request.
-- state is in no index, so that settling a job is a HOT update.
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
    result          json,                                                  -- json, not jsonb: a replay is the same bytes
    problem         json,                                                  -- {code, detail, fields}
    http_status     smallint,                                              -- of a command that answered at once
    attempts        smallint    NOT NULL DEFAULT 0,                        -- deliveries begun; the first is counted when it ends
    accepted_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at     timestamptz,
    expires_at      timestamptz NOT NULL,
    UNIQUE (client, idempotency_key),

    CHECK ((state IN ('succeeded', 'failed')) = (finished_at IS NOT NULL)),
    CHECK ((state = 'failed') = (problem IS NOT NULL)),
    CHECK (state = 'succeeded' OR result IS NULL)
) WITH (fillfactor = 60);

CREATE INDEX jobs_expiry ON jobs (expires_at);

-- The outbox. A ring is one task in the queue that calls workers to a bundle of
-- jobs. It is written in the commit that accepts them and deleted once all of
-- them are final; whatever is left here is looked for by the sweep lost-jobs.
CREATE TABLE rings (
    id       uuid        PRIMARY KEY,                                      -- the task's id in the queue
    kind     text        NOT NULL,
    jobs     uuid[]      NOT NULL,
    number   smallint    NOT NULL DEFAULT 1,                               -- which delivery of these jobs; see job.Ring
    seen_at  timestamptz NOT NULL DEFAULT clock_timestamp()                -- when rung, or last seen waiting in the queue
);

CREATE INDEX rings_seen ON rings (seen_at);

-- +goose Down
DROP TABLE rings, jobs;
