-- loses: audit_violations, audit_looks, audit_walks
-- +goose Up

-- How far the sweep audit is, by what it walks over.
CREATE TABLE audit_walks (
    walk      text        PRIMARY KEY,
    after     uuid        NOT NULL,                                        -- the last id that was looked at; the next turn goes on behind it
    resume_at timestamptz NOT NULL                                         -- no turn begins before
);

-- When each invariant was last checked.
CREATE TABLE audit_looks (
    invariant text        PRIMARY KEY,                                     -- its short name
    looked_at timestamptz NOT NULL
);

-- What the sweep audit has found, until a later look finds it gone.
CREATE TABLE audit_violations (
    walk      text        NOT NULL,
    id        uuid        NOT NULL,                                        -- of the walk: the campaign, wallet, ledger entry, job or event
    invariant text        NOT NULL,
    subjects  text[]      NOT NULL CHECK (cardinality(subjects) > 0),      -- the rows that break it, the first few
    found_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (walk, id, invariant)
);

-- +goose Down
DROP TABLE audit_violations, audit_looks, audit_walks;
