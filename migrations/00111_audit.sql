-- loses: audit_violations, audit_checks, audit_walks
-- +goose Up

-- The progress of the sweep audit, per walk.
CREATE TABLE audit_walks (
    walk      text        PRIMARY KEY,
    after     uuid        NOT NULL,                                        -- the last id checked; the next run continues after it
    resume_at timestamptz NOT NULL                                         -- no run starts before
);

-- When each invariant was last checked.
CREATE TABLE audit_checks (
    invariant text        PRIMARY KEY,                                     -- its short name
    checked_at timestamptz NOT NULL
);

-- The violations that the sweep audit has found, until a later check finds them repaired.
CREATE TABLE audit_violations (
    walk      text        NOT NULL,
    id        uuid        NOT NULL,                                        -- of the walk: the campaign, wallet, ledger entry, job or event
    invariant text        NOT NULL,
    subjects  text[]      NOT NULL CHECK (cardinality(subjects) > 0),      -- the first few violating rows
    found_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (walk, id, invariant)
);

-- +goose Down
DROP TABLE audit_violations, audit_checks, audit_walks;
