-- loses: timelines
-- +goose Up

-- The timelines of Postgres that the fleet has met here, each with its branch: servers that were promoted apart may count
-- up to the same timeline, and then have other rows. Whoever meets a timeline first writes its row.
CREATE TABLE timelines (
    system   bigint,                                                       -- as pg_control_system() says
    timeline bigint,
    branch   text        NOT NULL,                                         -- the server's address and a random id
    met_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (system, timeline)
);

-- +goose Down
DROP TABLE timelines;
